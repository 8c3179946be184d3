"""Data parallel training: several processes, each with the same weights and the whole batch.

The passes of a step are dealt out to the processes by their tokens. The loss's
weights are those of the whole batch, so the sum of the processes' gradients is the
gradient that one process would have made, whoever made which part.
"""
# pyright: reportUnknownMemberType=false, reportUnknownVariableType=false
# pyright: reportUnknownArgumentType=false

from __future__ import annotations

from collections.abc import Iterable, Sequence
from typing import Any

import torch
from accelerate import Accelerator
from accelerate.utils import gather_object
from torch import nn

from art_core.grpo.update import Pass


class Replicas:
    """The processes of an `accelerate.Accelerator`, or this one alone."""

    def __init__(self, accelerator: Accelerator | None) -> None:
        self._accelerator = accelerator
        self.count = accelerator.num_processes if accelerator else 1

    def share(self, passes: Sequence[Pass], *, whole_rollouts: bool) -> list[Pass]:
        """This process's part of the passes.

        Args:
            whole_rollouts: keep all passes of a rollout in one process.
        """
        if self._accelerator is None or self.count == 1:
            return list(passes)
        shares: list[list[Pass]] = [[] for _ in range(self.count)]
        bundles = _bundles(passes) if whole_rollouts else [[part] for part in passes]
        for bundle in sorted(bundles, key=_tokens, reverse=True):
            min(shares, key=_tokens).extend(bundle)
        return shares[self._accelerator.process_index]

    def sum_gradients(self, parameters: Iterable[nn.Parameter]) -> None:
        """Give every process the sum of all processes' gradients."""
        if self._accelerator is None or self.count == 1:
            return
        trained = list(parameters)
        grads = [torch.zeros_like(p) if p.grad is None else p.grad for p in trained]
        flat = torch.cat([grad.reshape(-1) for grad in grads])
        total: Any = self._accelerator.reduce(flat, reduction="sum")
        for parameter, part in zip(trained, total.split([p.numel() for p in trained]), strict=True):
            parameter.grad = part.view_as(parameter)

    def share_results(self, passes: Sequence[Pass], mine: Sequence[Pass]) -> None:
        """Fill in what the passes of other processes gave."""
        if self._accelerator is None or self.count == 1:
            return
        owned = {id(part) for part in mine}
        results = [(i, p.loss, p.entropy) for i, p in enumerate(passes) if id(p) in owned]
        for index, loss, entropy in gather_object(results):
            passes[index].loss, passes[index].entropy = loss, entropy


def _tokens(passes: Sequence[Pass]) -> int:
    return sum(len(part.packed.tree.token_ids) for part in passes)


def _bundles(passes: Sequence[Pass]) -> list[list[Pass]]:
    """Passes grouped so that no rollout has rows in two groups."""
    bundles: list[tuple[set[int], list[Pass]]] = []
    for part in passes:
        owners, bundle = set(part.packed.term_rollout.tolist()), [part]
        apart: list[tuple[set[int], list[Pass]]] = []
        for other_owners, other in bundles:
            if owners.isdisjoint(other_owners):
                apart.append((other_owners, other))
            else:
                owners, bundle = owners | other_owners, other + bundle
        bundles = [*apart, (owners, bundle)]
    return [bundle for _, bundle in bundles]
