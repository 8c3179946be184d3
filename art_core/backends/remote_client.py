"""HTTP to ``art serve``: retries, errors by name, and events that survive dropped connections."""

from __future__ import annotations

import asyncio
import json
import logging
import time
from collections.abc import AsyncIterator
from typing import TypeVar
from urllib.parse import quote, urlsplit

import httpx
from pydantic import BaseModel, ValidationError

from art_core import errors
from art_core.backends.remote_api import PREFIX, ErrorAnswer, ErrorBody, JobView
from art_core.errors import AccessDeniedError, ArtError, ServerError, ServerUnreachableError
from art_core.rollouts.backend import LOOPBACK

_log = logging.getLogger(__name__)
AnswerT = TypeVar("AnswerT", bound=BaseModel)

_CALL_SECONDS = 120.0
_SILENCE_SECONDS = 40.0
"""The server says something every 10 s while a step is waited for."""
_FIRST_PAUSE, _LONGEST_PAUSE = 0.1, 5.0
_TRY_AGAIN = frozenset({429, 502, 503, 504})


class RemoteClient:
    """Calls a server, again and again for ``patience`` seconds where it can't be reached.

    So every call must be one that may arrive twice.
    """

    def __init__(self, url: str, api_key: str, patience: float) -> None:
        self._patience = patience
        self.url = url.rstrip("/")
        self._http = httpx.AsyncClient(
            base_url=self.url + PREFIX,
            headers={"authorization": f"Bearer {api_key}"},
            timeout=_CALL_SECONDS,
            limits=httpx.Limits(max_connections=None, max_keepalive_connections=20),
            trust_env=urlsplit(url).hostname not in LOOPBACK,
        )

    async def close(self) -> None:
        await self._http.aclose()

    async def call(
        self,
        kind: type[AnswerT],
        method: str,
        *path: str,
        body: BaseModel | None = None,
        key: str | None = None,
    ) -> AnswerT:
        """Send a request; the answer as ``kind``.

        Raises:
            ArtError: as the server named it.
            ServerUnreachableError: it gave no answer for as long as there was patience.
        """
        headers = {"content-type": "application/json"}
        if key is not None:
            headers["idempotency-key"] = key
        content = None if body is None else body.model_dump_json().encode()
        patience = _Patience(self._patience, self.url)
        while True:
            try:
                answer = await self._http.request(
                    method, _path(path), content=content, headers=headers
                )
            except httpx.TransportError as error:
                await patience.wait(error)
                continue
            if answer.status_code in _TRY_AGAIN and "retry-after" in answer.headers:
                await patience.wait(error_of(answer.status_code, answer.content))
                continue
            return _read(kind, answer.status_code, answer.content)

    async def finished(self, job_id: str) -> JobView:
        """Wait until a job is over, over as many connections as that takes."""
        patience = _Patience(self._patience, self.url)
        while True:
            try:
                async for job in self._events(job_id):
                    patience.renew()
                    if job.state in ("done", "failed"):
                        return job
                    if job.position:
                        _log.info(
                            "%d training steps are before that of %s", job.position, job.model
                        )
                await patience.wait(ServerError("the stream of events ended early"))
            except httpx.TransportError as error:
                await patience.wait(error)

    async def _events(self, job_id: str) -> AsyncIterator[JobView]:
        timeout = httpx.Timeout(_CALL_SECONDS, read=_SILENCE_SECONDS)
        path = _path(("jobs", job_id, "events"))
        async with self._http.stream("GET", path, timeout=timeout) as answer:
            if answer.status_code in _TRY_AGAIN:
                return
            if answer.status_code != 200:
                _read(JobView, answer.status_code, await answer.aread())
            async for line in answer.aiter_lines():
                if line.startswith("data: "):
                    yield _parse(JobView, line.removeprefix("data: "))


class _Patience:
    """Waits a little longer each time, and gives up in the end."""

    def __init__(self, seconds: float, url: str) -> None:
        self._seconds = seconds
        self._url = url
        self.renew()

    def renew(self) -> None:
        self._until = time.monotonic() + self._seconds
        self._pause = _FIRST_PAUSE

    async def wait(self, error: Exception) -> None:
        """Raises ServerUnreachableError, or what the server said last: there was enough waiting."""
        if time.monotonic() + self._pause > self._until:
            if isinstance(error, ArtError):
                raise error
            raise ServerUnreachableError(
                f"the server at {self._url} can't be reached: {type(error).__name__} {error}",
                "Check the URL, and that 'art serve' runs. A training step that had begun goes "
                "on there: train with the same groups again to get its result.",
            ) from error
        await asyncio.sleep(self._pause)
        self._pause = min(self._pause * 2, _LONGEST_PAUSE)


def as_exception(body: ErrorBody) -> ArtError:
    """The exception that the server named; one that isn't ours is a ServerError."""
    kind = getattr(errors, body.type, None)
    if isinstance(kind, type) and issubclass(kind, ArtError):
        return kind(body.problem, body.remedy)
    return ServerError(body.problem, body.remedy)


def error_of(status: int, content: bytes) -> ArtError:
    """What an answer that isn't a success says."""
    try:
        return as_exception(ErrorAnswer.model_validate_json(content).error)
    except ValidationError:
        pass
    if status in (401, 403):
        return AccessDeniedError(f"the server refused the key (HTTP {status})")
    text = content[:200].decode(errors="replace")
    return ServerError(
        f"the server answered with HTTP {status}: {text}", "Is that the URL of an 'art serve'?"
    )


def _read(kind: type[AnswerT], status: int, content: bytes) -> AnswerT:
    if not 200 <= status < 300:
        raise error_of(status, content)
    return _parse(kind, content)


def _parse(kind: type[AnswerT], content: str | bytes) -> AnswerT:
    try:
        return kind.model_validate(json.loads(content))
    except ValueError as error:
        raise ServerError(
            f"the server's answer can't be read: {error!s:.300}",
            "Is that the URL of an 'art serve' of the same version?",
        ) from error


def _path(parts: tuple[str, ...]) -> str:
    return "/" + "/".join(quote(part, safe="") for part in parts)
