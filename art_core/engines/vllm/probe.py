"""Whether a server's logprobs are those of the policy: tried before it is used."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from typing import Any

from art_core.engines.vllm.wire import UNRESTRICTED, read_scores
from art_core.errors import EngineStartError

FLAG = "--logprobs-mode processed_logprobs"
_SURE = -0.1
"""A token likelier than this hardly changes with temperature: it shows nothing."""
_TOKENS = 16
_ROUNDING = 0.15
"""Mean difference between sampling and scoring that bfloat16 explains; a server that
samples from 20 tokens only is off by more."""

Complete = Callable[[Mapping[str, Any]], dict[str, Any]]


def check_logprobs(complete: Complete, model: str, prompts: Sequence[Sequence[int]]) -> None:
    """Refuse a server whose logprobs leave temperature or bias out, or are renormalised.

    Args:
        complete: sends a body to ``/v1/completions``.
        prompts: token ids; the first after which the model isn't sure is used.

    Raises:
        EngineStartError: they aren't what is recorded as the policy's; names the flag.
    """
    prompt = next((p for p in prompts if _likeliest(complete, model, p) < _SURE), None)
    if prompt is None:
        raise EngineStartError(
            "the model is sure of what follows each of the probe's prompts: its server's "
            "logprobs can't be checked",
            "Is that a language model? Otherwise give other prompts.",
        )
    plain = _likeliest(complete, model, prompt)
    if abs(_likeliest(complete, model, prompt, temperature=0.5) - plain) < 1e-3:
        raise _refused("leaves temperature out of its logprobs")
    token = prompt[-1]
    biased = _first(complete, model, prompt, logit_bias={str(token): 100.0})
    if abs(biased) > 1e-2:
        raise _refused(f"gives {biased:.3g} as the logprob of a token with a bias of 100, not 0")
    gap = _sampled_against_scored(complete, model, prompt)
    if gap > _ROUNDING:
        raise EngineStartError(
            f"the vLLM server's logprobs of sampled tokens are {gap:.2f} above those of the whole "
            "vocabulary: it restricts what is drawn and renormalises",
            "Start it with --generation-config vllm, without logits processors of your own.",
        )


def _sampled_against_scored(complete: Complete, model: str, prompt: Sequence[int]) -> float:
    """By how much sampled tokens' logprobs are larger than the same as a prompt's, in the mean."""
    body = _body(model, prompt, max_tokens=_TOKENS, ignore_eos=True, seed=1)
    choice = _choice(complete(body))
    tokens, sampled = choice["token_ids"], choice["logprobs"]["token_logprobs"]
    whole = [*prompt, *tokens]
    answer = complete(_body(model, whole, prompt_logprobs=0))
    scored, _ = read_scores(answer, whole, len(prompt), 0)
    return sum(a - b for a, b in zip(sampled, scored, strict=True)) / len(scored)


def _likeliest(
    complete: Complete, model: str, prompt: Sequence[int], temperature: float = 1.0
) -> float:
    choice = _choice(complete(_body(model, prompt, temperature=temperature, logprobs=5)))
    values = list(choice["logprobs"]["top_logprobs"][0].values())
    if any(value > 1e-3 for value in values):
        raise _refused("gives logits instead of logprobs")
    return max(values)


def _first(complete: Complete, model: str, prompt: Sequence[int], **fields: Any) -> float:
    return float(_choice(complete(_body(model, prompt, **fields)))["logprobs"]["token_logprobs"][0])


def _body(model: str, prompt: Sequence[int], **fields: Any) -> dict[str, Any]:
    return {
        "model": model,
        "prompt": list(prompt),
        "max_tokens": 1,
        **UNRESTRICTED,
        "temperature": 1.0,
        "logprobs": 0,
        "return_token_ids": True,
        "return_tokens_as_token_ids": True,
        **fields,
    }


def _choice(answer: Mapping[str, Any]) -> dict[str, Any]:
    try:
        choice = answer["choices"][0]
        _ = choice["logprobs"]["token_logprobs"], choice["token_ids"][0]
    except (KeyError, IndexError, TypeError) as error:
        raise EngineStartError(
            f"the server answers without {error}", "It must be a vLLM of 0.19 or newer."
        ) from error
    return choice


def _refused(what: str) -> EngineStartError:
    return EngineStartError(
        f"the vLLM server {what}, so that training on them would be wrong", f"Start it with {FLAG}."
    )
