"""Which models can be given a tree: read off the configuration, then tried."""
# pyright: reportUnknownMemberType=false, reportUnknownVariableType=false
# pyright: reportUnknownArgumentType=false

from __future__ import annotations

import numpy as np
import torch
from transformers import PretrainedConfig, PreTrainedModel

from art_core.errors import TrainingError
from art_core.grpo import tree_attention
from art_core.grpo.forward import plain_hidden, tree_hidden
from art_core.grpo.rows import IntArray, Row
from art_core.grpo.tree import pack, sort_rows

_ATTENTION_LAYERS = {"full_attention", "sliding_attention", "chunked_attention"}
_WINDOWS = ("sliding_window", "attention_chunk_size")
PROBE_TOLERANCE = {torch.float32: 1e-4, torch.bfloat16: 0.05, torch.float16: 0.01}
"""Relative error of the hidden states between tree and rows that is put down to rounding."""


def attention_window(config: PretrainedConfig) -> int | None:
    """The longest path on which every layer still sees all ancestors; None: any."""
    windows = [getattr(config, name, None) for name in _WINDOWS]
    layers = set(getattr(config, "layer_types", None) or ())
    if layers and layers == {"full_attention"}:
        return None
    return min((w for w in windows if isinstance(w, int) and w > 0), default=None)


def why_no_tree(model: PreTrainedModel) -> str | None:
    """Why ``model`` can't be given a tree; None where it can.

    Layers that carry a state along the row (linear attention, state spaces), and
    attention outside transformers' interface, show in the configuration. Whatever
    else would make a tree wrong shows in a trial: a small tree must give the hidden
    states of its rows. Leaves the model on tree attention if it passes.
    """
    layers = set(getattr(model.config, "layer_types", None) or ()) - _ATTENTION_LAYERS
    if layers:
        return f"it has layers of type {', '.join(sorted(layers))}"
    if getattr(model, "_is_stateful", False):
        return "its layers carry a state from token to token"
    if not getattr(model, "_supports_attention_backend", False):
        return "its attention can't be replaced through transformers' AttentionInterface"
    rows = _probe_rows(model.config.get_text_config().vocab_size, attention_window(model.config))
    packed = pack(rows)
    nodes = packed.queries[packed.pair_query[packed.term_pair]]
    with torch.no_grad():
        expected = torch.cat([plain_hidden(model, row.inputs) for row in rows])
        plain = model.config._attn_implementation
        tree_attention.register()
        model.set_attn_implementation(tree_attention.IMPLEMENTATION)
        try:
            difference = tree_hidden(model, packed.tree)[nodes].float() - expected.float()
        except TrainingError as error:
            model.set_attn_implementation(plain)
            return error.problem
    error = float(difference.norm() / expected.float().norm())
    if not error <= PROBE_TOLERANCE.get(model.dtype, 0.05):
        model.set_attn_implementation(plain)
        return f"a tree of its tokens differs from their rows by {error:.1e}"
    return None


def _probe_rows(vocabulary: int, window: int | None) -> list[Row]:
    """Three rows that branch twice, every token trained, none longer than the window."""
    tokens = np.random.default_rng(0).integers(0, vocabulary, 32)
    sequences = [tokens[:14], np.r_[tokens[:9], tokens[14:22]], np.r_[tokens[:5], tokens[22:]]]
    return sort_rows([_fully_trained(sequence[:window]) for sequence in sequences])


def _fully_trained(tokens: IntArray) -> Row:
    trained = np.arange(1, len(tokens))
    zeros = np.zeros(len(trained))
    return Row(0, tokens, trained, zeros, zeros.astype(np.int64))
