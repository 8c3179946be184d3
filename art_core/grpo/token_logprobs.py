"""Log-probabilities of chosen tokens from hidden states, without the logits of a whole batch.

Let ``h`` be the hidden states of Q queries and ``W`` the output head [V, D]. For a chunk
of queries at a time: ``z = h Wᵀ``, ``log p(y) = z_y - logsumexp(z)`` and, with ``p =
softmax(z)``, the *expected embedding* ``m = p W`` [D]. Then

- the gradient is ``∂ log p(y) / ∂h = W_y - m``: no logits are needed in the backward pass;
- the entropy is ``logsumexp(z) - h·m``: it costs nothing more.
"""
# pyright: reportUnknownMemberType=false, reportUnknownVariableType=false
# pyright: reportUnknownArgumentType=false

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import torch
from torch import Tensor

CHUNK_BYTES = 64 * 2**20
"""Logits held at a time, in fp32."""


def token_logprobs(
    hidden: Tensor, weight: Tensor, pair_query: Tensor, pair_token: Tensor
) -> tuple[Tensor, Tensor]:
    """Log-probability of each pair, [U] fp32, and the entropy of each query, [Q] fp32, detached.

    Args:
        hidden: [Q, D] final hidden states.
        weight: [V, D] the output head, without bias.
        pair_query: [U] index into the queries, ascending.
        pair_token: [U] token ids.
    """
    return _TokenLogprobs.apply(hidden, weight, pair_query, pair_token)


def token_logprobs_of(
    logits: Tensor, pair_query: Tensor, pair_token: Tensor
) -> tuple[Tensor, Tensor]:
    """As `token_logprobs`, from logits [Q, V] that are more than a product (capped, scaled)."""
    table = torch.log_softmax(logits.float(), -1)
    entropy = -(table.detach().exp() * table.detach()).sum(-1)
    return table[pair_query, pair_token], entropy


class _TokenLogprobs(torch.autograd.Function):
    @staticmethod
    def forward(
        ctx: Any, hidden: Tensor, weight: Tensor, pair_query: Tensor, pair_token: Tensor
    ) -> tuple[Tensor, Tensor]:
        expected = torch.empty_like(hidden)
        lse = hidden.new_empty(len(hidden), dtype=torch.float32)
        chosen = hidden.new_empty(len(pair_query), dtype=torch.float32)
        for rows, pairs in _chunks(len(hidden), pair_query, len(weight)):
            logits = (hidden[rows] @ weight.T).float()
            chosen[pairs] = logits[pair_query[pairs] - rows.start, pair_token[pairs]]
            probabilities = torch.softmax(logits, -1)
            lse[rows] = logits.amax(-1) - probabilities.amax(-1).log()
            torch.mm(probabilities.to(weight.dtype), weight, out=expected[rows])
        entropy = lse - (hidden.float() * expected.float()).sum(-1)
        ctx.save_for_backward(hidden, weight, pair_query, pair_token, lse, expected)
        ctx.mark_non_differentiable(entropy)
        return chosen - lse[pair_query], entropy

    @staticmethod
    def backward(ctx: Any, *grads: Tensor) -> tuple[Tensor | None, ...]:
        hidden, weight, pair_query, pair_token, lse, expected = ctx.saved_tensors
        grad = grads[0].unsqueeze(-1)
        grad_hidden = torch.zeros_like(hidden, dtype=torch.float32)
        slopes = weight[pair_token].float() - expected[pair_query].float()
        grad_hidden.index_add_(0, pair_query, grad * slopes)
        grad_weight = None
        if ctx.needs_input_grad[1]:
            grad_weight = torch.zeros_like(weight)
            per_query = lse.new_zeros(len(hidden), 1).index_add_(0, pair_query, grad)
            for rows, _ in _chunks(len(hidden), pair_query, len(weight)):
                logits = (hidden[rows] @ weight.T).float()
                slope = (logits - lse[rows, None]).exp_().mul_(-per_query[rows])
                grad_weight.addmm_(slope.to(weight.dtype).T, hidden[rows])
            chosen_hidden = (grad * hidden[pair_query].float()).to(weight.dtype)
            grad_weight.index_add_(0, pair_token, chosen_hidden)
        return grad_hidden.to(hidden.dtype), grad_weight, None, None


def _chunks(queries: int, pair_query: Tensor, vocabulary: int) -> Iterator[tuple[slice, slice]]:
    """Slices of queries whose logits fit `CHUNK_BYTES`, each with the slice of its pairs."""
    size = max(1, CHUNK_BYTES // (4 * vocabulary))
    for start in range(0, queries, size):
        end = min(start + size, queries)
        bounds = torch.tensor([start, end], device=pair_query.device)
        first, last = torch.searchsorted(pair_query, bounds).tolist()
        yield slice(start, end), slice(first, last)
