"""A chain of completions, each prompt beginning with exactly the tokens before it."""

from __future__ import annotations

from bisect import bisect_right, insort
from collections.abc import Iterable, Iterator
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
    sampled_elsewhere: int = 0
    """Tokens sampled in ``completion_ids`` where a server keeps their records: the token
    fields are then empty here."""

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
        return sum(self.loss_mask) or self.sampled_elsewhere


def build_histories(completions: Iterable[Completion]) -> list[History]:
    """Chain the completions of one rollout into histories.

    From the shortest prompt to the longest, each completion continues the
    deepest chain whose tokens (last prompt and what was sampled on it) its
    prompt begins with, and starts a new history where there is none. A second
    completion on the same parent (a branch, or ``n > 1``) also starts a new
    one, with the parent's tokens as untrained context, so every sampled token
    is trained in exactly one place. Completions that may not be trained are
    left out (see `Completion.may_be_trained`), and one that is given twice
    counts once.

    The result depends on the tokens alone, never on clocks or on the order in
    which parallel calls came back; the histories are returned in the order in
    which they started.
    """
    usable = {c.id: c for c in completions if c.may_be_trained}
    open_chains = _OpenChains()
    for completion in sorted(usable.values(), key=_shortest_prompt_first):
        chain = open_chains.take_deepest(completion.prompt_token_ids) or _Chain()
        chain.extend(completion)
        open_chains.add(chain)
    return [chain.to_history() for chain in sorted(open_chains, key=_Chain.started)]


def _shortest_prompt_first(completion: Completion) -> tuple[int, list[int], list[int], float, str]:
    prompt = completion.prompt_token_ids
    sampled = completion.completion_token_ids
    return len(prompt), prompt, sampled, completion.started_at, completion.id


class _Chain:
    def __init__(self) -> None:
        self.token_ids: list[int] = []
        self.loss_mask: list[bool] = []
        self.logprobs: list[float | None] = []
        self.policy_versions: list[int | None] = []
        self.completions: list[Completion] = []

    def extend(self, completion: Completion) -> None:
        observed = completion.prompt_token_ids[len(self.token_ids) :]
        self.token_ids += observed + completion.completion_token_ids
        self.loss_mask += [False] * len(observed) + completion.trainable
        self.logprobs += [None] * len(observed) + completion.logprobs
        sampled = len(completion.completion_token_ids)
        self.policy_versions += [None] * len(observed) + [completion.policy_version] * sampled
        self.completions.append(completion)

    def started(self) -> tuple[float, str]:
        first = self.completions[0]
        return first.started_at, first.id

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


class _OpenChains:
    """Chains found by their tokens.

    Kept by length and last few tokens, so that a prompt is compared in full only
    with the chains that end where it has the same tokens.
    """

    def __init__(self) -> None:
        self._lengths: list[int] = []
        """Ascending, without duplicates."""
        self._by_end: dict[int, dict[tuple[int, ...], list[_Chain]]] = {}

    def __iter__(self) -> Iterator[_Chain]:
        for by_tail in self._by_end.values():
            for chains in by_tail.values():
                yield from chains

    def add(self, chain: _Chain) -> None:
        length = len(chain.token_ids)
        if length not in self._by_end:
            insort(self._lengths, length)
            self._by_end[length] = {}
        self._by_end[length].setdefault(_tail(chain.token_ids, length), []).append(chain)

    def take_deepest(self, prompt: list[int]) -> _Chain | None:
        """Remove and return the longest chain that ``prompt`` begins with, the oldest of equals."""
        for index in range(bisect_right(self._lengths, len(prompt)) - 1, -1, -1):
            length = self._lengths[index]
            chains = self._by_end[length].get(_tail(prompt, length), [])
            for chain in chains:
                if chain.token_ids == prompt[:length]:
                    chains.remove(chain)
                    return chain
        return None


def _tail(token_ids: list[int], length: int) -> tuple[int, ...]:
    """The last tokens of the first ``length``."""
    return tuple(token_ids[max(length - 4, 0) : length])
