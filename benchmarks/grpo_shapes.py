"""Batches of rollouts to time a GRPO step on: random tokens in the shapes that agents make."""

from __future__ import annotations

import random
from collections.abc import Callable

from art_core.trajectories import History, Trajectory, TrajectoryGroup

VOCABULARY = 49_152
LOGPROB = -10.0
"""Recorded for every sampled token: about what the model gives a random one."""


class _Tokens:
    def __init__(self, seed: int) -> None:
        self._random = random.Random(seed)

    def __call__(self, count: int) -> list[int]:
        return [self._random.randrange(VOCABULARY) for _ in range(count)]


def _history(context: list[int], turns: int, sampled: int, observed: int, new: _Tokens) -> History:
    """``turns`` of sampled tokens, each followed by observed ones, behind ``context``."""
    tokens, mask = list(context), [False] * len(context)
    for _ in range(turns):
        tokens += new(sampled) + new(observed)
        mask += [True] * sampled + [False] * observed
    return History(
        token_ids=tokens,
        loss_mask=mask,
        logprobs=[LOGPROB if trained else None for trained in mask],
        policy_versions=[0 if trained else None for trained in mask],
    )


def _group(rollouts: int, histories: Callable[[int], list[History]]) -> TrajectoryGroup:
    made: list[Trajectory] = [
        Trajectory(reward=float(i % 3), histories=histories(i)) for i in range(rollouts)
    ]
    return TrajectoryGroup(made)


def turns(rollouts: int = 8, count: int = 4) -> TrajectoryGroup:
    """Turns of 40 sampled and 60 observed tokens behind a shared prompt of 600."""
    new = _Tokens(0)
    prompt = new(600)
    return _group(rollouts, lambda _: [_history(prompt, count, 40, 60, new)])


def single_turn() -> TrajectoryGroup:
    """One turn of 200 sampled tokens behind a shared prompt of 600."""
    new = _Tokens(0)
    prompt = new(600)
    return _group(8, lambda _: [_history(prompt, 1, 200, 0, new)])


def long_turns() -> TrajectoryGroup:
    """16 rollouts of 8 turns."""
    return turns(rollouts=16, count=8)


def sub_agents() -> TrajectoryGroup:
    """A parent agent of 3 turns and two sub-agents of 2, each with a shared prompt of its own."""
    new = _Tokens(0)
    prompt, sub_prompt = new(600), new(300)

    def histories(_: int) -> list[History]:
        parent = _history(prompt, 3, 40, 60, new)
        return [parent, *(_history(sub_prompt + new(30), 2, 40, 60, new) for _ in range(2))]

    return _group(8, histories)


SHAPES: dict[str, Callable[[], TrajectoryGroup]] = {
    "turns": turns,
    "single_turn": single_turn,
    "long_turns": long_turns,
    "sub_agents": sub_agents,
}


def tree_size(group: TrajectoryGroup) -> tuple[int, int]:
    """Tokens of the group's tree (none after the last sampled one of a history), and places
    in it at which a token is trained."""
    from art_core.grpo.rows import collect
    from art_core.grpo.tree import pack, sort_rows

    packed = pack(sort_rows(collect([group], "group_std").rows))
    return len(packed.tree.token_ids), len(packed.queries)
