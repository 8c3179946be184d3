"""Records to store, made up."""

from __future__ import annotations

from art_core.trajectories import Completion, CompletionStatus, SamplingParams


def completion(name: str, rollout: str | None = "r0") -> Completion:
    """A completion of two tokens."""
    return Completion(
        id=name,
        request_id=name,
        rollout_id=rollout,
        policy="bot",
        policy_version=0,
        messages=[{"role": "user", "content": f"question {name}"}],
        sampling=SamplingParams(),
        response={"role": "assistant", "content": "answer"},
        prompt_token_ids=[1, 2, 3],
        completion_token_ids=[4, 5],
        logprobs=[-0.5, -0.25],
        trainable=[True, True],
        finish_reason="stop",
        status=CompletionStatus.COMPLETED,
        started_at=1.0,
        finished_at=2.0,
    )
