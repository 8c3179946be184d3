"""The policy: a causal language model with its trained weights, fed packed rows."""
# pyright: reportUnknownMemberType=false, reportUnknownVariableType=false
# pyright: reportUnknownArgumentType=false

from __future__ import annotations

import logging
from collections.abc import Generator, Sequence
from contextlib import contextmanager
from typing import Any

import torch
from peft.tuners.lora import LoraLayer
from torch import Tensor, nn
from transformers import PreTrainedModel
from transformers.modeling_layers import GradientCheckpointingLayer

from art_core.grpo import memory
from art_core.grpo.architectures import (
    Probe,
    attention_implementation,
    attention_window,
    why_no_tree,
)
from art_core.grpo.forward import ModelInputs, hidden_states, logits, plain_inputs, tree_inputs
from art_core.grpo.lean import make_lean
from art_core.grpo.passes import plan_passes, plan_paths
from art_core.grpo.rows import Row
from art_core.grpo.token_logprobs import token_logprobs, token_logprobs_of
from art_core.grpo.tree import PackedRows, pack

logger = logging.getLogger(__name__)


class Policy:
    """Log-probabilities of the trained tokens of packed rows.

    Where the model can't be given a tree (`why_no_tree`, `Probe.try_tree`), or a row
    is longer than its attention window, rows are run as plain paths; the log says so.
    """

    def __init__(self, model: PreTrainedModel) -> None:
        self.model = model
        self._plain_attention = attention_implementation(model)
        self._window = attention_window(model.config)
        self._probe = Probe(model)
        self._linear_head = self._probe.head_is_linear()
        reason = why_no_tree(model.config, type(model)) or self._probe.try_tree()
        self.trees = reason is None
        if reason is not None:
            logger.warning("%s is trained without prefix trees: %s", type(model).__name__, reason)

    @property
    def device(self) -> torch.device:
        return self.model.device

    def weights_attached(self) -> None:
        """To be called once the model has its trained weights: replaces its slow parts."""
        self.model.eval()  # PEFT's new layers would drop out from the start
        parts = make_lean(self.model, lambda: self._probe.agrees(self.trees), trees=self.trees)
        logger.info("%s: replaced %s", type(self.model).__name__, ", ".join(parts) or "nothing")

    def tokens_that_fit(self) -> int:
        """How many tokens one pass may have, by what a small one keeps in memory."""
        kept = memory.saved_bytes(self.model, lambda: self._probe.run(self.trees))
        return memory.tokens_that_fit(self.device, kept / self._probe.tokens)

    def plan(self, rows: Sequence[Row], max_tokens: int) -> list[PackedRows]:
        """The passes to make for these rows; each fits ``max_tokens`` unless one row doesn't."""
        if not self.trees:
            return [pack(path) for path in plan_paths(rows)]
        short = [row for row in rows if self._fits_window(len(row.inputs))]
        long = [row for row in rows if not self._fits_window(len(row.inputs))]
        if long:
            logger.info("%d rows are longer than the attention window: plain paths", len(long))
        trees = plan_passes(short, max_tokens, memory.enough_tokens(self.device))
        return [pack(part) for part in [*trees, *plan_paths(long)]]

    def logprobs(self, packed: PackedRows) -> tuple[Tensor, Tensor]:
        """Log-probability of each term, [T] fp32, and the entropy at it, [T] fp32, detached."""
        pair_query, pair_token, term_pair, queries = (
            torch.as_tensor(index, device=self.device)
            for index in (packed.pair_query, packed.pair_token, packed.term_pair, packed.queries)
        )
        with self._inputs(packed) as inputs:
            if self._linear_head:
                head: Any = self.model.get_output_embeddings()
                hidden = hidden_states(self.model, inputs)[queries]
                pairs, entropy = token_logprobs(hidden, head.weight, pair_query, pair_token)
            else:
                rows = logits(self.model, inputs, queries)
                pairs, entropy = token_logprobs_of(rows, pair_query, pair_token)
        return pairs[term_pair], entropy[pair_query[term_pair]]

    @property
    def drops_out(self) -> bool:
        """Whether the adapter has dropout."""
        return bool(self._dropout_layers())

    @contextmanager
    def dropout(self, seed: int) -> Generator[None]:
        """Inside, the adapter's dropout is on, its random numbers from ``seed``."""
        layers = self._dropout_layers()
        with torch.random.fork_rng(enabled=bool(layers)):
            if layers:
                torch.manual_seed(seed)
            for layer in layers:
                layer.train()
            try:
                yield
            finally:
                for layer in layers:
                    layer.eval()

    def _dropout_layers(self) -> list[nn.Module]:
        return [
            dropout
            for module in self.model.modules()
            if isinstance(module, LoraLayer)
            for name, dropout in module.lora_dropout.items()
            if name in module.active_adapters and isinstance(dropout, nn.Dropout)
        ]

    def checkpoint_activations(self, on: bool) -> None:
        """Whether the backward pass makes each layer's activations again."""
        if on:
            self.model.activation_checkpointing_enable({"use_reentrant": False})
        for module in self.model.modules():
            if isinstance(module, GradientCheckpointingLayer):
                module.training = on  # for this layer itself; dropout inside stays off

    def _fits_window(self, length: int) -> bool:
        return self._window is None or length <= self._window

    @contextmanager
    def _inputs(self, packed: PackedRows) -> Generator[ModelInputs]:
        """The model's arguments; inside, the model is on the attention that suits them."""
        tree = packed.tree
        if self.trees and self._fits_window(tree.longest_path):
            yield tree_inputs(tree, self.device)
            return
        current = attention_implementation(self.model)
        self._set_attention(self._plain_attention)
        try:
            yield plain_inputs(tree.token_ids, self.device)
        finally:
            self._set_attention(current)

    def _set_attention(self, implementation: str) -> None:
        if implementation != attention_implementation(self.model):
            self.model.set_attn_implementation(implementation)
