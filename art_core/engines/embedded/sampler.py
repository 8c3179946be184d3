# pyright: reportUnknownMemberType=false, reportUnknownVariableType=false
# pyright: reportUnknownArgumentType=false
"""Logits to tokens, exactly as `SamplingParams` documents it."""

from __future__ import annotations

import hashlib
from collections.abc import Sequence
from dataclasses import dataclass, field

import torch
from torch import Tensor

from art_core.trajectories.sampling import SamplingParams

_BINS = 256
_UNIFORM_BITS = 53


@dataclass(frozen=True, slots=True)
class Draw:
    """What to draw one token from: a row of logits, how, and with which randomness."""

    sampling: SamplingParams
    seed: int
    position: int
    """Index of the token in its completion."""
    legal: Tensor | None = None
    """[vocabulary], True where a grammar allows the token; None: everywhere."""


@dataclass(frozen=True, slots=True)
class Sampled:
    """One drawn token. ``token`` is None if the logits weren't finite."""

    token: int | None
    logprob: float = 0.0
    forced: bool = False
    """A grammar left no other choice."""
    top_logprobs: dict[int, float] = field(default_factory=dict[int, float])


def sample(logits: Tensor, draws: Sequence[Draw]) -> list[Sampled]:
    """Draw one token per row.

    Args:
        logits: [rows, vocabulary], any float type; may be overwritten.
        draws: one per row.

    Rows don't influence each other. A row's token depends on its logits, seed and
    position alone: the uniform number behind it is a hash of seed and position.
    """
    logprobs = _policy(logits.float(), draws)
    finite = torch.isfinite(logprobs.amax(-1))  # NaN anywhere in a row spreads to all of it
    if not finite.all():
        logprobs[~finite] = 0
    allowed, forced = _legal(logprobs, draws)
    greedy = [i for i, draw in enumerate(draws) if draw.sampling.temperature == 0]
    uniforms = torch.tensor([_uniform(d.seed, d.position) for d in draws], dtype=torch.float64)
    tokens = _inverse_cdf(_restrict(allowed, draws), uniforms.to(logits.device))
    if greedy:
        tokens[greedy] = allowed[greedy].argmax(-1)
    chosen = logprobs.gather(1, tokens[:, None]).squeeze(1)
    tops = _top_logprobs(logprobs, draws)
    rows = zip(finite.tolist(), tokens.tolist(), chosen.tolist(), forced, tops, strict=True)
    return [Sampled(t, lp, f, top) if ok else Sampled(None) for ok, t, lp, f, top in rows]


def _policy(logits: Tensor, draws: Sequence[Draw]) -> Tensor:
    """Log-softmax of biased, tempered logits, [rows, vocabulary] in float32.

    At temperature 0 the log-probabilities are those of temperature 1: a greedy
    token's own would be 0 and say nothing.
    """
    for row, draw in enumerate(draws):
        if bias := draw.sampling.logit_bias:
            index = torch.tensor(list(bias), device=logits.device)
            logits[row, index] += torch.tensor(list(bias.values()), device=logits.device)
    temperatures = [draw.sampling.temperature or 1.0 for draw in draws]
    if any(t != 1.0 for t in temperatures):
        # Relative to the largest, so that no temperature overflows.
        shifted = logits - logits.amax(-1, keepdim=True)
        logits = shifted / torch.tensor(temperatures, device=logits.device)[:, None]
    return torch.log_softmax(logits, dim=-1)


def _legal(logprobs: Tensor, draws: Sequence[Draw]) -> tuple[Tensor, list[bool]]:
    """Log-probabilities among what grammars allow, and where they leave one token only.

    What is recorded stays the policy's own, before the grammar.
    """
    constrained = [row for row, draw in enumerate(draws) if draw.legal is not None]
    forced = [False] * len(draws)
    if not constrained:
        return logprobs, forced
    allowed = logprobs.clone()
    for row in constrained:
        legal = draws[row].legal
        if legal is not None:
            allowed[row].masked_fill_(~legal, -torch.inf)
            forced[row] = int(legal.sum()) == 1
    allowed[constrained] = torch.log_softmax(allowed[constrained], dim=-1)
    return allowed, forced


