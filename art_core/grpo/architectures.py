"""What a model can be given: read off its configuration, then tried."""
# pyright: reportUnknownMemberType=false, reportUnknownVariableType=false
# pyright: reportUnknownArgumentType=false

from __future__ import annotations

from typing import Any

import numpy as np
import torch
from torch import Tensor
from transformers import PretrainedConfig, PreTrainedModel

from art_core.errors import TrainingError
from art_core.grpo import tree_attention
from art_core.grpo.forward import hidden_states, logits, plain_inputs, tree_inputs
from art_core.grpo.rows import IntArray, Row
from art_core.grpo.tree import pack, sort_rows

_ATTENTION_LAYERS = {"full_attention", "sliding_attention", "chunked_attention"}
_WINDOWS = ("sliding_window", "attention_chunk_size")
_LOGIT_CHANGES = (
    "final_logit_softcapping",
    "logits_scaling",
    "logit_scale",
    "output_multiplier",
    "lm_head_multiplier",
)
_TOLERANCE = {torch.float32: 1e-4, torch.float16: 0.01}


def attention_window(config: PretrainedConfig) -> int | None:
    """The longest path on which every layer still sees all ancestors; None: any."""
    if set(getattr(config, "layer_types", None) or ()) == {"full_attention"}:
        return None
    windows = [getattr(config, name, None) for name in _WINDOWS]
    return min((w for w in windows if isinstance(w, int) and w > 0), default=None)


def attention_implementation(model: PreTrainedModel) -> str:
    """The name under which transformers knows the model's attention."""
    config: Any = model.config
    return config._attn_implementation or "eager"


def why_no_tree(config: PretrainedConfig, model: type[PreTrainedModel]) -> str | None:
    """What in a model's configuration or class makes a tree wrong for it; None: nothing.

    That is layers that carry a state along the row (linear attention, state
    spaces), and attention outside transformers' interface.
    """
    layers = set(getattr(config, "layer_types", None) or ()) - _ATTENTION_LAYERS
    if layers:
        return f"it has layers of type {', '.join(sorted(layers))}"
    if getattr(model, "_is_stateful", False):
        return "its layers carry a state from token to token"
    if not getattr(model, "_supports_attention_backend", False):
        return "its attention can't be replaced through transformers' AttentionInterface"
    return None


class Probe:
    """A small tree, and the hidden states that the untouched model gives for its rows."""

    def __init__(self, model: PreTrainedModel) -> None:
        config = model.config
        vocabulary = config.get_text_config().vocab_size
        self._model = model
        self._rows = _rows(vocabulary, attention_window(config))
        self._packed = pack(self._rows)
        self._expected = self._plain()
        self._tolerance = _TOLERANCE.get(model.dtype, 0.05)

    def try_tree(self) -> str | None:
        """Put the model on tree attention; why that is wrong (and undone), None if it's right."""
        own = attention_implementation(self._model)
        tree_attention.register()
        self._model.set_attn_implementation(tree_attention.IMPLEMENTATION)
        try:
            error = self._error(self._tree())
            reason = f"a tree differs from its rows by {error:.1e}"
        except TrainingError as refusal:
            error, reason = np.inf, refusal.problem
        if error <= self._tolerance:
            return None
        self._model.set_attn_implementation(own)
        return reason

    def agrees(self, trees: bool) -> bool:
        """Whether the model still gives the same, on a tree or on rows."""
        return self._error(self._tree() if trees else self._plain()) <= self._tolerance

    @property
    def tokens(self) -> int:
        """Distinct tokens of the tree."""
        return len(self._packed.tree.token_ids)

    def run(self, trees: bool) -> Tensor:
        """Hidden states with gradients: on the tree, or on as many tokens in a row."""
        tree, device = self._packed.tree, self._model.device
        inputs = tree_inputs(tree, device) if trees else plain_inputs(tree.token_ids, device)
        return hidden_states(self._model, inputs)

    def head_is_linear(self) -> bool:
        """Whether the logits are the hidden states times the output embedding, no more."""
        config = self._model.config.get_text_config()
        if any(getattr(config, name, None) not in (None, 1.0) for name in _LOGIT_CHANGES):
            return False
        head: Any = self._model.get_output_embeddings()
        inputs = plain_inputs(self._rows[0].inputs, self._model.device)
        at = torch.arange(len(self._rows[0].inputs), device=self._model.device)
        with torch.no_grad():
            expected = logits(self._model, inputs, at).float()
            product = hidden_states(self._model, inputs) @ head.weight.T
        return float((product.float() - expected).norm() / expected.norm()) <= self._tolerance

    def _error(self, actual: Tensor) -> float:
        """Relative, over all positions of all rows."""
        return float((actual - self._expected).norm() / self._expected.norm())

    def _plain(self) -> Tensor:
        with torch.no_grad():
            return torch.cat([self._row(row) for row in self._rows])

    def _row(self, row: Row) -> Tensor:
        return hidden_states(self._model, plain_inputs(row.inputs, self._model.device)).float()

    def _tree(self) -> Tensor:
        packed = self._packed
        nodes = packed.queries[packed.pair_query[packed.term_pair]]
        with torch.no_grad():
            return self.run(trees=True)[nodes].float()


def _rows(vocabulary: int, window: int | None) -> list[Row]:
    """Three rows that branch twice, every token trained, none longer than the window."""
    tokens = np.random.default_rng(0).integers(0, vocabulary, 32)
    sequences = [tokens[:14], np.r_[tokens[:9], tokens[14:22]], np.r_[tokens[:5], tokens[22:]]]
    return sort_rows([_fully_trained(sequence[:window]) for sequence in sequences])


def _fully_trained(tokens: IntArray) -> Row:
    trained = np.arange(1, len(tokens))
    zeros = np.zeros(len(trained))
    return Row(0, tokens, trained, zeros, zeros.astype(np.int64))
