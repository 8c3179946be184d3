"""Completions become histories: each sampled token trained once, under its own prompt."""

from __future__ import annotations

import random
import time
from collections import Counter
from collections.abc import Iterable

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from pydantic import ValidationError

from art_core.trajectories import (
    Completion,
    CompletionStatus,
    History,
    SamplingParams,
    build_histories,
)

Triple = tuple[tuple[int, ...], int, float, int]
"""Everything before a trained token, the token, its logprob and its policy version."""


def completion(
    name: str,
    prompt: list[int],
    sampled: list[int],
    *,
    started: float = 0.0,
    status: CompletionStatus = CompletionStatus.COMPLETED,
    rollout: str | None = "rollout",
    trainable: list[bool] | None = None,
    version: int = 0,
) -> Completion:
    rng = random.Random(name)
    return Completion(
        id=name,
        request_id=name,
        rollout_id=rollout,
        policy="bot",
        policy_version=version,
        messages=[{"role": "user", "content": f"to {name}"}],
        sampling=SamplingParams(),
        response={"role": "assistant", "content": f"from {name}"},
        prompt_token_ids=prompt,
        completion_token_ids=sampled,
        logprobs=[-rng.random() for _ in sampled],
        trainable=trainable or [True] * len(sampled),
        finish_reason="stop",
        status=status,
        started_at=started,
        finished_at=started + 1,
    )


def sampled_triples(completions: Iterable[Completion]) -> Counter[Triple]:
    triples: Counter[Triple] = Counter()
    for each in completions:
        tokens = each.prompt_token_ids + each.completion_token_ids
        for index, trained in enumerate(each.trainable):
            position = len(each.prompt_token_ids) + index
            if trained:
                before = tuple(tokens[:position])
                triples[before, tokens[position], each.logprobs[index], each.policy_version] += 1
    return triples


def trained_triples(histories: Iterable[History]) -> Counter[Triple]:
    triples: Counter[Triple] = Counter()
    for history in histories:
        for position, trained in enumerate(history.loss_mask):
            logprob = history.logprobs[position]
            version = history.policy_versions[position]
            if trained:
                assert logprob is not None
                assert version is not None
                before = tuple(history.token_ids[:position])
                triples[before, history.token_ids[position], logprob, version] += 1
    return triples


def test_turns_chain_into_one_history() -> None:
    first = completion("a", [1, 2], [3], started=0, version=4)
    second = completion("b", [1, 2, 3, 9, 9], [5, 6], started=1, version=4)
    (history,) = build_histories([first, second])
    assert history.token_ids == [1, 2, 3, 9, 9, 5, 6]
    assert history.loss_mask == [False, False, True, False, False, True, True]
    assert history.policy_versions == [None, None, 4, None, None, 4, 4]
    assert history.logprobs[2] == first.logprobs[0]
    assert history.completion_ids == ["a", "b"]
    assert history.messages_and_choices == [*second.messages, second.response]
    assert history.sampled_tokens == 3


def test_interleaved_sub_agents_are_two_histories() -> None:
    calls = [
        completion("a1", [1], [10], started=0),
        completion("b1", [2], [20], started=1),
        completion("a2", [1, 10, 5], [11], started=2),
        completion("b2", [2, 20, 5], [21], started=3),
    ]
    assert [h.completion_ids for h in build_histories(calls)] == [["a1", "a2"], ["b1", "b2"]]


def test_a_branch_starts_a_history_whose_parent_is_context() -> None:
    calls = [
        completion("parent", [1], [2], started=0),
        completion("left", [1, 2, 3], [4], started=1),
        completion("right", [1, 2, 8, 8], [9], started=2),
    ]
    left, right = build_histories(calls)
    assert (left.completion_ids, right.completion_ids) == (["parent", "left"], ["right"])
    assert right.loss_mask == [False, False, False, False, True]


def test_equal_prompts_sampled_twice_keep_both_answers() -> None:
    calls = [
        completion("one", [1], [2], started=0),
        completion("two", [1], [2], started=1),
        completion("one-on", [1, 2, 3], [4], started=2),
        completion("two-on", [1, 2, 3], [5], started=3),
    ]
    histories = build_histories(calls)
    assert [h.completion_ids for h in histories] == [["one", "one-on"], ["two", "two-on"]]
    assert trained_triples(histories) == sampled_triples(calls)


def test_the_deepest_open_prefix_is_continued() -> None:
    calls = [
        completion("short", [1], [2], started=0),
        completion("long", [1, 2, 3], [4], started=1),
        completion("other", [1], [2, 3], started=2),
        completion("next", [1, 2, 3, 4, 5], [6], started=3),
    ]
    histories = build_histories(calls)
    assert [h.completion_ids for h in histories] == [["short"], ["other", "long", "next"]]


@pytest.mark.parametrize("order", range(6))
def test_neither_clocks_nor_the_order_of_arrival_matter(order: int) -> None:
    calls = [
        completion("a", [1], [2], started=3),
        completion("b", [1, 2, 3], [4], started=2),
        completion("c", [1, 2, 3, 4, 5], [6], started=1),
    ]
    random.Random(order).shuffle(calls)
    (history,) = build_histories(calls)
    assert history.completion_ids == ["a", "b", "c"]


def test_a_rewritten_past_starts_a_new_history() -> None:
    calls = [
        completion("before", [1, 2], [3, 4]),
        completion("after", [1, 2, 4, 5], [6], started=1),
    ]
    assert [h.completion_ids for h in build_histories(calls)] == [["before"], ["after"]]


