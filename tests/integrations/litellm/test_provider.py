# pyright: reportUnknownMemberType=false, reportUnknownVariableType=false, reportUnknownArgumentType=false
"""``art/…`` models through litellm's own functions, over the real gateway."""

from __future__ import annotations

import asyncio
import json
import socket
import subprocess
import sys
from typing import Any

import litellm
import pytest
from litellm.exceptions import (
    APIConnectionError,
    BadRequestError,
    MidStreamFallbackError,
    NotFoundError,
    Timeout,
)

from art_core.errors import ConfigError
from art_core.rollouts import TrainableModel
from art_core.trajectories import Trajectory
from integrations.litellm import register
from tests.integrations.langgraph.served import ScriptedBackend, records_of

pytestmark = [  # litellm's own
    pytest.mark.filterwarnings("ignore:.*`ReadOnly` qualifier:UserWarning"),
    pytest.mark.filterwarnings("ignore::DeprecationWarning"),
]

Policy = TrainableModel[Any]
LOOK: Any = {
    "type": "function",
    "function": {
        "name": "look",
        "parameters": {"type": "object", "properties": {"x": {"type": "string"}}},
    },
}
CALL = 'm1 [[call look {"x": "y"}]]'


def ask(text: str = "hello m1") -> list[Any]:
    return [{"role": "user", "content": text}]


async def sampled(policy: Policy, trajectory: Trajectory) -> list[list[int]]:
    return [record.completion_token_ids for record in await records_of(policy, trajectory)]


@pytest.mark.parametrize("name", ["art/bot", "art/zoo/bot"])
async def test_whole_answers_with_token_ids_and_logprobs(name: str, policy: Policy) -> None:
    async with policy.rollout() as trajectory:
        answer: Any = await litellm.acompletion(
            model=name, messages=ask(), logprobs=True, return_token_ids=True
        )
        second: Any = await asyncio.to_thread(litellm.completion, model=name, messages=ask())
    first, _ = await sampled(policy, trajectory)
    choice = answer.choices[0]
    assert choice.message.content == second.choices[0].message.content == "ok m1"
    assert choice.provider_specific_fields["token_ids"] == first
    logprobs = [token.logprob for token in choice.logprobs.content]
    assert logprobs == pytest.approx([-0.6931] * len(first), abs=1e-3)
    assert answer.usage.completion_tokens == len(first)
    assert answer._hidden_params["response_cost"] == 0
    assert len(trajectory.histories) == 2


async def test_a_configured_price_is_charged(backend: ScriptedBackend) -> None:
    price = {"input_cost_per_token": 0.0, "output_cost_per_token": 0.5, "litellm_provider": "art"}
    litellm.register_model({"art/dear": price})
    async with backend.new_policy("dear").rollout():
        answer: Any = await litellm.acompletion(model="art/dear", messages=ask())
    assert answer._hidden_params["response_cost"] == 0.5 * answer.usage.completion_tokens


@pytest.mark.parametrize("text", ["hello m1", CALL])
async def test_a_stream_put_together_is_the_recorded_answer(text: str, policy: Policy) -> None:
    async with policy.rollout() as trajectory:
        stream: Any = await litellm.acompletion(
            model="art/bot", messages=ask(text), tools=[LOOK], stream=True, logprobs=True
        )
        chunks = [chunk async for chunk in stream]
        again: Any = litellm.completion(
            model="art/bot", messages=ask(text), tools=[LOOK], stream=True
        )
        sync_chunks = list(again)
    records = await records_of(policy, trajectory)
    for parts, record in zip((chunks, sync_chunks), records, strict=True):
        built: Any = litellm.stream_chunk_builder(parts)
        message = built.choices[0].message
        assert (message.content or "") == (record.response.get("content") or "")
        calls = [call.function.model_dump() for call in message.tool_calls or []]
        recorded: Any = record.response.get("tool_calls") or []
        assert calls == [call["function"] for call in recorded]
        assert [call.id for call in message.tool_calls or []] == [call["id"] for call in recorded]
        assert built.choices[0].finish_reason == ("tool_calls" if calls else "stop")
        assert built.usage.completion_tokens == len(record.completion_token_ids)
    streamed = [getattr(chunk.choices[0], "logprobs", None) for chunk in chunks]
    logprobs = [token.logprob for each in streamed if each for token in each.content]
    assert logprobs == pytest.approx(records[0].logprobs)


async def test_a_tool_call_is_gone_on_from(policy: Policy) -> None:
    async with policy.rollout() as trajectory:
        messages = ask(CALL)
        answer: Any = await litellm.acompletion(model="art/bot", messages=messages, tools=[LOOK])
        message = answer.choices[0].message
        assert answer.choices[0].finish_reason == "tool_calls"
        assert json.loads(message.tool_calls[0].function.arguments) == {"x": "y"}
        messages += [
            message,
            {"role": "tool", "tool_call_id": message.tool_calls[0].id, "content": "r"},
        ]
        await litellm.acompletion(model="art/bot", messages=messages, tools=[LOOK])
    assert [len(history.completion_ids) for history in trajectory.histories] == [2]


