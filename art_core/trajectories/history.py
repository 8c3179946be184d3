"""A chain of completions, each prompt beginning with exactly the tokens before it."""

from __future__ import annotations

from collections.abc import Iterable
from typing import Self

from pydantic import BaseModel, ConfigDict, model_validator

from art_core.trajectories.choices import MessagesAndChoices
from art_core.trajectories.completion import Completion, Tool


class History(BaseModel):
    """One linear conversation of a rollout, to read and to train on.

    The token fields, all of the same length, are what training uses:

    - ``token_ids``: everything the engine saw and sampled, in order.
    - ``loss_mask``: True where the token was sampled and may be trained on.
    - ``logprobs``: of the sampled tokens under the policy that sampled them, else None.
    - ``policy_versions``: the step of that policy, else None.

    They are empty on a history built by hand from messages and Choices, until
    its Choices are joined with their records. Each sampled token of a rollout
    is True in the ``loss_mask`` of exactly one of its histories.
    """

    model_config = ConfigDict(extra="forbid", arbitrary_types_allowed=True)

    messages_and_choices: MessagesAndChoices = []
    tools: list[Tool] | None = None
    token_ids: list[int] = []
    loss_mask: list[bool] = []
    logprobs: list[float | None] = []
    policy_versions: list[int | None] = []
    completion_ids: list[str] = []

    @model_validator(mode="after")
    def _aligned(self) -> Self:
        lengths = {
            name: len(getattr(self, name))
            for name in ("token_ids", "loss_mask", "logprobs", "policy_versions")
        }
        if len(set(lengths.values())) > 1:
            raise ValueError(f"per-token lists differ in length: {lengths}")
        for position, trained in enumerate(self.loss_mask):
            if trained and (
                self.logprobs[position] is None or self.policy_versions[position] is None
            ):
                raise ValueError(
                    f"loss_mask is True at position {position}, which has no sampler logprob "
                    "or policy version: a trained token must be a sampled token"
                )
        return self

    @property
    def sampled_tokens(self) -> int:
        """How many tokens of this history are trained on."""
        return sum(self.loss_mask)


def build_histories(completions: Iterable[Completion]) -> list[History]:
    """Chain the completions of one rollout into histories.

    In the order in which they started, each completion continues the deepest
    chain whose tokens (last prompt and what was sampled on it) its prompt
    begins with, and starts a new history where there is none. A second
    completion on the same parent (a branch, or ``n > 1``) also starts a new
    one, with the parent's tokens as untrained context, so every sampled token
    is trained in exactly one place. Completions that may not be trained are
    left out (see `Completion.may_be_trained`).
    """
    open_chains: list[_Chain] = []
    usable = [completion for completion in completions if completion.may_be_trained]
    for completion in sorted(usable, key=lambda c: (c.started_at, c.id)):
        parents = [chain for chain in open_chains if chain.is_prefix_of(completion)]
        if parents:
            max(parents, key=lambda chain: len(chain.token_ids)).extend(completion)
        else:
            chain = _Chain()
            chain.extend(completion)
            open_chains.append(chain)
    return [chain.to_history() for chain in open_chains]


class _Chain:
    def __init__(self) -> None:
        self.token_ids: list[int] = []
        self.loss_mask: list[bool] = []
        self.logprobs: list[float | None] = []
        self.policy_versions: list[int | None] = []
        self.completions: list[Completion] = []

    def is_prefix_of(self, completion: Completion) -> bool:
        return completion.prompt_token_ids[: len(self.token_ids)] == self.token_ids

    def extend(self, completion: Completion) -> None:
        observed = completion.prompt_token_ids[len(self.token_ids) :]
        self.token_ids += observed + completion.completion_token_ids
        self.loss_mask += [False] * len(observed) + completion.trainable
        self.logprobs += [None] * len(observed) + completion.logprobs
        sampled = len(completion.completion_token_ids)
        self.policy_versions += [None] * len(observed) + [completion.policy_version] * sampled
        self.completions.append(completion)

    def to_history(self) -> History:
        last = self.completions[-1]
        return History(
            messages_and_choices=[*last.messages, last.response],
            tools=last.tools,
            token_ids=self.token_ids,
            loss_mask=self.loss_mask,
            logprobs=self.logprobs,
            policy_versions=self.policy_versions,
            completion_ids=[completion.id for completion in self.completions],
        )
