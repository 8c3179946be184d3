"""Requests and answers of vLLM's ``/v1/completions``, in token ids."""

from __future__ import annotations

import heapq
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from art_core.errors import EngineError
from art_core.trajectories.sampling import SamplingParams

UNRESTRICTED: dict[str, float] = {
    "top_p": 1.0,
    "top_k": 0,
    "min_p": 0.0,
    "repetition_penalty": 1.0,
    "presence_penalty": 0.0,
    "frequency_penalty": 0.0,
}
"""All said in every request, so that no default of the server's applies."""
_PREFIX = "token_id:"


@dataclass(frozen=True, slots=True, kw_only=True)
class Piece:
    """Some more sampled tokens, as the server said it."""

    token_ids: list[int]
    logprobs: list[float]
    top_logprobs: list[dict[int, float]]
    finish_reason: str | None


def is_restricted(sampling: SamplingParams) -> bool:
    """Whether some tokens are ruled out, so that vLLM's logprobs are of what is left."""
    if sampling.grammar is not None:
        return True
    return sampling.temperature > 0 and (
        sampling.top_p < 1 or sampling.top_k is not None or sampling.min_p > 0
    )


def can_be_rescored(sampling: SamplingParams) -> bool:
    """Whether the logprobs of a prompt, which vLLM gives at temperature 1, are its own."""
    return sampling.temperature in (0, 1) and not sampling.logit_bias


def completion_body(
    model: str, tokens: Sequence[int], sampling: SamplingParams, *, max_tokens: int, done: int
) -> dict[str, Any]:
    """Sample up to ``max_tokens`` behind ``tokens``, ``done`` of which were sampled before."""
    body: dict[str, Any] = {
        **UNRESTRICTED,
        "model": model,
        "prompt": list(tokens),
        "max_tokens": max_tokens,
        "stream": True,
        "temperature": sampling.temperature,
        "ignore_eos": True,
        "stop_token_ids": list(sampling.stop_token_ids),
        "logprobs": sampling.top_logprobs,
        "return_token_ids": True,
        "return_tokens_as_token_ids": True,
        "skip_special_tokens": False,
    }
    if sampling.temperature > 0:
        top_k = sampling.top_k or 0
        body |= {"top_p": sampling.top_p, "top_k": top_k, "min_p": sampling.min_p}
    if sampling.seed is not None:
        # Behind an interruption another seed: the same would draw the same numbers again.
        body["seed"] = (sampling.seed + done * 0x9E3779B97F4A7C15) % 2**63
    if sampling.logit_bias:
        body["logit_bias"] = {str(token): bias for token, bias in sampling.logit_bias.items()}
    if sampling.grammar is not None:
        body["structured_outputs"] = {"grammar": sampling.grammar}
    return body


def scoring_body(model: str, tokens: Sequence[int], top: int) -> dict[str, Any]:
    """Ask for the logprobs of ``tokens`` themselves."""
    return {
        "model": model,
        "prompt": list(tokens),
        "max_tokens": 1,
        **UNRESTRICTED,
        "temperature": 0.0,
        "prompt_logprobs": top,
        "return_token_ids": True,
    }


def read_piece(event: Mapping[str, Any], top: int) -> Piece:
    """One streamed event.

    Raises:
        EngineError: it has no token ids or logprobs: the server is no vLLM that we know.
    """
    try:
        choice = event["choices"][0]
        token_ids = [int(token) for token in choice["token_ids"] or ()]
        said = choice["logprobs"]
        logprobs = [] if said is None else [float(value) for value in said["token_logprobs"]]
        tops = (
            [] if said is None or not top else [_tops(each, top) for each in said["top_logprobs"]]
        )
    except (KeyError, IndexError, TypeError, ValueError) as error:
        raise _not_vllm(f"an answer without {error}") from error
    if len(logprobs) != len(token_ids) or (top and len(tops) != len(token_ids)):
        raise _not_vllm(f"{len(token_ids)} tokens with {len(logprobs)} logprobs")
    return Piece(
        token_ids=token_ids,
        logprobs=logprobs,
        top_logprobs=tops,
        finish_reason=choice.get("finish_reason"),
    )


def read_scores(
    answer: Mapping[str, Any], tokens: Sequence[int], first: int, top: int
) -> tuple[list[float], list[dict[int, float]]]:
    """The logprobs of ``tokens[first:]``, and the likeliest at each place.

    Raises:
        EngineError: they aren't in the answer.
    """
    try:
        places = answer["choices"][0]["prompt_logprobs"][first:]
        table = [
            {int(token): float(entry["logprob"]) for token, entry in place.items()}
            for place in places
        ]
        own = [place[token] for place, token in zip(table, tokens[first:], strict=True)]
    except (KeyError, IndexError, TypeError, ValueError) as error:
        raise _not_vllm(f"prompt_logprobs without {error}") from error
    return own, [_best(place, top) for place in table] if top else []


def _tops(said: Mapping[str, float], top: int) -> dict[int, float]:
    return _best({int(name.removeprefix(_PREFIX)): p for name, p in said.items()}, top)


def _best(logprobs: Mapping[int, float], top: int) -> dict[int, float]:
    """vLLM adds the sampled token where it isn't among the likeliest."""
    return dict(heapq.nlargest(top, logprobs.items(), key=lambda item: item[1]))


def _not_vllm(what: str) -> EngineError:
    return EngineError(f"the inference server gave {what}", "It must be a vLLM of 0.19 or newer.")
