"""In-process capture, with the clients that agents really use, over real HTTP."""

from __future__ import annotations

import asyncio
import logging
import threading
from collections.abc import AsyncGenerator, Awaitable, Callable
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import TYPE_CHECKING, Any

import httpx
import httpx2
import openai
import pytest
from scripted_backend import ScriptedBackend

from art_core.config import CaptureConfig
from art_core.rollouts import TrainableModel, untraced
from art_core.rollouts.backend import RolloutTicket
from art_core.rollouts.route import Route, current_router

if TYPE_CHECKING:
    from openai.types.chat import ChatCompletionMessageParam

OPENAI_URL = "https://api.openai.com/v1/chat/completions"
BODY = {"model": "gpt-4o", "messages": [{"role": "user", "content": "hello"}]}
KEY = {"Authorization": "Bearer sk-the-users-own"}
HELLO: list[ChatCompletionMessageParam] = [{"role": "user", "content": "hello"}]


@pytest.fixture
async def elsewhere(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> AsyncGenerator[ScriptedBackend]:
    """Another service with a model, reached without proxies."""
    monkeypatch.setenv("NO_PROXY", "127.0.0.1")
    async with ScriptedBackend(tmp_path / "elsewhere", lambda _: "from elsewhere") as service:
        yield service


async def with_openai() -> str | None:
    async with openai.AsyncOpenAI() as client:
        answer = await client.chat.completions.create(model="gpt-4o", messages=HELLO)
    return answer.choices[0].message.content


def with_sync_openai() -> str | None:
    with openai.OpenAI() as client:
        answer = client.chat.completions.create(model="gpt-4o", messages=HELLO)
    return answer.choices[0].message.content


async def with_sync_openai_in_a_thread() -> str | None:
    return await asyncio.to_thread(with_sync_openai)


async def with_sync_openai_in_a_pool() -> str | None:
    with ThreadPoolExecutor(1) as pool:
        return await asyncio.wrap_future(pool.submit(with_sync_openai))


async def with_sync_openai_in_an_executor() -> str | None:
    return await asyncio.get_running_loop().run_in_executor(None, with_sync_openai)


async def with_a_loop_of_its_own_in_a_thread() -> str | None:
    return await asyncio.to_thread(lambda: asyncio.run(with_openai()))


async def in_a_task() -> str | None:
    return await asyncio.create_task(with_openai())


async def streamed() -> str | None:
    async with openai.AsyncOpenAI() as client:
        stream = await client.chat.completions.create(model="m", messages=HELLO, stream=True)
        return "".join([chunk.choices[0].delta.content or "" async for chunk in stream])


def streamed_sync() -> str:
    with openai.OpenAI() as client:
        stream = client.chat.completions.create(model="m", messages=HELLO, stream=True)
        return "".join([chunk.choices[0].delta.content or "" for chunk in stream])


async def streamed_in_a_thread() -> str | None:
    return await asyncio.to_thread(streamed_sync)


async def with_completions() -> str | None:
    async with openai.AsyncOpenAI() as client:
        return (await client.completions.create(model="m", prompt="hello")).choices[0].text


async def with_responses() -> str | None:
    async with openai.AsyncOpenAI() as client:
        return (await client.responses.create(model="m", input="hello")).output_text


async def with_httpx() -> str:
    async with httpx.AsyncClient() as client:
        answer = await client.post(OPENAI_URL, json=BODY, headers=KEY)
    return answer.json()["choices"][0]["message"]["content"]


async def with_sync_httpx() -> str:
    with httpx.Client() as client:
        answer = client.post(OPENAI_URL, json=BODY, headers=KEY)  # noqa: ASYNC212
    return answer.json()["choices"][0]["message"]["content"]


async def with_httpx2() -> str:
    async with httpx2.AsyncClient() as client:
        answer = await client.post(OPENAI_URL, json=BODY, headers=KEY)
    return answer.json()["choices"][0]["message"]["content"]


async def with_sync_httpx2() -> str:
    with httpx2.Client() as client:
        answer = client.post(OPENAI_URL, json=BODY, headers=KEY)
    return answer.json()["choices"][0]["message"]["content"]


async def with_httpx_streaming_its_upload() -> str:
    async def upload() -> AsyncGenerator[bytes]:
        yield b'{"model": "gpt-4o", "messages": '
        yield b'[{"role": "user", "content": "hello"}]}'

    async with httpx.AsyncClient() as client:
        answer = await client.post(OPENAI_URL, content=upload(), headers=KEY)
    return answer.json()["choices"][0]["message"]["content"]


@pytest.mark.parametrize(
    "agent",
    [
        with_openai,
        with_sync_openai_in_a_thread,
        with_sync_openai_in_a_pool,
        with_sync_openai_in_an_executor,
        with_a_loop_of_its_own_in_a_thread,
        in_a_task,
        streamed,
        streamed_in_a_thread,
        with_completions,
        with_responses,
        with_httpx,
        with_sync_httpx,
        with_httpx2,
        with_sync_httpx2,
        with_httpx_streaming_its_upload,
    ],
)
async def test_an_agents_call_goes_to_its_rollout_without_the_agents_key(
    backend: ScriptedBackend,
    model: TrainableModel[Any],
    agent: Callable[[], Awaitable[str | None]],
) -> None:
    backend.script = lambda call: f"you said {call.last}"
    async with model.rollout() as trajectory:
        answer = await agent()
    (call,) = backend.calls
    assert call.rollout_id == trajectory.rollout_id
    assert call.headers["authorization"] == f"Bearer key-{trajectory.rollout_id}"
    assert "sk-the-users-own" not in str(call.headers)
    assert call.headers["host"] == backend.url.removeprefix("http://")
    assert [h.token_ids != [] for h in trajectory.histories] == [True]
    if agent is not with_completions:
        assert answer == "you said hello"


async def test_what_the_agents_client_is_set_up_with_stays_at_home(
    backend: ScriptedBackend, model: TrainableModel[Any]
) -> None:
    seen: list[httpx.Request] = []

    def mocked(request: httpx.Request) -> httpx.Response:
        seen.append(request)
        return httpx.Response(500)

    async with (
        model.rollout() as trajectory,
        httpx.AsyncClient(
            auth=("user", "password"),
            cookies={"session": "secret"},
            headers={"api-key": "secret", "OpenAI-Organization": "secret", "x-mine": "kept"},
            transport=httpx.MockTransport(mocked),
            base_url="https://api.openai.com/openai/deployments/gpt",
        ) as client,
    ):
        answer = await client.post("chat/completions", params={"api-version": "1"}, json=BODY)
    assert answer.status_code == 200
    assert seen == []
    (call,) = backend.calls
    assert call.path == f"/r/{trajectory.rollout_id}/v1/chat/completions"
    assert "secret" not in str(call.headers)
    assert call.headers["authorization"].startswith("Bearer key-")
    assert call.headers["x-mine"] == "kept"


async def test_rollouts_at_once_keep_their_calls_apart(
    backend: ScriptedBackend, model: TrainableModel[Any]
) -> None:
    backend.script = lambda call: call.last.upper()
    backend.delay = 0.01

    async def play(number: int) -> tuple[str | None, list[str]]:
        async with model.rollout() as trajectory:
            for turn in range(2):
                await client.chat.completions.create(
                    model="gpt", messages=[{"role": "user", "content": f"{number}-{turn}"}]
                )
        records = backend.of_rollout(trajectory.rollout_id)
        return trajectory.rollout_id, [str(record.response["content"]) for record in records]

    async with openai.AsyncOpenAI() as client:
        results = await asyncio.gather(*(play(number) for number in range(40)))
    assert len({rollout_id for rollout_id, _ in results}) == 40
    assert [answers for _, answers in results] == [[f"{n}-0", f"{n}-1"] for n in range(40)]


async def test_a_plain_thread_does_not_inherit_the_rollout(
    backend: ScriptedBackend, model: TrainableModel[Any], elsewhere: ScriptedBackend
) -> None:
    def call(base_url: str) -> None:
        with openai.OpenAI(base_url=base_url) as client:
            client.chat.completions.create(model="bot", messages=HELLO)

    capture = CaptureConfig(hosts=(elsewhere.url.removeprefix("http://"),))
    async with model.rollout(capture=capture) as trajectory:
        for url in (elsewhere.url, backend.url):
            thread = threading.Thread(target=call, args=(f"{url}/v1",))
            thread.start()
            await asyncio.to_thread(thread.join)
    assert len(elsewhere.calls) == 1, "it went where the agent meant it to"
    assert [c.rollout_id for c in backend.calls] == [None], "the gateway couldn't attribute it"
    assert trajectory.histories == []


async def test_the_models_own_client_is_attributed_inside_and_quarantined_outside(
    backend: ScriptedBackend, model: TrainableModel[Any]
) -> None:
    client = model.openai_client()

    async def call(name: str) -> None:
        await client.chat.completions.create(model=name, messages=HELLO)

    async with model.rollout() as trajectory:
        await call("bot")
        await call("another policy of this gateway")
    await call("bot")
    assert [c.rollout_id for c in backend.calls] == [trajectory.rollout_id, None, None]


async def test_the_url_of_a_rollout_is_left_as_it_is(
    backend: ScriptedBackend, model: TrainableModel[Any]
) -> None:
    async with model.rollout() as outer, model.rollout() as inner:
        client = openai.AsyncOpenAI(base_url=outer.base_url, api_key=outer.api_key)
        async with client:
            await client.chat.completions.create(model="any name", messages=HELLO)
            await with_openai()
    assert [c.rollout_id for c in backend.calls] == [outer.rollout_id, inner.rollout_id]


async def test_another_host_gets_its_calls_untouched_with_one_warning(
    backend: ScriptedBackend,
    model: TrainableModel[Any],
    elsewhere: ScriptedBackend,
    caplog: pytest.LogCaptureFixture,
) -> None:
    other = openai.AsyncOpenAI(base_url=f"{elsewhere.url}/v1")
    async with model.rollout() as trajectory, other as client:
        for _ in range(2):
            answer = await client.chat.completions.create(model="m", messages=HELLO)
            assert answer.choices[0].message.content == "from elsewhere"
    assert backend.calls == []
    assert [c.headers["authorization"] for c in elsewhere.calls] == [KEY["Authorization"]] * 2
    warnings = [r for r in caplog.records if r.levelno == logging.WARNING]
    assert ["a model call to 127.0.0.1" in r.getMessage() for r in warnings] == [True]
    noted: Any = trajectory.metadata["other_model_calls"]
    assert [(call["host"], call["model"], call["status"]) for call in noted] == [
        ("127.0.0.1", "m", 200)
    ] * 2
    assert noted[0]["answer"]["choices"][0]["message"]["content"] == "from elsewhere"
    assert not trajectory.histories


async def test_hosts_and_models_are_the_users_to_choose(
    backend: ScriptedBackend, model: TrainableModel[Any], elsewhere: ScriptedBackend
) -> None:
    address = elsewhere.url.removeprefix("http://")
    model.capture = CaptureConfig(hosts=(address,), models=("my-agent",))

    async def call(name: str) -> None:
        async with openai.AsyncOpenAI(base_url=f"{elsewhere.url}/v1") as client:
            await client.chat.completions.create(model=name, messages=HELLO)

    async with model.rollout():
        await call("my-agent")
        await call("my-judge")
    assert [c.body["model"] for c in backend.calls] == ["my-agent"]
    assert [c.body["model"] for c in elsewhere.calls] == ["my-judge"]


async def test_anthropics_messages_are_captured_and_other_services_messages_are_not(
    backend: ScriptedBackend, model: TrainableModel[Any], elsewhere: ScriptedBackend
) -> None:
    capture = CaptureConfig(hosts=("api.anthropic.com", "127.0.0.1"))
    async with model.rollout(capture=capture), httpx.AsyncClient() as client:
        url = "https://api.anthropic.com/v1/messages?beta=true"
        await client.post(url, json=BODY, headers={"x-api-key": "sk-ant"})
        answer = await client.post(f"{elsewhere.url}/channels/7/messages", json=BODY)
        assert answer.status_code == 404
        answer = await client.get(f"{elsewhere.url}/v1/chat/completions")
        assert answer.status_code == 405
    (call,) = backend.calls
    assert call.path.endswith("/v1/messages")
    assert "sk-ant" not in str(call.headers)


async def test_untraced_calls_are_left_alone(
    backend: ScriptedBackend, model: TrainableModel[Any], elsewhere: ScriptedBackend
) -> None:
    def judge() -> None:
        with openai.OpenAI(base_url=f"{elsewhere.url}/v1") as client:
            client.chat.completions.create(model="judge", messages=HELLO)

    capture = CaptureConfig(hosts=("127.0.0.1",))
    async with model.rollout(capture=capture):
        with untraced():
            await asyncio.to_thread(judge)
        await with_openai_at(elsewhere.url)
    assert [c.body["model"] for c in elsewhere.calls] == ["judge"]
    assert [c.body["model"] for c in backend.calls] == ["agent"]


async def with_openai_at(url: str) -> None:
    async with openai.AsyncOpenAI(base_url=f"{url}/v1") as client:
        await client.chat.completions.create(model="agent", messages=HELLO)


async def test_a_router_names_calls_and_sends_them_elsewhere(
    backend: ScriptedBackend, model: TrainableModel[Any], elsewhere: ScriptedBackend
) -> None:
    """What framework adapters do: see `art_core.rollouts.route`."""
    async with model.rollout() as outer, model.rollout() as inner:
        ticket = RolloutTicket(
            rollout_id=outer.rollout_id or "",
            base_url=outer.base_url,
            api_key=outer.api_key,
            headers=outer.headers,
            policy_version=0,
        )
        before = current_router.get()
        current_router.set(lambda: Route(ticket=ticket, tags={"node": "plän"}))
        await with_openai()
        current_router.set(lambda: Route(ticket=None))
        await with_openai_at(elsewhere.url)
        current_router.set(before)
        await with_openai()
    assert [c.rollout_id for c in backend.calls] == [outer.rollout_id, inner.rollout_id]
    assert backend.of_rollout(outer.rollout_id)[0].tags == {"node": "plän"}
    assert len(elsewhere.calls) == 1


async def test_the_patches_live_as_long_as_a_rollout(
    backend: ScriptedBackend, model: TrainableModel[Any]
) -> None:
    def patched() -> tuple[object, ...]:
        return (
            httpx.Client.send,
            httpx.AsyncClient.send,
            httpx2.Client.send,
            httpx2.AsyncClient.send,
            ThreadPoolExecutor.submit,
        )

    before = patched()
    first, second = model.rollout(), model.rollout()
    await first.__aenter__()
    during = patched()
    assert not any(a is b for a, b in zip(before, during, strict=True))
    await second.__aenter__()
    await first.__aexit__(None, None, None)
    assert patched() == during, "the second is still open"
    await second.__aexit__(None, None, None)
    assert patched() == before
    with pytest.raises(KeyError):
        async with model.rollout():
            raise KeyError
    assert patched() == before


async def test_a_patch_that_someone_else_put_on_ours_stays(
    backend: ScriptedBackend, model: TrainableModel[Any], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(httpx.Client, "send", httpx.Client.send)
    counted = 0
    async with model.rollout():
        inner = httpx.Client.send

        def counting(client: httpx.Client, request: httpx.Request, **options: Any) -> Any:
            nonlocal counted
            counted += 1
            return inner(client, request, **options)

        setattr(httpx.Client, "send", counting)  # noqa: B010
    assert httpx.Client.send is counting
    with httpx.Client(transport=httpx.MockTransport(lambda _: httpx.Response(204))) as client:
        assert client.post(OPENAI_URL, json=BODY).status_code == 204  # noqa: ASYNC212
    assert counted == 1
    assert backend.calls == []


@pytest.mark.parametrize("retries", [0, 1])
async def test_the_agents_timeout_holds_and_its_retries_are_told(
    backend: ScriptedBackend, model: TrainableModel[Any], retries: int
) -> None:
    backend.delay = 0.5
    impatient = openai.Timeout(10, read=0.1)
    async with (
        model.rollout(),
        openai.AsyncOpenAI(timeout=impatient, max_retries=retries) as client,
    ):
        with pytest.raises(openai.APITimeoutError):
            await client.chat.completions.create(model="m", messages=HELLO)
    async with asyncio.timeout(10):
        while len(backend.calls) <= retries:  # noqa: ASYNC110  (it is another thread's list)
            await asyncio.sleep(0.01)
    told = [call.headers["x-stainless-retry-count"] for call in backend.calls]
    assert told == ["0", "1"][: retries + 1]


async def test_a_client_level_timeout_holds_for_requests_without_one(
    backend: ScriptedBackend, model: TrainableModel[Any]
) -> None:
    backend.delay = 0.5
    async with model.rollout():
        with (
            httpx.Client(timeout=httpx.Timeout(10, read=0.1)) as client,
            pytest.raises(httpx.ReadTimeout),
        ):
            client.send(httpx.Request("POST", OPENAI_URL, json=BODY))  # noqa: ASYNC212


async def test_errors_of_the_gateway_reach_the_agent(
    backend: ScriptedBackend, model: TrainableModel[Any]
) -> None:
    backend.script = lambda _: "HTTP 400: no such tool"
    async with model.rollout(), openai.AsyncOpenAI() as client:
        with pytest.raises(openai.BadRequestError, match="no such tool"):
            await client.chat.completions.create(model="m", messages=HELLO)


async def test_a_closed_client_is_closed(model: TrainableModel[Any]) -> None:
    client = httpx.AsyncClient()
    await client.aclose()
    async with model.rollout():
        with pytest.raises(RuntimeError, match="client has been closed"):
            await client.post(OPENAI_URL, json=BODY)


async def test_a_task_that_outlives_its_rollout_is_not_recorded(
    backend: ScriptedBackend, model: TrainableModel[Any]
) -> None:
    """Another rollout keeps the patches in place meanwhile."""
    goes_on = asyncio.Event()

    async def straggler() -> None:
        await goes_on.wait()
        await model.openai_client().chat.completions.create(model="bot", messages=HELLO)

    async with model.rollout() as other:
        async with model.rollout():
            task = asyncio.create_task(straggler())
            await asyncio.sleep(0)
        goes_on.set()
        await task
    assert [call.rollout_id for call in backend.calls] == [None]
    assert other.histories == []