async def test_several_choices_whole_and_streamed(policy: Policy) -> None:
    async with policy.rollout():
        answer: Any = await litellm.acompletion(model="art/bot", messages=ask(), n=2)
        assert [choice.message.content for choice in answer.choices] == ["ok m1"] * 2
        stream: Any = await litellm.acompletion(model="art/bot", messages=ask(), n=2, stream=True)
        texts = ["", ""]
        async for chunk in stream:
            for choice in chunk.choices:
                texts[choice.index] += choice.delta.content or ""
    assert texts == ["ok m1"] * 2


async def test_the_other_functions(policy: Policy) -> None:
    async with policy.rollout() as trajectory:
        text: Any = await litellm.atext_completion(model="art/bot", prompt="m1")
        assert text.choices[0].text == "ok m1"
        response: Any = await litellm.aresponses(model="art/bot", input="m1")
        assert response.output[0].content[0].text == "ok m1"
    assert len(trajectory.histories) == 2


async def test_structured_output(policy: Policy) -> None:
    from pydantic import BaseModel

    class Score(BaseModel):
        score: int

    async with policy.rollout() as trajectory:
        answer: Any = await litellm.acompletion(
            model="art/bot", messages=ask('m1 [[json {"score": 3}]]'), response_format=Score
        )
    assert Score.model_validate_json(answer.choices[0].message.content).score == 3
    (record,) = await records_of(policy, trajectory)
    assert record.sampling.grammar is not None


ERRORS: list[tuple[dict[str, Any], type[Exception], str]] = [
    ({"model": "art/none"}, NotFoundError, "model 'none' does not exist"),
    ({"model": "art/shop/bot"}, NotFoundError, "model 'shop/bot' does not exist"),
    ({"model": "art/bot@7"}, NotFoundError, "'bot@7' does not exist"),
    ({"top_k": "x"}, BadRequestError, "top_k"),
    ({"unheard_of": 1}, BadRequestError, "unheard_of"),
    ({"api_base": "nowhere"}, BadRequestError, "api_base 'nowhere' isn't an http URL"),
    ({"api_base": "http://127.0.0.1:9/v1"}, APIConnectionError, "127.0.0.1"),
]


@pytest.mark.parametrize(("wrong", "kind", "words"), ERRORS)
@pytest.mark.parametrize("stream", [False, True])
async def test_errors_are_litellms(
    wrong: dict[str, Any], kind: type[Exception], words: str, stream: bool, policy: Policy
) -> None:
    async def call() -> None:
        answer: Any = await litellm.acompletion(
            **{"model": "art/bot", "messages": ask(), "stream": stream, **wrong}
        )
        if stream:
            [chunk async for chunk in answer]

    # A stream's connection is opened by its reader: litellm has a class for that.
    kinds = (kind, MidStreamFallbackError) if kind is APIConnectionError else kind
    async with policy.rollout():
        with pytest.raises(kinds, match=words):
            await call()


def test_a_server_that_hangs_is_a_timeout() -> None:
    with socket.create_server(("127.0.0.1", 0)) as silent:
        url = f"http://127.0.0.1:{silent.getsockname()[1]}/v1"
        with pytest.raises(Timeout):
            litellm.completion(model="art/bot", messages=ask(), api_base=url, timeout=0.2)


def test_without_a_server_the_error_says_how_to_name_one() -> None:
    with pytest.raises(BadRequestError, match="set ART_BASE_URL"):
        litellm.completion(model="art/bot", messages=ask())


def test_a_server_from_the_environment_the_registration_and_the_call(
    policy: Policy, monkeypatch: pytest.MonkeyPatch
) -> None:
    url = str(policy.inference_base_url)

    def works(**more: Any) -> bool:
        answer: Any = litellm.completion(model="art/bot", messages=ask(), **more)
        return answer.choices[0].message.content == "ok m1"

    monkeypatch.setenv("ART_BASE_URL", url)
    assert works()
    monkeypatch.setenv("ART_BASE_URL", "http://127.0.0.1:9/v1")
    register(base_url=url)
    assert works()
    register(base_url="http://127.0.0.1:9/v1")
    assert works(api_base=url)
    with pytest.raises(ConfigError, match="base_url 'nowhere' isn't an http URL"):
        register(base_url="nowhere")


def test_importing_reaches_nothing_and_prints_nothing() -> None:
    script = (
        "import socket, sys\n"
        "def refuse(*_): raise AssertionError('network')\n"
        "socket.socket.connect = refuse\n"
        "socket.getaddrinfo = refuse\n"
        "import integrations.litellm\n"
        "assert 'litellm' not in sys.modules\n"
    )
    done = subprocess.run([sys.executable, "-c", script], capture_output=True, check=False)
    assert (done.returncode, done.stdout, done.stderr) == (0, b"", b"")


async def test_extra_headers_name_the_rollout_of_another_process(
    policy: Policy, backend: ScriptedBackend
) -> None:
    async with policy.rollout() as trajectory:
        url, headers = str(policy.inference_base_url), dict(trajectory.headers)
        script = (
            "import sys, json, litellm, integrations.litellm as il\n"
            "il.register()\n"
            "litellm.completion(model='art/bot', messages=[{'role': 'user', 'content': 'm1'}],"
            " api_base=sys.argv[1], extra_headers=json.loads(sys.argv[2]))\n"
        )
        process = await asyncio.create_subprocess_exec(
            sys.executable, "-c", script, url, json.dumps(headers)
        )
        assert await process.wait() == 0
    assert len(trajectory.histories) == 1