@pytest.mark.parametrize(
    ("status", "rollout"),
    [
        (CompletionStatus.ABANDONED, "rollout"),
        (CompletionStatus.FAILED, "rollout"),
        (CompletionStatus.COMPLETED, None),
    ],
)
def test_what_may_not_be_trained_is_left_out(status: CompletionStatus, rollout: str | None) -> None:
    bad = completion("bad", [1], [2], status=status, rollout=rollout)
    good = completion("good", [1, 2, 3], [4], started=1)
    (history,) = build_histories([bad, good])
    assert history.completion_ids == ["good"]
    assert history.loss_mask == [False, False, False, True]


def test_a_truncated_completion_is_trained() -> None:
    (history,) = build_histories([completion("t", [1], [2], status=CompletionStatus.TRUNCATED)])
    assert history.sampled_tokens == 1


def test_tokens_that_had_no_alternative_are_not_trained() -> None:
    (history,) = build_histories([completion("g", [1], [2, 3, 4], trainable=[True, False, True])])
    assert history.loss_mask == [False, True, False, True]


def test_a_completion_given_twice_counts_once() -> None:
    call = completion("a", [1], [2])
    (history,) = build_histories([call, call])
    assert history.completion_ids == ["a"]


def test_nothing_gives_nothing() -> None:
    assert build_histories([]) == []


@pytest.mark.parametrize(
    ("fields", "complaint"),
    [
        ({"token_ids": [1], "loss_mask": []}, "per-token lists differ in length"),
        (
            {"token_ids": [1], "loss_mask": [True], "logprobs": [None], "policy_versions": [1]},
            "position 0, which has no sampler logprob",
        ),
        (
            {"token_ids": [1], "loss_mask": [True], "logprobs": [-1.0], "policy_versions": [None]},
            "position 0, which has no sampler logprob",
        ),
    ],
)
def test_a_history_that_would_train_the_wrong_tokens_is_refused(
    fields: dict[str, object], complaint: str
) -> None:
    with pytest.raises(ValidationError, match=complaint):
        History.model_validate(fields)


@pytest.mark.parametrize(
    ("field", "value"),
    [("logprobs", [float("nan")]), ("logprobs", [float("-inf")]), ("completion_token_ids", [-1])],
)
def test_a_completion_with_impossible_numbers_is_refused(field: str, value: object) -> None:
    good = completion("a", [1], [2])
    with pytest.raises(ValidationError, match=field):
        Completion.model_validate({**good.model_dump(), field: value})


@st.composite
def rollouts(draw: st.DrawFn) -> list[Completion]:
    """Trees of calls over a small vocabulary, so that prefixes meet by chance as well."""
    tokens = st.lists(st.integers(0, 2), min_size=1, max_size=4)
    calls: list[Completion] = []
    for number in range(draw(st.integers(0, 12))):
        base: list[int] = []
        if calls and draw(st.booleans()):
            parent = draw(st.sampled_from(calls))
            base = parent.prompt_token_ids + parent.completion_token_ids
        sampled = draw(tokens)
        calls.append(
            completion(
                f"c{number}",
                base + draw(tokens),
                sampled,
                started=draw(st.integers(0, 3)),
                status=draw(st.sampled_from(CompletionStatus)),
                rollout=draw(st.sampled_from(["rollout", "rollout", None])),
                trainable=draw(
                    st.lists(st.booleans(), min_size=len(sampled), max_size=len(sampled))
                ),
                version=draw(st.integers(0, 2)),
            )
        )
    return calls


@settings(max_examples=300, deadline=None)
@given(rollouts())
def test_trained_is_exactly_what_was_sampled(calls: list[Completion]) -> None:
    usable = [call for call in calls if call.may_be_trained]
    histories = build_histories(calls)
    assert trained_triples(histories) == sampled_triples(usable)
    assert sorted(name for h in histories for name in h.completion_ids) == sorted(
        call.id for call in usable
    )


@settings(max_examples=100, deadline=None)
@given(rollouts(), st.randoms(use_true_random=False))
def test_the_order_in_which_records_come_changes_nothing(
    calls: list[Completion], rng: random.Random
) -> None:
    shuffled = rng.sample(calls, len(calls))
    assert build_histories(shuffled) == build_histories(calls)


@settings(max_examples=100, deadline=None)
@given(rollouts())
def test_no_chain_could_have_been_continued(calls: list[Completion]) -> None:
    """A history starts only where every chain that its prompt continues was already taken."""
    by_id = {call.id: call for call in calls}
    histories = build_histories(calls)
    for history in histories:
        prompt = by_id[history.completion_ids[0]].prompt_token_ids
        for other in histories:
            if other is not history:
                assert prompt[: len(other.token_ids)] != other.token_ids


@pytest.mark.parametrize("shape", ["separate", "one conversation"])
def test_thousands_of_completions_chain_quickly(shape: str) -> None:
    rng = random.Random(0)
    calls: list[Completion] = []
    so_far: list[int] = []
    for number in range(5000 if shape == "separate" else 800):
        new = [rng.randrange(50_000) for _ in range(30)]
        prompt = [7] * rng.randrange(300, 600) + new if shape == "separate" else so_far + new
        sampled = [rng.randrange(50_000) for _ in range(10)]
        so_far = prompt + sampled
        calls.append(completion(f"c{number}", prompt, sampled, started=number))
    started = time.perf_counter()
    histories = build_histories(calls)
    assert time.perf_counter() - started < 10
    assert len(histories) == (5000 if shape == "separate" else 1)
