"""How a request is really sampled.

In a training rollout the policy is sampled as it is: temperature 1, no top-k,
top-p, min-p or penalties, whatever the agent asks for (an agent's
``temperature=0`` would give groups without spread). Everywhere else the agent's
own values hold.

Seeds. In a training rollout each choice's seed is derived from the rollout's
seed, the agent's own, the prompt's tokens, how often this prompt has come before
in the rollout, and the choice's place among ``n``: so the same rollout samples
the same tokens, whatever order its parallel calls arrive in. In evaluation the
agent's seed holds as it is for the first choice, and where the agent gave none,
seeds are derived in the same way. A request outside any rollout has the seed that
it asks for, or none.
"""

from __future__ import annotations

from collections.abc import Iterable
from hashlib import blake2b

from art_core.gateway.access import Caller
from art_core.gateway.fields import SamplingFields
from art_core.gateway.policy import Policy
from art_core.gateway.problems import invalid
from art_core.gateway.prompts import Prompt
from art_core.gateway.rollout import OpenRollout
from art_core.trajectories import SamplingParams


def sampling_of(
    fields: SamplingFields,
    caller: Caller,
    *,
    max_tokens: int | None,
    top_logprobs: int,
    grammar: str | None = None,
) -> SamplingParams:
    """The parameters for a request's choices, but for their seeds.

    Raises:
        Problem: a penalty that no engine here applies, or a bias on a token that isn't one.
    """
    policy, rollout = caller.policy, caller.rollout
    check_tokens("logit_bias", fields.logit_bias or (), policy)
    check_tokens("stop_token_ids", fields.stop_token_ids or (), policy)
    shared = SamplingParams(
        max_tokens=max_tokens,
        stop=fields.stop_strings,
        stop_token_ids=(*policy.chat.stop_token_ids, *(fields.stop_token_ids or ())),
        logit_bias=fields.logit_bias or {},
        top_logprobs=top_logprobs,
        grammar=grammar,
    )
    if rollout is not None and rollout.mode == "train":
        return shared
    _refuse_penalties(fields)
    return shared.model_copy(
        update={
            "temperature": 1.0 if fields.temperature is None else fields.temperature,
            "top_p": 1.0 if fields.top_p is None else fields.top_p,
            "top_k": fields.top_k if fields.top_k and fields.top_k > 0 else None,
            "min_p": fields.min_p or 0.0,
        }
    )


def check_tokens(param: str, token_ids: Iterable[int], policy: Policy) -> None:
    """Raises Problem: a token id that isn't in the policy's vocabulary."""
    size = policy.engine.info.vocab_size
    for token_id in token_ids:
        if not 0 <= token_id < size:
            raise invalid(param, f"token {token_id} isn't in the vocabulary of {size}")


def seeds(
    rollout: OpenRollout | None, asked: int | None, prompt: Prompt, *, occurrence: int, n: int
) -> list[int | None]:
    """A seed for each of ``n`` choices; ``occurrence``: how often the prompt came before."""
    if rollout is None or (rollout.mode == "eval" and asked is not None):
        if asked is None:
            return [None] * n
        return [asked, *(_derive("choice", asked, index) for index in range(1, n))]
    digest = prompt.digest().hex()
    return [
        _derive(rollout.mode, rollout.seed, asked, digest, occurrence, index) for index in range(n)
    ]


def _derive(*parts: str | int | None) -> int:
    """A seed of 63 bits."""
    return int.from_bytes(blake2b(repr(parts).encode(), digest_size=8).digest(), "big") >> 1


def _refuse_penalties(fields: SamplingFields) -> None:
    off = {"frequency_penalty": 0, "presence_penalty": 0, "repetition_penalty": 1}
    for name, value in off.items():
        asked = getattr(fields, name)
        if asked is not None and asked != value:
            raise invalid(
                name,
                f"{asked} can't be honoured: recorded logprobs would not be the policy's. "
                f"Leave it out or send {value} (training rollouts sample without it anyway)",
                "unsupported_parameter",
            )
