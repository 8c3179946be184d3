# pyright: reportUnknownMemberType=false, reportUnknownVariableType=false, reportUnknownArgumentType=false, reportUnknownParameterType=false
"""Prompted models: played, evaluated and compared like trained ones."""

from __future__ import annotations

import asyncio
import gc
import json
import socket
import tomllib
import warnings
from collections.abc import AsyncGenerator, Callable, Generator
from contextlib import nullcontext
from importlib.metadata import EntryPoint, EntryPoints
from pathlib import Path
from typing import Any

import httpx
import litellm
import openai
import pytest
from litellm.caching.llm_caching_handler import LLMClientCache
from typer.testing import CliRunner

import art_core as art
from art_core.cli.main import build_app
from art_core.errors import ConfigError, MissingExtraError, RunError
from art_core.gateway import upstreams
from art_core.rollouts.prompted import MODEL_CALLS, NO_CALLS
from integrations.litellm.upstream import LiteLLMUpstream
from tests.integrations.langgraph.provider import Provider, running_provider

pytestmark = [  # litellm's own
    pytest.mark.filterwarnings("ignore:.*`ReadOnly` qualifier:UserWarning"),
    pytest.mark.filterwarnings("ignore::DeprecationWarning"),
    pytest.mark.filterwarnings("ignore:unclosed:ResourceWarning"),  # clients that it drops
]

ROOT = Path(__file__).parents[3]
SCENARIOS = ["m1", "m2", "m3"]


@pytest.fixture(autouse=True)
def _entry_points(monkeypatch: pytest.MonkeyPatch) -> None:  # pyright: ignore[reportUnusedFunction]
    """Those of this tree's pyproject, which may be newer than the installed ones."""
    declared = tomllib.loads((ROOT / "pyproject.toml").read_text())["project"]["entry-points"]
    group = upstreams.ENTRY_POINT_GROUP
    points = EntryPoints(EntryPoint(n, v, group) for n, v in declared[group].items())
    monkeypatch.setattr(upstreams, "entry_points", points.select)


@pytest.fixture(autouse=True)
def _clients_that_end(monkeypatch: pytest.MonkeyPatch) -> Generator[None]:  # pyright: ignore[reportUnusedFunction]
    """litellm never closes the clients that it keeps: here they end with the test."""
    cache = LLMClientCache()
    monkeypatch.setattr(litellm, "in_memory_llm_clients_cache", cache)
    yield
    cache.flush_cache()
    with warnings.catch_warnings():
        warnings.simplefilter("ignore", ResourceWarning)
        gc.collect()


@pytest.fixture
async def local(tmp_path: Path) -> AsyncGenerator[art.LocalBackend]:
    async with art.LocalBackend(tmp_path) as backend:
        yield backend


def big(provider: Provider, name: str = "gpt-4.1") -> art.Model[Any]:
    return art.Model(
        name=name,
        project="shop",
        litellm="openai/gpt-4.1",
        inference_base_url=provider.base_url,
        inference_api_key="sk-secret",
    )


def plain(provider: Provider) -> art.Model[Any]:
    return art.Model(
        name="plain",
        project="shop",
        inference_model_name="their-name",
        inference_base_url=provider.base_url,
        inference_api_key="sk-secret",
    )


def ask(text: str) -> list[Any]:
    return [{"role": "user", "content": text}]


async def app(text: str, **more: Any) -> Any:
    return await litellm.acompletion(model="art/support-bot", messages=ask(text), **more)


@pytest.mark.parametrize("stream", [False, True])
async def test_the_app_of_a_trained_model_is_answered_by_the_prompted_one(
    local: art.LocalBackend, provider: Provider, stream: bool
) -> None:
    model = big(provider)
    await model.register(local)
    async with model.rollout("m1") as trajectory:
        if stream:
            parts = [chunk async for chunk in await app("m1", stream=True)]
            whole: Any = litellm.stream_chunk_builder(parts)
            assert whole.choices[0].message.content == "ok m1"
        else:
            assert (await app("m1")).choices[0].message.content == "ok m1"
    (request,) = provider.requests
    assert request["body"]["model"] == "gpt-4.1"
    assert request["headers"]["authorization"] == "Bearer sk-secret"
    assert [m["content"] for m in trajectory.messages()] == ["m1", "ok m1"]
    calls: Any = trajectory.metadata[MODEL_CALLS]
    assert (calls["model"], calls["calls"]) == ("openai/gpt-4.1", 1)
    assert (calls["prompt_tokens"], calls["completion_tokens"]) == (1, 1)
    assert calls["seconds"] > 0
    assert not trajectory.histories
    assert "sk-secret" not in trajectory.model_dump_json()


