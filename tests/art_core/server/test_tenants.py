"""Two projects on one server: they share base model and trainer, and see nothing of each other."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator
from pathlib import Path
from typing import Any

import httpx
import openai
import pytest

import art_core as art
from art_core.errors import AccessDeniedError, LimitExceededError, UnknownCompletionError
from art_core.server.keys import KeyStore
from tests.art_core.server.agents import new_group, new_model
from tests.art_core.server.conftest import new_key
from tests.art_core.server.processes import ServerProcess
from tests.art_core.server.test_keys import WORST_NAMES

CONFIG = art.StepConfig(learning_rate=1e-2)


@pytest.fixture
async def bank(server: ServerProcess, tmp_path: Path) -> AsyncIterator[art.RemoteBackend]:
    key = new_key(server, "bank")
    async with art.RemoteBackend(server.url, key, root=tmp_path / "bank") as backend:
        yield backend


async def test_two_clients_train_models_of_one_name_at_once(
    backend: art.RemoteBackend, bank: art.RemoteBackend, tiny_model_folder: Path
) -> None:
    models = [
        new_model(tiny_model_folder, project=project, name="same") for project in ("shop", "bank")
    ]
    for model, where in zip(models, (backend, bank), strict=True):
        await model.register(where)
    groups = await asyncio.gather(*(new_group(model) for model in models))
    for step in (1, 2):
        results = await asyncio.gather(
            *(
                where.train(model, [group], CONFIG)
                for model, where, group in zip(models, (backend, bank), groups, strict=True)
            )
        )
        assert [result.step for result in results] == [step, step]
        groups = await asyncio.gather(*(new_group(model) for model in models))
    ids = groups[0].trajectories[0].histories[0].completion_ids
    assert len(await backend.completions(models[0], ids)) == len(ids)
    with pytest.raises(UnknownCompletionError):
        await bank.completions(models[1], ids)
    with pytest.raises(UnknownCompletionError):
        await bank.train(models[1], [groups[0]], CONFIG)


async def test_one_project_sees_and_reaches_nothing_of_another(
    backend: art.RemoteBackend, server: ServerProcess, tiny_model_folder: Path
) -> None:
    model = new_model(tiny_model_folder)
    await model.register(backend)
    await backend.train(model, [await new_group(model)], CONFIG)
    stranger = new_key(server, "bank")
    headers = {"authorization": f"Bearer {stranger}"}
    ticket = await backend.open_rollout(model, mode="train")
    async with httpx.AsyncClient(base_url=server.url, headers=headers, trust_env=False) as http:
        models = (await http.get("/v1/models")).json()["data"]
        assert not [each for each in models if model.name in each["id"]]
        body: dict[str, Any] = {"model": model.name, "messages": [{"role": "user", "content": "x"}]}
        assert (await http.post("/v1/chat/completions", json=body)).status_code == 404
        inside = f"/r/{ticket.rollout_id}/v1/chat/completions"
        assert (await http.post(inside, json=body)).status_code == 401
        path = f"/art/v1/projects/shop/models/{model.name}"
        for method, where in (
            ("GET", path),
            ("POST", f"{path}/steps"),
            ("DELETE", f"{path}/rollouts/{ticket.rollout_id}"),
            ("GET", "/art/v1/projects/shop/models"),
        ):
            answer = await http.request(method, where)
            assert answer.status_code == 403, where
        jobs = (await http.get("/art/v1/jobs")).json()["jobs"]
        assert model.name not in {job["model"] for job in jobs}
        own = await http.get(f"/art/v1/projects/bank/models/{model.name}")
        assert own.status_code == 404
    await backend.close_rollout(model, ticket.rollout_id)


async def test_every_checkpoint_is_listed_and_answers(
    backend: art.RemoteBackend, tiny_model_folder: Path
) -> None:
    model = new_model(tiny_model_folder)
    await model.register(backend)
    for step in range(3):
        await backend.train(model, [await new_group(model, f"town {step}")], CONFIG)
        if step == 1:
            await backend.log(model, [await new_group(model, "Bern")], split="val")
    client = model.openai_client()
    name = model.name
    served = {each.id async for each in client.models.list()}
    assert {name, f"{name}@1", f"{name}@2", f"{name}@3", f"{name}:best"} <= served
    versions = {}
    for asked in (name, f"{name}@1", f"{name}@2", f"{name}:best"):
        done: Any = await client.chat.completions.create(
            model=asked, messages=[{"role": "user", "content": "hello"}], max_tokens=4
        )
        versions[asked] = done.policy_version
    assert versions == {name: 3, f"{name}@1": 1, f"{name}@2": 2, f"{name}:best": 2}
    with pytest.raises(openai.NotFoundError):
        await client.chat.completions.create(
            model=f"{name}@9", messages=[{"role": "user", "content": "hello"}]
        )


async def test_a_revoked_key_is_refused_at_once(
    server: ServerProcess, tiny_model_folder: Path, tmp_path: Path
) -> None:
    store = KeyStore(server.root)
    record, key = store.create("shop", tmp_path.name)
    async with art.RemoteBackend(server.url, key, root=tmp_path) as backend:
        model = new_model(tiny_model_folder)
        await model.register(backend)
        store.revoke(record.id)
        with pytest.raises(AccessDeniedError, match="revoked"):
            await model.get_step()


async def test_limits_of_a_key(
    server: ServerProcess, tiny_model_folder: Path, tmp_path: Path
) -> None:
    key = new_key(server, "shop", rollouts=2, tokens_per_day=200)
    async with art.RemoteBackend(server.url, key, root=tmp_path, patience=0.3) as backend:
        model = new_model(tiny_model_folder)
        await model.register(backend)
        tickets = [await backend.open_rollout(model, mode="train") for _ in range(2)]
        with pytest.raises(LimitExceededError, match="has 2 rollouts open, of 2"):
            await backend.open_rollout(model, mode="train")
        for ticket in tickets:
            await backend.close_rollout(model, ticket.rollout_id)
        client = model.openai_client().with_options(max_retries=0)
        body: Any = {"model": model.name, "messages": [{"role": "user", "content": "a b c " * 100}]}
        await client.chat.completions.create(**body, max_tokens=4)
        with pytest.raises(openai.RateLimitError, match="tokens today, of 200"):
            await client.chat.completions.create(**body, max_tokens=4)
        with pytest.raises(LimitExceededError, match="tokens today, of 200"):
            await backend.open_rollout(model, mode="train")
    slow = new_key(server, "shop", requests_per_minute=1)
    async with httpx.AsyncClient(base_url=server.url, trust_env=False) as http:
        headers = {"authorization": f"Bearer {slow}"}
        answers = [await http.get("/art/v1/jobs", headers=headers) for _ in range(2)]
        assert [answer.status_code for answer in answers] == [200, 429]
        assert int(answers[1].headers["retry-after"]) > 1


@pytest.mark.parametrize("name", WORST_NAMES[2:], ids=lambda name: repr(name)[:20])
async def test_worst_names_of_models(
    server: ServerProcess, tiny_model_folder: Path, name: str
) -> None:
    from urllib.parse import quote

    before = {str(path) for path in server.root.parent.rglob("run.json")}
    headers = {"authorization": f"Bearer {new_key(server, 'shop')}"}
    async with httpx.AsyncClient(base_url=server.url, headers=headers, trust_env=False) as http:
        path = f"/art/v1/projects/shop/models/{quote(name, safe='')[:20_000]}"
        answer = await http.put(path, json={"base_model": str(tiny_model_folder)})
    assert answer.status_code in (400, 404)
    assert {str(path) for path in server.root.parent.rglob("run.json")} == before


async def test_bodies_that_are_too_large_or_no_json(server: ServerProcess) -> None:
    headers = {"authorization": f"Bearer {new_key(server, 'shop')}"}
    async with httpx.AsyncClient(base_url=server.url, headers=headers, trust_env=False) as http:
        path = "/art/v1/projects/shop/models/large"
        large = await http.put(path, content=b"x" * (2 * 2**20))
        assert large.status_code == 413
        for body in (b"", b"{", b"[]", b"null", b'{"base_model": 1}', b"[" * 100_000, b"\xff"):
            answer = await http.put(path, content=body)
            assert answer.status_code == 400, body[:20]
            assert answer.json()["error"]["problem"]
