"""What is asked of a vLLM server besides completions; for threads, not for event loops."""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path
from typing import Any

import httpx

from art_core.errors import AdapterError, EngineError, EngineStartError

_SECONDS = 120.0
"""Reading a large adapter takes a while."""
_NO_RUNTIME_LORA = (
    "Start it with --enable-lora and VLLM_ALLOW_RUNTIME_LORA_UPDATING=True in its environment."
)


def headers_of(api_key: str | None) -> dict[str, str]:
    return {} if api_key is None else {"authorization": f"Bearer {api_key}"}


def message_of(response: httpx.Response) -> str:
    """What the server says is wrong; the body must have been read."""
    try:
        said: Any = response.json()
        return str(said["error"]["message"])
    except (ValueError, KeyError, TypeError):
        return response.text.strip()[:300] or f"status {response.status_code}"


class VllmApi:
    """One server.

    Every method raises ServerGoneError if there is no answer.
    """

    def __init__(self, *, api_key: str | None, trust_env: bool) -> None:
        self._client = httpx.Client(
            headers=headers_of(api_key), timeout=_SECONDS, trust_env=trust_env
        )

    def models(self, url: str) -> list[dict[str, Any]]:
        """The base model and the adapters, as ``/v1/models`` lists them.

        Raises:
            EngineStartError: the key is wrong, or that isn't an OpenAI-compatible server.
        """
        response = self._send("GET", f"{url}/v1/models")
        if response.status_code == 401:
            raise EngineStartError(
                f"vLLM at {url} refuses the API key", "Set it: VllmOptions(api_key=…)."
            )
        try:
            return list(response.json()["data"])
        except (ValueError, KeyError, TypeError) as error:
            raise EngineStartError(
                f"{url}/v1/models answered {response.status_code} and no list of models",
                "url must be that of a vLLM OpenAI server.",
            ) from error

    def complete(self, url: str, body: Mapping[str, Any]) -> dict[str, Any]:
        """A completion that isn't streamed.

        Raises:
            EngineError: the server refuses it.
        """
        response = self._send("POST", f"{url}/v1/completions", body)
        if response.status_code != 200:
            raise EngineError(f"vLLM at {url} refused a request: {message_of(response)}")
        return response.json()

    def load_adapter(self, url: str, name: str, path: Path) -> None:
        """Raises AdapterError: the server can't load it; says why."""
        body = {"lora_name": name, "lora_path": str(path)}
        response = self._send("POST", f"{url}/v1/load_lora_adapter", body)
        if response.status_code == 200:
            return
        said = message_of(response)
        if "already been loaded" in said:
            return  # names are never used twice: it is this one
        if response.status_code in (404, 405) and "adapter" not in said.lower():
            raise AdapterError(f"vLLM at {url} loads no adapters while it runs", _NO_RUNTIME_LORA)
        raise AdapterError(f"vLLM can't load adapter {name}: {said}", _remedy(said))

    def unload_adapter(self, url: str, name: str) -> None:
        """No effect if it isn't loaded."""
        response = self._send("POST", f"{url}/v1/unload_lora_adapter", {"lora_name": name})
        if response.status_code not in (200, 404):
            raise AdapterError(f"vLLM can't unload adapter {name}: {message_of(response)}")

    def sleep(self, url: str) -> None:
        """Move the weights to the CPU's memory and drop the KV cache."""
        self._post_empty(f"{url}/sleep?level=1&mode=wait")

    def wake_up(self, url: str) -> None:
        self._post_empty(f"{url}/wake_up")

    def close(self) -> None:
        self._client.close()

    def _post_empty(self, url: str) -> None:
        response = self._send("POST", url)
        if response.status_code != 200:
            raise EngineError(
                f"{url} answered {response.status_code}: {message_of(response)}",
                "Turn it off with VllmOptions(sleep=False).",
            )

    def _send(self, method: str, url: str, body: Mapping[str, Any] | None = None) -> httpx.Response:
        try:
            return self._client.request(method, url, json=body)
        except httpx.TransportError as error:
            raise ServerGoneError(f"{url}: {error!r}") from error


class ServerGoneError(EngineError):
    """There was no answer: the server is gone, or about to be."""


def _remedy(said: str) -> str | None:
    if "rank" in said:
        return "Raise VllmOptions.max_lora_rank (the server's --max-lora-rank)."
    if "No adapter found" in said:
        return "A server on another machine must see the run directory under the same path."
    return None
