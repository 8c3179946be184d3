"""The policy: a causal language model with its trained weights, fed packed rows."""
# pyright: reportUnknownMemberType=false, reportUnknownVariableType=false
# pyright: reportUnknownArgumentType=false

from __future__ import annotations

import logging
from collections.abc import Sequence
from typing import Any

import numpy as np
import torch
from torch import Tensor
from transformers import PreTrainedModel

from art_core.grpo.architectures import Probe, attention_window, why_no_tree
from art_core.grpo.forward import plain_hidden, tree_hidden
from art_core.grpo.lean import make_lean
from art_core.grpo.passes import plan_passes, plan_paths
from art_core.grpo.rows import Row
from art_core.grpo.token_logprobs import token_logprobs
from art_core.grpo.tree import PackedRows, pack

logger = logging.getLogger(__name__)


class Policy:
    """Log-probabilities of the trained tokens of packed rows.

    Where the model can't be given a tree (`why_no_tree`), or a row is longer than
    its attention window, rows are run as plain paths; the log says so.
    """

    def __init__(self, model: PreTrainedModel) -> None:
        self.model = model
        self._plain_attention = model.config._attn_implementation
        self._window = attention_window(model.config)
        self._probe = Probe(model)
        reason = why_no_tree(model.config, type(model)) or self._probe.try_tree()
        self.trees = reason is None
        if reason is not None:
            logger.warning("%s is trained without prefix trees: %s", type(model).__name__, reason)

    def make_lean(self) -> None:
        """Replace the model's slow parts, once it has its adapter."""
        parts = make_lean(self.model, lambda: self._probe.agrees(self.trees))
        logger.info("%s: replaced %s", type(self.model).__name__, ", ".join(parts) or "nothing")

    def plan(self, rows: Sequence[Row], max_tokens: int) -> list[PackedRows]:
        """The passes to make for these rows; each fits ``max_tokens`` unless one row doesn't."""
        if not self.trees:
            return [pack(path) for path in plan_paths(rows)]
        limit = self._window or max(len(row.inputs) for row in rows)
        short = [row for row in rows if len(row.inputs) <= limit]
        long = [row for row in rows if len(row.inputs) > limit]
        if long:
            logger.info("%d rows are longer than the attention window (%d): plain paths",
                        len(long), limit)  # fmt: skip
        trees = plan_passes(short, max_tokens) if short else []
        return [pack(part) for part in [*trees, *plan_paths(long)]]

    def logprobs(self, packed: PackedRows) -> tuple[Tensor, Tensor]:
        """Log-probability of each term, [T] fp32, and the entropy at it, [T] fp32, detached."""
        hidden = self._hidden(packed)
        device = hidden.device
        pair_query = torch.as_tensor(packed.pair_query, device=device)
        pair_token = torch.as_tensor(packed.pair_token, device=device)
        head: Any = self.model.get_output_embeddings()
        queries = hidden[torch.as_tensor(packed.queries, device=device)]
        logprobs, entropy = token_logprobs(queries, head.weight, pair_query, pair_token)
        term_pair = torch.as_tensor(packed.term_pair, device=device)
        return logprobs[term_pair], entropy[pair_query[term_pair]]

    def _hidden(self, packed: PackedRows) -> Tensor:
        tree = packed.tree
        if self.trees and tree.longest_path <= (self._window or np.inf):
            return tree_hidden(self.model, tree)
        if not self.trees:
            return plain_hidden(self.model, tree.token_ids)
        tree_attention = self.model.config._attn_implementation
        self.model.set_attn_implementation(self._plain_attention)
        try:
            return plain_hidden(self.model, tree.token_ids)
        finally:
            self.model.set_attn_implementation(tree_attention)
