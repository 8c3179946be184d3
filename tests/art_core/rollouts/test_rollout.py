from __future__ import annotations

import asyncio
import os
import subprocess
import sys
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

import openai
import pytest
from pydantic import BaseModel

from art_core.errors import ScenarioError, TrajectoryError
from art_core.rollouts import TrainableModel
from art_core.rollouts.play import Play, playing
from art_core.trajectories import Trajectory, TrajectoryStatus

if TYPE_CHECKING:
    from openai.types.chat import ChatCompletionMessageParam
    from scripted_backend import ScriptedBackend


async def ask(*contents: str) -> list[ChatCompletionMessageParam]:
    """A conversation: each content is answered before the next is said."""
    messages: list[ChatCompletionMessageParam] = []
    async with openai.AsyncOpenAI() as client:
        for content in contents:
            messages.append({"role": "user", "content": content})
            answer = await client.chat.completions.create(model="gpt", messages=messages)
            text = answer.choices[0].message.content
            messages.append({"role": "assistant", "content": text})
    return messages


async def test_a_rollout_ends_with_its_messages_and_exact_tokens(
    backend: ScriptedBackend, model: TrainableModel[Any]
) -> None:
    backend.script = lambda call: call.last.upper()
    async with model.rollout({"question": "?"}) as trajectory:
        messages = await ask("one", "two")
    assert trajectory.messages() == messages
    assert trajectory.metadata == {"scenario": {"question": "?"}}
    (history,) = trajectory.histories
    assert bytes(history.token_ids) == (
        b"<user>one</><assistant>ONE</><user>two</><assistant>TWO</>"
    )
    sampled = bytes(t for t, on in zip(history.token_ids, history.loss_mask, strict=True) if on)
    assert sampled == b"ONE</>TWO</>"
    assert trajectory.status is TrajectoryStatus.FINISHED
    assert Trajectory.model_validate_json(trajectory.model_dump_json()) == trajectory


async def test_of_several_conversations_the_one_that_ended_last_is_shown(
    backend: ScriptedBackend, model: TrainableModel[Any]
) -> None:
    async with model.rollout() as trajectory:
        await ask("a sub-agent's")
        await ask("the answer's", "and more")
    assert [len(h.completion_ids) for h in trajectory.histories] == [1, 2]
    assert trajectory.messages()[0]["content"] == "the answer's"
    async with model.rollout() as trajectory:
        await ask("hello")
        trajectory.messages_and_choices = [{"role": "user", "content": "mine"}]
    assert [m["content"] for m in trajectory.messages()] == ["mine"], "what the agent has set stays"
    assert len(trajectory.histories) == 1


async def test_access_ends_with_the_rollout_and_is_never_written(
    model: TrainableModel[Any],
) -> None:
    async with model.rollout() as trajectory:
        assert f"/r/{trajectory.rollout_id}/v1" in trajectory.base_url
        key, url = trajectory.api_key, trajectory.base_url
        assert trajectory.headers == {"x-art-rollout": trajectory.rollout_id}
        for text in (trajectory.model_dump_json(), repr(trajectory), str(trajectory)):
            assert key not in text
            assert url not in text
    with pytest.raises(TrajectoryError, match=r"no open rollout.*async with model\.rollout"):
        _ = trajectory.base_url


async def test_an_agent_in_another_process_needs_only_the_url(
    backend: ScriptedBackend, model: TrainableModel[Any]
) -> None:
    agent = (
        "import openai; c = openai.OpenAI(); print(c.chat.completions.create(model='gpt-4o', "
        "messages=[{'role': 'user', 'content': 'hello'}]).choices[0].message.content)"
    )
    backend.script = lambda call: f"you said {call.last}"
    async with model.rollout() as trajectory:
        environment = {
            **os.environ,
            "OPENAI_BASE_URL": trajectory.base_url,
            "OPENAI_API_KEY": "unused",
            "NO_PROXY": "*",
        }
        done = await asyncio.to_thread(
            subprocess.run,
            [sys.executable, "-c", agent],
            env=environment,
            capture_output=True,
            text=True,
            check=True,
            timeout=60,
        )
    assert done.stdout == "you said hello\n"
    assert trajectory.messages()[-1]["content"] == "you said hello"


