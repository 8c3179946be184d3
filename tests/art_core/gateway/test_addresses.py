"""Where a gateway listens, and what it refuses to listen on."""

from __future__ import annotations

import httpx
import pytest

from art_core.errors import ConfigError, GatewayError
from art_core.gateway import GatewayServer


@pytest.mark.parametrize("host", ["0.0.0.0", "::", "192.168.0.1", "example.org", ""])
def test_beyond_loopback_a_key_is_needed(host: str) -> None:
    with pytest.raises(ConfigError, match=r"without an API key. Pass api_key="):
        GatewayServer(host=host)


def test_an_empty_key_is_no_key() -> None:
    with pytest.raises(ConfigError, match="api_key is empty"):
        GatewayServer(api_key="")


@pytest.mark.parametrize("host", ["127.0.0.1", "localhost", "::1", "127.0.0.2"])
def test_loopback_needs_none(host: str) -> None:
    server = GatewayServer(host=host)
    server.start()
    assert httpx.get(f"{server.url}/health").json()["status"] == "ok"
    server.stop()


def test_all_addresses_with_a_key() -> None:
    server = GatewayServer(host="0.0.0.0", api_key="k")
    server.start()
    assert server.url.startswith("http://127.0.0.1:")
    assert httpx.get(f"{server.url}/health").json() == {"status": "ok"}
    server.stop()


@pytest.mark.parametrize("host", ["no.such.host.invalid", "192.0.2.1"])
def test_an_address_that_is_not_ours(host: str) -> None:
    with pytest.raises(ConfigError, match=f"can't listen on host '{host}', port 0"):
        GatewayServer(host=host, api_key="k").start()


@pytest.mark.parametrize("port", [-1, 65536])
def test_a_port_out_of_range(port: int) -> None:
    with pytest.raises(ConfigError, match=f"port is {port}"):
        GatewayServer(port=port)


def test_a_server_that_was_not_started_says_so() -> None:
    server = GatewayServer()
    with pytest.raises(GatewayError, match=r"isn't running. Call start\(\) first"):
        _ = server.url
    server.stop()
