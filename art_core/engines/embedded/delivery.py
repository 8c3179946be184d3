"""From the engine's thread to clients in any number of event loops."""

from __future__ import annotations

import asyncio
from collections.abc import Callable

from art_core.engines.embedded.request import Event
from art_core.errors import EngineError


class Delivery:
    """Collects a step's events and wakes each event loop once for all of its clients."""

    def __init__(self) -> None:
        self._pending: dict[asyncio.AbstractEventLoop, list[tuple[AsyncClient, Event]]] = {}

    def add(self, client: AsyncClient, event: Event) -> None:
        self._pending.setdefault(client.loop, []).append((client, event))

    def flush(self) -> None:
        for loop, items in self._pending.items():
            try:
                loop.call_soon_threadsafe(_deliver, items)
            except RuntimeError:  # the loop is closed
                for client, _ in items:
                    client.gone = True
        self._pending = {}


class AsyncClient:
    """Reads one request's events in the event loop that it is made in."""

    def __init__(self, delivery: Delivery) -> None:
        self.loop = asyncio.get_running_loop()
        self.events: asyncio.Queue[Event] = asyncio.Queue()
        self.gone = False
        self._delivery = delivery

    def send(self, event: Event) -> None:
        """From the engine's thread; arrives at the next flush."""
        self._delivery.add(self, event)


class Watch:
    """Asks ``check`` every so many seconds, and tells a client what it raises."""

    def __init__(self, client: AsyncClient, check: Callable[[], None], every: float) -> None:
        self._client = client
        self._check = check
        self._every = every
        self._timer = client.loop.call_later(every, self._look)

    def cancel(self) -> None:
        self._timer.cancel()

    def _look(self) -> None:
        try:
            self._check()
        except EngineError as error:
            self._client.events.put_nowait(error)
        else:
            self._timer = self._client.loop.call_later(self._every, self._look)


def _deliver(items: list[tuple[AsyncClient, Event]]) -> None:
    for client, event in items:
        client.events.put_nowait(event)
