# pyright: reportUnknownMemberType=false, reportUnknownVariableType=false, reportUnknownArgumentType=false
"""Clients that dawdle, stop reading or send whatever they like."""

from __future__ import annotations

import asyncio
import socket
import time
from pathlib import Path
from typing import Any
from urllib.parse import urlsplit

import httpx
import pytest
import schemathesis
from hypothesis import HealthCheck, settings
from schemathesis.checks import not_a_server_error
from schemathesis.specs.openapi.checks import response_schema_conformance

import art_core as art
from art_core.server import guard
from tests.art_core.server.agents import new_group, new_model
from tests.art_core.server.conftest import new_key
from tests.art_core.server.processes import ServerProcess


@pytest.mark.long
def test_a_head_that_never_ends_is_cut_off(tmp_path: Path, tiny_model_folder: Path) -> None:
    impatient = (
        "import art_core.server.guard as guard; guard.HEAD_SECONDS = 0.5\n"
        "from art_core.cli.main import main; main()"
    )
    server = ServerProcess(tmp_path, tiny_model_folder).start(code=impatient)
    address = urlsplit(server.url)
    assert guard.HEAD_SECONDS > 0.5
    try:
        for opening in (b"", b"GET /health HTTP/1.1\r\nhost: x\r\nx-slow: "):
            with socket.create_connection((address.hostname, address.port), timeout=10) as slow:
                started = time.monotonic()
                slow.sendall(opening)
                assert slow.recv(100) == b""
                assert time.monotonic() - started < 8
        with httpx.Client(base_url=server.url, trust_env=False) as http:
            for _ in range(2):  # a quick request, and one on a connection that was idle
                assert http.get("/health").status_code == 200
                time.sleep(0.8)
    finally:
        server.stop()


async def test_clients_that_never_read_their_events_hold_up_nobody(
    backend: art.RemoteBackend, server: ServerProcess, tiny_model_folder: Path
) -> None:
    model = new_model(tiny_model_folder)
    await model.register(backend)
    key = new_key(server, "shop")
    group = await new_group(model)
    address = urlsplit(server.url)
    training = asyncio.create_task(backend.train(model, [group], art.StepConfig()))
    async with httpx.AsyncClient(base_url=server.url, trust_env=False) as http:
        headers = {"authorization": f"Bearer {key}"}
        jobs: list[dict[str, str]] = []
        while not jobs:
            answer = await http.get("/art/v1/jobs", headers=headers)
            jobs = [each for each in answer.json()["jobs"] if each["model"] == model.name]
    stuck: list[socket.socket] = []
    for ending in (b"\r\n\r\n", b"\r\nrange: bytes=0-0\r\naccept: nonsense\r\n\r\n\0\xff garbage"):
        one = socket.create_connection((address.hostname, address.port), timeout=10)
        head = f"GET /art/v1/jobs/{jobs[0]['id']}/events HTTP/1.1\r\nhost: x\r\n"
        one.sendall(head.encode() + f"authorization: Bearer {key}".encode() + ending)
        stuck.append(one)
    result = await training
    assert result.step == 1
    second = await backend.train(model, [await new_group(model)], art.StepConfig())
    assert second.step == 2
    for one in stuck:
        one.close()


async def test_a_bad_reader_of_the_event_stream_gets_what_it_asked_for(
    backend: art.RemoteBackend, server: ServerProcess, tiny_model_folder: Path
) -> None:
    headers = {"authorization": f"Bearer {new_key(server, 'shop')}"}
    async with httpx.AsyncClient(base_url=server.url, headers=headers, trust_env=False) as http:
        for job in ("nonsense", "..%2f..%2fetc", "%00", "x" * 5000):
            answer = await http.get(f"/art/v1/jobs/{job}/events")
            assert answer.status_code in (400, 404)
            assert answer.json()["error"]["problem"]


def test_the_api_keeps_to_its_document(server: ServerProcess, tiny_model_folder: Path) -> None:
    """Generated requests never get a server error, nor an answer outside the document."""
    key = new_key(server, "shop")
    with httpx.Client(base_url=server.url, trust_env=False) as http:
        made = http.put(
            "/art/v1/projects/shop/models/generated",
            json={"base_model": str(tiny_model_folder)},
            headers={"authorization": f"Bearer {key}"},
        )
        assert made.status_code == 200, made.text
        document = http.get("/art/v1/openapi.json").json()
    schema: Any = schemathesis.openapi.from_dict(document)
    seen = 0
    for found in schema.get_all_operations():
        seen += _try(found.ok(), server.url, key)
    assert seen > 100


_ALL_CHECKS: Any = tuple(HealthCheck)


def _try(operation: Any, url: str, key: str) -> int:
    from hypothesis import given

    count = 0

    @settings(max_examples=12, deadline=None, database=None, suppress_health_check=[*_ALL_CHECKS])
    @given(case=operation.as_strategy())
    def one(case: Any) -> None:
        nonlocal count
        count += 1
        parameters = case.path_parameters or {}
        if "project" in parameters:
            parameters["project"] = "shop"
        if "model" in parameters and count % 2:
            parameters["model"] = "generated"
        answer = case.call(base_url=url, headers={"authorization": f"Bearer {key}"}, timeout=30)
        case.validate_response(answer, checks=[not_a_server_error, response_schema_conformance])

    one()
    return count
