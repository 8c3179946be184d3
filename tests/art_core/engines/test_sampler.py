# pyright: reportUnknownMemberType=false, reportUnknownVariableType=false
# pyright: reportUnknownArgumentType=false
"""Tokens from logits: the distribution, its restrictions, the recorded log-probabilities."""

from __future__ import annotations

import math
from typing import Any

import pytest
import torch

from art_core.engines.embedded.sampler import Draw, sample
from art_core.trajectories.sampling import SamplingParams

LOGITS = torch.tensor([2.0, 1.0, 0.5, 0.0, -1.0, -3.0])


def frequencies(draws: int, logits: torch.Tensor = LOGITS, **sampling: Any) -> torch.Tensor:
    params = SamplingParams(**sampling)
    rows = logits.repeat(draws, 1)
    tokens = [s.token for s in sample(rows, [Draw(params, 7, i) for i in range(draws)])]
    return torch.bincount(torch.tensor(tokens), minlength=len(logits)) / draws


def close(actual: torch.Tensor, expected: torch.Tensor, draws: int) -> bool:
    """Within five standard deviations everywhere."""
    return bool(((actual - expected).abs() <= 5 * (expected * (1 - expected) / draws).sqrt()).all())


def test_tokens_follow_the_tempered_biased_softmax() -> None:
    logits = LOGITS.clone()
    logits[3] += 1.5
    expected = torch.softmax(logits / 0.7, -1)
    actual = frequencies(20_000, temperature=0.7, logit_bias={3: 1.5})
    assert close(actual, expected, 20_000)


@pytest.mark.parametrize(
    ("sampling", "kept"),
    [
        ({"top_k": 2}, [0, 1]),
        ({"top_k": 100}, [0, 1, 2, 3, 4, 5]),
        ({"top_p": 0.5}, [0]),
        ({"top_p": 0.75}, [0, 1]),
        ({"min_p": 0.2}, [0, 1, 2]),
        ({"top_k": 3, "top_p": 0.7}, [0, 1]),
    ],
)
def test_restrictions_keep_exactly_what_they_should(
    sampling: dict[str, Any], kept: list[int]
) -> None:
    probs = torch.softmax(LOGITS, -1)
    expected = torch.zeros_like(probs)
    expected[kept] = probs[kept] / probs[kept].sum()
    actual = frequencies(8_000, **sampling)
    assert close(actual, expected, 8_000)
    assert not actual[[i for i in range(6) if i not in kept]].any()


def test_the_recorded_logprob_is_before_restrictions_and_after_temperature_and_bias() -> None:
    params = SamplingParams(temperature=0.5, top_k=1, logit_bias={2: 4.0}, top_logprobs=3)
    [drawn] = sample(LOGITS[None].clone(), [Draw(params, 1, 0)])
    biased = LOGITS.clone()
    biased[2] += 4.0
    policy = torch.log_softmax(biased / 0.5, -1)
    assert drawn.token == 2
    assert drawn.logprob == pytest.approx(policy[2].item(), abs=1e-6)
    values, tokens = policy.topk(3)
    assert drawn.top_logprobs == pytest.approx(
        dict(zip(tokens.tolist(), values.tolist(), strict=True))
    )


def test_temperature_zero_takes_the_likeliest_and_records_it_at_temperature_one() -> None:
    [drawn] = sample(LOGITS[None].clone(), [Draw(SamplingParams(temperature=0), 1, 0)])
    assert drawn.token == 0
    assert drawn.logprob == pytest.approx(torch.log_softmax(LOGITS, -1)[0].item(), abs=1e-6)


def test_a_draw_depends_on_seed_and_position_and_not_on_its_company() -> None:
    generator = torch.Generator().manual_seed(0)
    logits = torch.randn(5, 5000, generator=generator)
    params = SamplingParams()
    alone = [sample(logits[i : i + 1].clone(), [Draw(params, 11, i)])[0] for i in range(5)]
    together = sample(logits.clone(), [Draw(params, 11, i) for i in range(5)])
    assert [a.token for a in alone] == [t.token for t in together]
    others = {sample(logits[:1].clone(), [Draw(params, s, 0)])[0].token for s in range(20)}
    assert len(others) > 10


def test_a_row_of_nan_fails_alone() -> None:
    rows = torch.stack([LOGITS, torch.full_like(LOGITS, math.nan), LOGITS])
    rows[1, 0] = 1.0
    draws = [Draw(SamplingParams(), 3, i) for i in range(3)]
    first, broken, last = sample(rows, draws)
    assert broken.token is None
    assert [first.token, last.token] == [
        s.token for s in sample(LOGITS.repeat(2, 1), [draws[0], draws[2]])
    ]


def test_a_large_vocabulary_reaches_its_last_token() -> None:
    logits = torch.full((1, 50_001), -30.0)
    logits[0, -1] = 10.0
    assert sample(logits, [Draw(SamplingParams(), 0, 0)])[0].token == 50_000


@pytest.mark.parametrize("temperature", [1e-30, 1e-6, 100.0])
def test_no_temperature_overflows(temperature: float) -> None:
    logits = torch.tensor([[900.0, 899.0, -900.0]])
    [drawn] = sample(logits, [Draw(SamplingParams(temperature=temperature), 0, 0)])
    assert drawn.token is not None
    assert math.isfinite(drawn.logprob)