def _restrict(logprobs: Tensor, draws: Sequence[Draw]) -> Tensor:
    """Unnormalised probabilities with what top-k, top-p and min-p exclude set to 0."""
    probs = logprobs.exp()
    for row, draw in enumerate(draws):
        sampling = draw.sampling
        if sampling.top_k is not None or sampling.top_p < 1:
            probs[row] = _top_k_top_p(probs[row], sampling)
        if sampling.min_p > 0:
            probs[row].masked_fill_(probs[row] < sampling.min_p * probs[row].max(), 0)
    return probs


def _top_k_top_p(probs: Tensor, sampling: SamplingParams) -> Tensor:
    """Keep the k likeliest tokens, and of these the fewest that reach p of their mass."""
    k = min(sampling.top_k or len(probs), len(probs))
    values, tokens = probs.sort(descending=True, stable=True)
    values, tokens = values[:k].double(), tokens[:k]
    if sampling.top_p < 1:
        before = values.cumsum(0) - values
        values = values.masked_fill(before >= sampling.top_p * values.sum(), 0)
    return torch.zeros_like(probs).index_copy_(0, tokens, values.to(probs.dtype))


def _inverse_cdf(weights: Tensor, uniforms: Tensor) -> Tensor:
    """The token at which the cumulative weight passes ``uniforms`` of the total.

    Two levels (bins of 256, then inside the bin) in float64: one pass over the
    weights, and no rounding that a float32 running sum over a vocabulary has.

    Args:
        weights: [rows, vocabulary], not negative, not all 0.
        uniforms: [rows], in [0, 1).
    """
    rows, size = weights.shape
    padded = torch.nn.functional.pad(weights, (0, -size % _BINS))
    bins = padded.view(rows, -1, _BINS)
    outer = bins.sum(-1, dtype=torch.float64).cumsum(-1)
    target = uniforms * outer[:, -1]
    bin_index = _first_above(outer, target)
    reached = torch.where(bin_index > 0, _pick(outer, (bin_index - 1).clamp(min=0)), 0.0)
    inside = bins[torch.arange(rows, device=weights.device), bin_index].double().cumsum(-1)
    return bin_index * _BINS + _first_above(inside, target - reached)


def _first_above(cumulative: Tensor, target: Tensor) -> Tensor:
    """Index of the first entry > target; rounding may leave none: then of the last step up."""
    index = torch.searchsorted(cumulative, target[:, None].contiguous(), right=True).squeeze(1)
    last = torch.searchsorted(cumulative, cumulative[:, -1:].contiguous()).squeeze(1)
    return torch.minimum(index, last)


def _pick(values: Tensor, index: Tensor) -> Tensor:
    return values.gather(1, index[:, None]).squeeze(1)


def _top_logprobs(logprobs: Tensor, draws: Sequence[Draw]) -> list[dict[int, float]]:
    most = max((draw.sampling.top_logprobs for draw in draws), default=0)
    if most == 0:
        return [{} for _ in draws]
    values, tokens = (t.tolist() for t in logprobs.topk(min(most, logprobs.shape[1])))
    counts = [draw.sampling.top_logprobs for draw in draws]
    return [
        dict(zip(t[:n], v[:n], strict=True)) for t, v, n in zip(tokens, values, counts, strict=True)
    ]


def _uniform(seed: int, position: int) -> float:
    """A number in [0, 1) that looks random: a hash of its arguments."""
    digest = hashlib.blake2b(f"{seed}:{position}".encode(), digest_size=8).digest()
    return (int.from_bytes(digest, "big") >> (64 - _UNIFORM_BITS)) / 2**_UNIFORM_BITS