async def test_a_failure_inside_is_the_trajectorys_and_the_callers(
    model: TrainableModel[Any],
) -> None:
    opened: list[Trajectory] = []

    async def play() -> None:
        async with model.rollout() as trajectory:
            opened.append(trajectory)
            await ask("hello")
            raise KeyError("no such tool")

    with pytest.raises(KeyError) as caught:
        await play()
    (trajectory,) = opened
    assert trajectory.status is TrajectoryStatus.FAILED
    assert trajectory.error is not None
    assert "KeyError: 'no such tool'" in trajectory.error
    assert len(trajectory.histories) == 1, "what was recorded until then is kept"
    assert caught.value.__notes__ == [f"In rollout {trajectory.rollout_id} of model 'bot'."]


async def test_a_status_that_the_agent_sets_stays(model: TrainableModel[Any]) -> None:
    async with model.rollout() as trajectory:
        await ask("hello")
        trajectory.status = TrajectoryStatus.TRUNCATED
    assert trajectory.status is TrajectoryStatus.TRUNCATED


async def test_a_rollout_without_a_model_call_says_so(model: TrainableModel[Any]) -> None:
    async with model.rollout() as trajectory:
        pass
    assert trajectory.histories == []
    assert trajectory.logs == ["no model call reached this rollout"]


async def test_a_cancelled_rollout_is_closed(
    backend: ScriptedBackend, model: TrainableModel[Any]
) -> None:
    started = asyncio.Event()

    async def play() -> None:
        async with model.rollout():
            started.set()
            await asyncio.sleep(60)

    task = asyncio.create_task(play())
    await started.wait()
    task.cancel()
    with pytest.raises(asyncio.CancelledError):
        await task
    assert [rollout.closed for rollout in backend.rollouts.values()] == [True]


async def test_it_is_closed_also_when_cancelled_while_closing(
    backend: ScriptedBackend, model: TrainableModel[Any], monkeypatch: pytest.MonkeyPatch
) -> None:
    closing, closed = asyncio.Event(), asyncio.Event()
    close = backend.close_rollout

    async def slowly(*arguments: Any) -> Any:
        closing.set()
        await asyncio.sleep(0.05)
        result = await close(*arguments)
        closed.set()
        return result

    monkeypatch.setattr(backend, "close_rollout", slowly)

    async def play() -> None:
        async with model.rollout():
            pass

    task = asyncio.create_task(play())
    await closing.wait()
    task.cancel()
    with pytest.raises(asyncio.CancelledError):
        await task
    assert closed.is_set()


async def test_mode_seed_and_tags_reach_the_backend_from_a_loop_or_the_caller(
    backend: ScriptedBackend, model: TrainableModel[Any]
) -> None:
    async with model.rollout():
        pass
    async with model.rollout(mode="eval", seed=7, tags={"agent": "a"}):
        pass
    with playing(Play("eval", 11, {"step": "3"})):
        for _ in range(2):
            async with model.rollout(tags={"agent": "b"}):
                pass
        async with model.rollout(mode="train", seed=1):
            pass
    opened = [(r.mode, r.seed, r.tags) for r in backend.rollouts.values()]
    assert opened[:3] == [
        ("train", None, {}),
        ("eval", 7, {"agent": "a"}),
        ("eval", 11, {"step": "3", "agent": "b"}),
    ]
    mode, seed, _ = opened[3]
    assert mode == "eval"
    assert seed not in (None, 11), "the second rollout of a play has a seed of its own"
    assert opened[4][:2] == ("train", 1)


@dataclass
class Question:
    text: str


class Typed(BaseModel):
    question: Question
    options: set[int] = {1}


@pytest.mark.parametrize(
    ("scenario", "written"),
    [
        ("text", "text"),
        (Question("why"), {"text": "why"}),
        (Typed(question=Question("why")), {"question": {"text": "why"}, "options": [1]}),
        ([Question("a"), ("b", 2)], [{"text": "a"}, ["b", 2]]),
    ],
)
async def test_scenarios_are_kept_as_json(
    model: TrainableModel[Any], scenario: object, written: object
) -> None:
    async with model.rollout(scenario) as trajectory:
        pass
    assert trajectory.metadata["scenario"] == written


@pytest.mark.parametrize("scenario", [object(), {"f": open}, {1, object()}])
async def test_a_scenario_that_cannot_be_written_is_refused(
    backend: ScriptedBackend, model: TrainableModel[Any], scenario: object
) -> None:
    with pytest.raises(ScenarioError, match="can't be written as JSON"):
        async with model.rollout(scenario):
            pytest.fail("it opened")
    assert backend.rollouts == {}
