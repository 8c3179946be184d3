"""Requests' bodies: read, and refused before they are parsed where that would take too long.

A JSON parser holds the interpreter's lock, and all other requests with it, for as
long as there are values to be made: a body may not have many more than a prompt of
token ids that fills the context.
"""

from __future__ import annotations

import asyncio

from starlette.requests import Request

from art_core.gateway.access import Door
from art_core.gateway.problems import Problem
from art_core.gateway.registry import Registry

_MOST_OTHERS = 250_000
"""Values besides the prompt's token ids: parsed in some 20 ms."""
_PIECE = 2**16
"""Bytes, looked at in a millisecond at most."""


class Bodies:
    """Reads the bodies of those who are let in."""

    def __init__(self, door: Door, registry: Registry, max_bytes: int) -> None:
        self._door = door
        self._registry = registry
        self._max_bytes = max_bytes

    async def read(self, request: Request) -> bytes:
        """A request's body.

        Raises:
            Problem: 401 or 404, as `Door.admit`; 413, it has too many bytes or values.
        """
        body = await read_body(request, self._max_bytes)
        rollout = self._door.admit(request)
        policies = self._registry.policies() if rollout is None else [rollout.policy]
        context = max((policy.engine.info.context_length for policy in policies), default=0)
        await check_values(body, context)
        return body


async def check_values(body: bytes, context: int) -> None:
    """Refuse a body before it is parsed.

    Args:
        context: tokens of the longest prompt that may be in it.

    Raises:
        Problem: 413, it has many more values.
    """
    most = _MOST_OTHERS + context
    if len(body) > most and await asyncio.to_thread(has_more_values, body, most):
        longest = f"; the longest prompt here has {context} tokens" if context else ""
        raise _too_large(f"{most} values{longest}")


def has_more_values(body: bytes, most: int) -> bool:
    """Whether a JSON text has more values than ``most``, by the commas outside its strings."""
    if body.count(b",") < most:
        return False
    count, at, in_string = 1, 0, False
    while at < len(body):
        end = at + _PIECE
        while end < len(body) and body[end - 1] == 0x5C:  # a backslash, and what it escapes
            end += 1
        plain = body[at:end].replace(rb"\\", b"").replace(rb"\"", b"")
        parts = plain.split(b'"')
        count += sum(part.count(b",") for part in parts[in_string::2])
        if count > most:
            return True
        in_string ^= len(parts) % 2 == 0
        at = end
    return False


async def read_body(request: Request, limit: int) -> bytes:
    """A request's body.

    Raises:
        Problem: 413, it has more bytes than ``limit``.
    """
    announced = request.headers.get("content-length", "")
    if announced.isdecimal() and int(announced) > limit:
        raise _too_large(f"{limit} bytes")
    parts: list[bytes] = []
    size = 0
    async for part in request.stream():
        size += len(part)
        if size > limit:
            raise _too_large(f"{limit} bytes")
        parts.append(part)
    return b"".join(parts)


def _too_large(most: str) -> Problem:
    return Problem(
        status=413,
        message=f"The request's body has more than {most}.",
        code="request_too_large",
        headers={"connection": "close"},
    )
