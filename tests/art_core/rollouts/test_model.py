from __future__ import annotations

import asyncio
import json
from typing import TYPE_CHECKING, Any

import pytest
from pydantic import BaseModel

from art_core.config import CaptureConfig, LoraConfig
from art_core.errors import ConfigError
from art_core.rollouts import Model, TrainableModel
from art_core.trajectories import Trajectory, TrajectoryGroup

if TYPE_CHECKING:
    from scripted_backend import ScriptedBackend


class Prompts(BaseModel):
    system: str = "be brief"


def test_a_model_is_made_as_openpipe_users_make_it() -> None:
    model = Model(
        name="gpt-4.1",
        project="shop",
        config=Prompts(),
        inference_api_key="sk-secret",
        inference_base_url="https://api.openai.com/v1",
        inference_model_name="openai/gpt-4.1",
    )
    assert model.get_inference_name() == "openai/gpt-4.1"
    assert model.config.system == "be brief"
    assert not model.trainable
    trainable = TrainableModel(name="bot", project="shop", base_model="Qwen/Qwen3-4B")
    assert trainable.trainable
    assert trainable.get_inference_name() == "bot"
    assert trainable.get_inference_name(step=3) == "bot@3"


def test_the_name_may_go_without_saying() -> None:
    big = Model("gpt-4.1", litellm="openai/gpt-4.1")
    assert (big.name, big.project) == ("gpt-4.1", "default")
    assert big == Model(name="gpt-4.1", project="default", litellm="openai/gpt-4.1")
    assert Model[Prompts]("m", config=Prompts()).config.system == "be brief"
    assert Model.model_validate_json(big.model_dump_json()) == big
    assert TrainableModel("bot", project="shop", base_model="tiny").name == "bot"


def test_a_model_needs_one_name() -> None:
    with pytest.raises(ConfigError, match="Model: name"):
        Model(litellm="openai/gpt-4.1")  # type: ignore[call-arg]
    with pytest.raises(TypeError, match="name"):
        Model("a", name="b")  # type: ignore[call-arg]


def test_keys_and_urls_are_never_written() -> None:
    model = TrainableModel(
        name="bot",
        project="shop",
        base_model="tiny",
        lora=LoraConfig(rank=2),
        config=Prompts(),
        inference_api_key="sk-secret",
        inference_base_url="https://secret.example",
    )
    for text in (model.model_dump_json(), str(model.model_dump()), repr(model), str(model)):
        assert "secret" not in text
    again = TrainableModel[Prompts].model_validate_json(model.model_dump_json())
    assert again.lora == model.lora
    assert again.config == Prompts()
    assert again.inference_api_key is None


@pytest.mark.parametrize(
    ("fields", "problem"),
    [
        ({"name": "../x"}, r"TrainableModel: name is '\.\./x'"),
        ({"project": ""}, "project is ''"),
        ({"base_model": ""}, "base_model is ''"),
        ({"base_modle": "tiny"}, "base_modle is 'tiny': Extra inputs"),
        ({"lora": {"rank": 0}}, r"lora\.rank is 0|LoraConfig: rank is 0"),
    ],
)
def test_what_is_wrong_with_a_model_is_named(fields: dict[str, Any], problem: str) -> None:
    settings: dict[str, Any] = {"name": "bot", "project": "shop", "base_model": "tiny"}
    with pytest.raises(ConfigError, match=problem):
        TrainableModel(**(settings | fields))


@pytest.mark.parametrize("host", ["", "https://api.openai.com", "api.openai.com/v1", " x"])
def test_a_capture_host_is_a_host(host: str) -> None:
    with pytest.raises(ConfigError, match="write only the host's name"):
        CaptureConfig(hosts=(host,))


def test_an_unregistered_model_says_what_to_do() -> None:
    model = TrainableModel(name="bot", project="shop", base_model="tiny")
    with pytest.raises(ConfigError, match=r"'bot' has no backend.*model\.register\(backend\)"):
        model.backend()
    with pytest.raises(ConfigError, match=r"First: await model\.register"):
        model.openai_client()
    with pytest.raises(ConfigError, match=r"Pass both to Model"):
        Model(name="gpt", project="shop").openai_client()


async def test_an_unregistered_model_has_no_rollouts() -> None:
    model = TrainableModel(name="bot", project="shop", base_model="tiny")
    with pytest.raises(ConfigError, match="has no backend"):
        async with model.rollout():
            pytest.fail("it opened")


async def test_registering_makes_it_callable(
    backend: ScriptedBackend, model: TrainableModel[Any]
) -> None:
    assert model.backend() is backend
    assert await model.get_step() == 0
    client = model.openai_client()
    assert client is model.openai_client(), "one client for all in a loop"
    answer = await client.chat.completions.create(
        model=model.get_inference_name(), messages=[{"role": "user", "content": "hello"}]
    )
    assert answer.choices[0].message.content in ("right", "wrong")
    assert backend.calls[0].rollout_id is None, "outside of a rollout nothing is attributed"


def test_each_event_loop_has_a_client_of_its_own() -> None:
    model = Model(
        name="gpt", project="p", inference_api_key="k", inference_base_url="http://127.0.0.1:1"
    )

    async def client() -> object:
        return model.openai_client()

    assert asyncio.run(client()) is not asyncio.run(client())
    assert model.openai_client() is not None, "nor does it need a loop"


async def test_trajectories_groups_and_exceptions_are_logged(
    backend: ScriptedBackend, model: TrainableModel[Any]
) -> None:
    await model.log([Trajectory(reward=1.0), ValueError("no luck")], split="test")
    await model.log([TrajectoryGroup([Trajectory(reward=0.0)])])
    run = backend.run_directory(model)
    assert [(row.split, row.metrics["reward"]) for row in run.metrics.read()] == [
        ("test", 1.0),
        ("val", 0.0),
    ]
    (group,) = run.trajectories.read("test", 0)
    assert [error.message for error in group.exceptions] == ["no luck"]
    with pytest.raises(ConfigError, match=r"log was given 3 \(int\)"):
        await model.log([3])  # type: ignore[list-item]


async def test_a_model_that_is_only_compared_with_can_be_logged_too(
    backend: ScriptedBackend,
) -> None:
    model = Model(name="gpt-4.1", project="shop")
    await model.register(backend)
    await model.log([Trajectory(reward=1.0)])
    run = backend.run_directory(model)
    assert run.metrics.read()[0].metrics["reward"] == 1.0
    assert json.loads((run.path / "run.json").read_text())["base_model"] is None
