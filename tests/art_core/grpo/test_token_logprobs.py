"""Log-probabilities, entropies and their gradients against log_softmax over whole logits."""
# pyright: reportUnknownMemberType=false

from __future__ import annotations

import pytest
import torch
from torch import Tensor

from art_core.grpo import token_logprobs as module
from art_core.grpo.token_logprobs import token_logprobs, token_logprobs_of

QUERIES, VOCABULARY, WIDTH = 9, 53, 7
PAIR_QUERY = torch.tensor([0, 1, 1, 3, 4, 4, 4, 8])
PAIR_TOKEN = torch.tensor([5, 5, 52, 0, 1, 2, 3, 20])


def leaves() -> tuple[Tensor, Tensor]:
    generator = torch.Generator().manual_seed(0)
    hidden = torch.randn(QUERIES, WIDTH, generator=generator)
    weight = torch.randn(VOCABULARY, WIDTH, generator=generator)
    return hidden.requires_grad_(), weight.requires_grad_()


def reference(hidden: Tensor, weight: Tensor) -> tuple[Tensor, Tensor]:
    table = torch.log_softmax(hidden.double() @ weight.double().T, -1)
    return table[PAIR_QUERY, PAIR_TOKEN], -(table.exp() * table).sum(-1)


@pytest.mark.parametrize("queries_at_a_time", [1, 2, 100])
def test_values_and_gradients(queries_at_a_time: int, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(module, "CHUNK_BYTES", 4 * VOCABULARY * queries_at_a_time)
    (hidden, weight), (h, w) = leaves(), leaves()
    logprobs, entropy = token_logprobs(hidden, weight, PAIR_QUERY, PAIR_TOKEN)
    expected, expected_entropy = reference(h, w)
    torch.testing.assert_close(logprobs.double(), expected, rtol=1e-5, atol=1e-5)
    torch.testing.assert_close(entropy.double(), expected_entropy, rtol=1e-5, atol=1e-5)
    slopes = torch.linspace(-2, 1, len(PAIR_QUERY))
    ours = torch.autograd.grad((logprobs * slopes).sum(), [hidden, weight])
    theirs = torch.autograd.grad((expected * slopes).sum(), [h, w])
    for a, b in zip(ours, theirs, strict=True):
        torch.testing.assert_close(a, b, rtol=1e-5, atol=1e-5)


def test_the_entropy_carries_no_gradient() -> None:
    _, entropy = token_logprobs(*leaves(), PAIR_QUERY, PAIR_TOKEN)
    assert not entropy.requires_grad


def test_from_logits() -> None:
    hidden, weight = leaves()
    logprobs, entropy = token_logprobs_of(hidden @ weight.T, PAIR_QUERY, PAIR_TOKEN)
    expected, expected_entropy = reference(hidden, weight)
    torch.testing.assert_close(logprobs.double(), expected, rtol=1e-5, atol=1e-5)
    torch.testing.assert_close(entropy.double(), expected_entropy, rtol=1e-5, atol=1e-5)