async def test_the_cost_is_litellms_price_of_the_tokens(
    local: art.LocalBackend, provider: Provider
) -> None:
    model = big(provider)
    await model.register(local)
    async with model.rollout() as trajectory:
        await app("m1")
        await app("m2")
    price = litellm.model_cost["gpt-4.1"]
    one = price["input_cost_per_token"] + price["output_cost_per_token"]
    calls: Any = trajectory.metadata[MODEL_CALLS]
    assert (calls["prompt_tokens"], calls["completion_tokens"]) == (2, 2)
    assert calls["cost_usd"] == pytest.approx(2 * one)


async def test_an_unknown_price_is_no_price(local: art.LocalBackend, provider: Provider) -> None:
    model = big(provider, "odd").model_copy(update={"litellm": "openai/nobody-knows-this"})
    await model.register(local)
    async with model.rollout() as trajectory:
        await app("m1")
    assert trajectory.metadata[MODEL_CALLS]["cost_usd"] is None  # type: ignore[index,call-overload]


def price_of(name: str, api_base: str | None = None) -> float | None:
    upstream = LiteLLMUpstream(name, api_base, "k")
    return upstream.cost_usd({"prompt_tokens": 1000, "completion_tokens": 0, "total_tokens": 1000})


def test_a_price_is_that_of_the_models_own_host(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(litellm, "model_cost", {**litellm.model_cost})
    per_thousand = 1000 * litellm.model_cost["gpt-4.1"]["input_cost_per_token"]
    assert price_of("openai/gpt-4.1") == price_of("gpt-4.1") == pytest.approx(per_thousand)
    # The same name, served by somebody else; and a provider that its address tells.
    assert price_of("hosted_vllm/gpt-4.1", "http://gpu-box/v1") is None
    assert price_of("nobody-knows-this", "https://api.groq.com/openai/v1") is None
    litellm.model_cost["hosted_vllm/gpt-4.1"] = {
        "input_cost_per_token": 0.5,
        "output_cost_per_token": 0.5,
        "litellm_provider": "hosted_vllm",
        "mode": "chat",
    }
    assert price_of("hosted_vllm/gpt-4.1", "http://gpu-box/v1") == pytest.approx(500)


async def test_answers_have_what_is_null_in_the_api(
    local: art.LocalBackend, provider: Provider
) -> None:
    model = big(provider)
    await model.register(local)
    tool = {"type": "function", "function": {"name": "search", "parameters": {}}}
    body = {"model": "x", "messages": ask("m5 [[call search {}]]"), "tools": [tool]}
    async with model.rollout() as trajectory:
        url = f"{trajectory.base_url}/chat/completions"
        async with httpx.AsyncClient() as client:
            whole = (await client.post(url, json=body)).json()
            streamed = (await client.post(url, json={**body, "stream": True})).text
    (choice,) = whole["choices"]
    assert choice["message"]["content"] is None
    assert choice["message"]["tool_calls"][0]["function"]["name"] == "search"
    first = json.loads(streamed.partition("\n")[0].removeprefix("data: "))
    assert first["choices"][0]["finish_reason"] is None


@pytest.mark.parametrize("client", ["own", "hosts", "url", "header"])
async def test_a_plain_api_and_each_way_to_it(
    local: art.LocalBackend, provider: Provider, client: str
) -> None:
    model = plain(provider)
    await model.register(local)
    async with model.rollout() as trajectory:
        clients = {
            "own": lambda: model.openai_client(),
            "hosts": lambda: openai.AsyncOpenAI(api_key="agents-own"),
            "url": lambda: openai.AsyncOpenAI(base_url=trajectory.base_url, api_key="any"),
            "header": lambda: openai.AsyncOpenAI(
                base_url=trajectory.base_url.partition("/r/")[0] + "/v1",
                api_key="any",
                default_headers=trajectory.headers,
            ),
        }
        untraced = client in ("url", "header")
        with art.untraced() if untraced else nullcontext():
            async with clients[client]() as opened:
                answer = await opened.chat.completions.create(
                    model="gpt-9", messages=ask("m4"), seed=5
                )
    assert answer.choices[0].message.content == "ok m4"
    (request,) = provider.requests
    assert (request["body"]["model"], request["body"]["seed"]) == ("their-name", 5)
    assert request["headers"]["authorization"] == "Bearer sk-secret"
    assert trajectory.metadata[MODEL_CALLS]["cost_usd"] is None  # type: ignore[index,call-overload]


async def test_tool_calls_survive_a_stream(local: art.LocalBackend, provider: Provider) -> None:
    model = plain(provider)
    await model.register(local)
    tool: Any = {
        "type": "function",
        "function": {"name": "search", "parameters": {"type": "object", "properties": {}}},
    }
    whole: list[Any] = []
    for stream in (False, True):
        async with model.rollout() as trajectory:
            answer: Any = await model.openai_client().chat.completions.create(
                model="x", messages=ask("m5 search"), tools=[tool], stream=stream
            )
            if stream:
                assert [chunk async for chunk in answer][-1].choices
        whole.append(trajectory.messages()[-1])
        assert trajectory.tools == [tool]
    assert whole[0].get("tool_calls") == whole[1].get("tool_calls")


async def test_rollouts_at_once_are_never_crossed(
    local: art.LocalBackend, provider: Provider
) -> None:
    model = big(provider)
    await model.register(local)

    async def play(marker: str) -> art.Trajectory:
        async with model.rollout(marker) as trajectory:
            await app(f"{marker} first")
            await app(f"{marker} second")
        return trajectory

    markers = [f"m{number}" for number in range(32)]
    for marker, played in zip(markers, await asyncio.gather(*map(play, markers)), strict=True):
        assert [m["content"] for m in played.messages()] == [f"{marker} second", f"ok {marker}"]
        assert played.metadata[MODEL_CALLS]["calls"] == 2  # type: ignore[index,call-overload]


async def test_errors_reach_the_agent_with_their_status(local: art.LocalBackend) -> None:
    model = art.Model(
        name="gone",
        project="shop",
        litellm="openai/gpt-4.1",
        inference_base_url="http://127.0.0.1:9/v1",
        inference_api_key="k",
    )
    await model.register(local)

    def client(base_url: str) -> openai.AsyncOpenAI:
        return openai.AsyncOpenAI(base_url=base_url, api_key="k", max_retries=0)

    async with model.rollout() as trajectory:
        url = trajectory.base_url
        async with client(url) as inside:
            with pytest.raises(openai.InternalServerError):
                await inside.chat.completions.create(model="x", messages=ask("m1"))
            with pytest.raises(openai.BadRequestError, match="messages"):
                await inside.post("/chat/completions", body={}, cast_to=object)
            with pytest.raises(openai.NotFoundError, match="only chat completions"):
                await inside.responses.create(model="x", input="m1")
    assert MODEL_CALLS not in trajectory.metadata
    async with client(url) as late:
        with pytest.raises(openai.NotFoundError, match="not open"):
            await late.chat.completions.create(model="x", messages=ask("m1"))
    async with client(url.partition("/r/")[0] + "/v1") as outside:
        with pytest.raises(openai.NotFoundError, match=r"inside of model\.rollout"):
            await outside.chat.completions.create(model="x", messages=ask("m1"))


@pytest.mark.parametrize("make", [big, plain])
async def test_the_agents_client_retries_as_the_host_asks(
    local: art.LocalBackend, make: Callable[[Provider], art.Model[Any]]
) -> None:
    with running_provider(fail_first=429) as provider:
        model = make(provider)
        await model.register(local)
        async with model.rollout() as trajectory:
            client = openai.AsyncOpenAI(
                base_url=trajectory.base_url, api_key="k", max_retries=1, timeout=5
            )
            async with client:
                # It says to wait for 0 s; clients wait for half a second where nothing is said.
                answer = await client.chat.completions.create(model="x", messages=ask("m1"))
    assert answer.choices[0].message.content == "ok m1"
    assert len(provider.requests) == 2
    assert trajectory.metadata[MODEL_CALLS]["calls"] == 1  # type: ignore[index,call-overload]


@pytest.mark.parametrize("stream", [False, True])
async def test_a_call_whose_client_leaves_is_abandoned(
    local: art.LocalBackend, stream: bool
) -> None:
    with socket.create_server(("127.0.0.1", 0)) as silent:
        model = art.Model(
            name="slow",
            project="shop",
            inference_base_url=f"http://127.0.0.1:{silent.getsockname()[1]}/v1",
            inference_api_key="k",
        )
        await model.register(local)
        async with model.rollout() as trajectory:
            client = openai.AsyncOpenAI(
                base_url=trajectory.base_url, api_key="k", max_retries=0, timeout=0.5
            )
            async with client:
                with pytest.raises(openai.APITimeoutError):
                    await client.chat.completions.create(
                        model="x", messages=ask("m1"), stream=stream
                    )
    assert MODEL_CALLS not in trajectory.metadata
    assert NO_CALLS in str(trajectory.logs)


async def test_what_cant_be_served_is_refused_by_name(
    local: art.LocalBackend, monkeypatch: pytest.MonkeyPatch
) -> None:
    with pytest.raises(ConfigError, match="no provider for the model 'gpt-of-nobody'"):
        await art.Model(name="a", project="p", litellm="gpt-of-nobody").register(local)
    nowhere = art.Model(name="b", project="p")
    await nowhere.register(local)
    with pytest.raises(ConfigError, match="nothing answers"):
        async with nowhere.rollout():
            pass
    with pytest.raises(ConfigError, match="only one"):
        art.Model(name="c", project="p", litellm="openai/x", inference_model_name="y")
    with pytest.raises(ConfigError, match="aren't trained"):
        art.TrainableModel(name="d", project="p", base_model="m", litellm="openai/x")
    monkeypatch.setattr(upstreams, "entry_points", EntryPoints().select)
    with pytest.raises(MissingExtraError, match=r"art-core\[litellm\]"):
        await art.Model(name="e", project="p", litellm="openai/x").register(local)


async def evaluated(model: art.Model[Any], reward: float, scenarios: list[Any]) -> None:
    async def play(scenario: Any) -> art.Trajectory:
        async with model.rollout(scenario) as trajectory:
            await app(str(scenario))
        trajectory.reward = reward
        return trajectory

    groups = await art.evaluate(model, play, scenarios)
    assert [group.trajectories[0].reward for group in groups] == [reward] * len(scenarios)


def compare(root: Path, *words: str) -> Any:
    command = ["compare", *words, "--root", str(root)]
    return CliRunner(env={"COLUMNS": "200"}).invoke(build_app(command), command)


async def test_two_models_are_compared_on_the_scenarios_of_both(
    tmp_path: Path, provider: Provider
) -> None:
    async with art.LocalBackend(tmp_path) as backend:
        one, two = big(provider, "one"), big(provider, "two")
        await one.register(backend)
        await two.register(backend)
        await evaluated(one, 0.25, SCENARIOS)
        await evaluated(two, 0.75, [*SCENARIOS[:2], "m9"])
    found = json.loads(compare(tmp_path, "shop/one", "two", "--json").stdout)
    assert found["scenarios"] == 2
    assert found["left_out"] == {"shop/one@0": 1, "shop/two@0": 1}
    first, second = found["rows"]
    assert (first["reward"], second["reward"]) == (0.25, 0.75)
    assert (first["rollouts"], first["failed"], first["trained"]) == (2, 0, False)
    assert first["model"] == "openai/gpt-4.1"
    assert first["prompt_tokens"] == 1
    assert first["cost_usd"] > 0
    assert first["seconds"] > 0
    shown = compare(tmp_path, "one", "two").stdout
    assert shown.index("shop/two") < shown.index("shop/one")  # the best first
    assert "left out" in shown


async def test_scenarios_are_told_apart_by_content(tmp_path: Path, provider: Provider) -> None:
    async with art.LocalBackend(tmp_path) as backend:
        one, two = big(provider, "one"), big(provider, "two")
        await one.register(backend)
        await two.register(backend)
        first, again = {"text": "m1", "id": 1}, {"id": 1, "text": "m1"}
        await evaluated(one, 0.25, [first, {"text": "m2", "id": 2}])
        await evaluated(two, 0.75, [again, again])
    found = json.loads(compare(tmp_path, "one", "two", "--json").stdout)
    assert found["scenarios"] == 1
    assert found["left_out"] == {"shop/one@0": 1}
    assert [row["rollouts"] for row in found["rows"]] == [1, 2]


async def test_what_cant_be_compared_is_an_error(tmp_path: Path, provider: Provider) -> None:
    async with art.LocalBackend(tmp_path) as backend:
        one, two, never = (big(provider, name) for name in ("one", "two", "never"))
        for model in (one, two, never):
            await model.register(backend)
        await evaluated(one, 0.5, ["m1"])
        await evaluated(two, 0.5, ["m2"])
    for words, problem in [
        (("one", "two"), "no scenario was played by all"),
        (("one", "never"), "never evaluated"),
        (("one@x",), "doesn't end with a step"),
        (("one@7",), "no val trajectories of step 7"),
        (("nobody",), "no run called"),
    ]:
        error = compare(tmp_path, *words).exception
        assert isinstance(error, RunError), (words, error)
        assert problem in str(error)
