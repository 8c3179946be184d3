# pyright: reportUnknownMemberType=false, reportUnknownVariableType=false
# pyright: reportUnknownArgumentType=false, reportUnknownLambdaType=false
"""Bodies that would take long to parse are refused before they are."""

from __future__ import annotations

import json
import threading
import time
from typing import Any

import httpx
import pytest
from hypothesis import given
from hypothesis import strategies as st

from art_core.gateway import GatewayServer, bodies

MANY = b'{"model": "m", "prompt": [' + b"5," * 16_000_000 + b"5]}"


@pytest.mark.parametrize("path", ["completions", "chat/completions", "responses", "messages"])
def test_millions_of_values_are_refused_and_nobody_waits_for_it(path: str) -> None:
    """Parsing these takes seconds, in which Python's lock is held."""
    server = GatewayServer()
    server.start()
    ended = threading.Event()
    waits: list[float] = []

    def ask() -> None:
        while not ended.is_set():
            started = time.monotonic()
            httpx.get(f"{server.url}/health")
            waits.append(time.monotonic() - started)

    thread = threading.Thread(target=ask)
    thread.start()
    try:
        response = httpx.post(f"{server.url}/v1/{path}", content=MANY, timeout=60)
    finally:
        ended.set()
        thread.join()
        server.stop()
    assert response.status_code == 413
    assert "more than 250000 values" in response.json()["error"]["message"]
    assert max(waits) < 1


def test_a_text_of_commas_is_one_value() -> None:
    server = GatewayServer()
    server.start()
    try:
        fields = {"model": "m", "prompt": '\\,"' * 400_000}
        response = httpx.post(f"{server.url}/v1/completions", json=fields)
    finally:
        server.stop()
    assert response.json()["error"]["code"] == "model_not_found"


VALUES = st.recursive(
    st.none() | st.integers() | st.text(alphabet='\\",a', max_size=70),
    lambda inner: st.lists(inner, max_size=5) | st.dictionaries(st.text(), inner, max_size=5),
    max_leaves=20,
)


def commas(value: Any) -> int:
    """Between the members of lists and objects."""
    if not isinstance(value, list | dict) or not value:
        return 0
    inner: Any = value.values() if isinstance(value, dict) else value
    return len(inner) - 1 + sum(map(commas, inner))


@given(VALUES, st.integers(1, 9))
def test_values_are_counted_outside_strings(value: Any, piece: int) -> None:
    text = json.dumps(value).encode()
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(bodies, "_PIECE", piece)
        assert not bodies.has_more_values(text, commas(value) + 1)
        assert bodies.has_more_values(text, commas(value)) or not commas(value)
