"""The gateway as a server in a thread of its own."""

from __future__ import annotations

from collections.abc import Iterable, Mapping

from art_core.engines.protocol import AdapterRef
from art_core.errors import ConfigError, GatewayError, StorageError
from art_core.gateway.access import ROLLOUT_HEADER, rollout_not_open
from art_core.gateway.app import build_app
from art_core.gateway.call import Call
from art_core.gateway.policy import Policy
from art_core.gateway.problems import Problem
from art_core.gateway.registry import Registry
from art_core.gateway.rollout import OpenRollout
from art_core.gateway.thread import ServerThread, is_loopback, listen
from art_core.rollouts.backend import RolloutMode, RolloutTicket
from art_core.trajectories import Completion


class GatewayServer:
    """Serves policies to OpenAI clients and records every completion.

    It runs in a thread with an event loop of its own, so a synchronous agent
    can't block it. All methods may be called from any thread; those that come in
    two forms block as ``name`` and are awaited, from any event loop, as ``aname``.

    Args:
        host: the address to listen on.
        port: 0 takes a free one.
        api_key: what clients must send as their API key, unless they send the one
            minted for their rollout. None: anything goes, on loopback only.
        max_body_bytes: larger requests are refused.

    Raises:
        ConfigError: an address beyond loopback without a key, or a port out of range.
    """

    def __init__(
        self,
        host: str = "127.0.0.1",
        port: int = 0,
        api_key: str | None = None,
        *,
        max_body_bytes: int = 64 * 2**20,
    ) -> None:
        if api_key == "":
            raise ConfigError("api_key is empty", "Leave it out, or give a key.")
        if api_key is None and not is_loopback(host):
            raise ConfigError(
                f"the gateway would listen on {host!r}, which other machines can reach, "
                "without an API key",
                "Pass api_key=, or listen on 127.0.0.1.",
            )
        if not 0 <= port <= 65535:
            raise ConfigError(f"port is {port}", "Ports go from 1 to 65535; 0 takes a free one.")
        self._host = host
        self._port = port
        self._registry = Registry()
        self._app = build_app(self._registry, api_key=api_key, max_body_bytes=max_body_bytes)
        self._thread: ServerThread | None = None

    @property
    def url(self) -> str:
        """``http://host:port``, as this machine reaches it."""
        host, port = self._running().address
        host = {"0.0.0.0": "127.0.0.1", "::": "::1"}.get(host, host)
        return f"http://[{host}]:{port}" if ":" in host else f"http://{host}:{port}"

    @property
    def quarantined(self) -> int:
        """Completions served since the start that belong to no rollout."""
        return sum(policy.quarantined for policy in self._registry.policies())

    def start(self) -> None:
        """Listen. Returns once calls are accepted.

        Raises:
            PortTakenError: another program listens there.
            GatewayError: the address can't be listened on, or the server is running.
        """
        if self._thread is not None:
            raise GatewayError("the gateway is already running")
        listener = listen(self._host, self._port)
        thread = ServerThread(self._app, listener)
        thread.start()
        self._thread = thread

    def stop(self) -> None:
        """Abandon the calls in flight, record them, and stop listening. May be called twice."""
        thread, self._thread = self._thread, None
        if thread is not None:
            try:
                thread.run(self._abandon_everything())
            finally:
                thread.stop()

    def add_policy(self, policy: Policy) -> None:
        """Serve a policy under its name.

        Raises:
            ConfigError: the name is taken, or can't be part of a model name.
        """
        self._registry.add_policy(policy)

    def set_adapter(self, name: str, adapter: AdapterRef | None) -> None:
        """Serve another version from now on. Open rollouts keep theirs.

        Raises:
            UnknownModelError: no policy has this name.
        """
        self._registry.set_adapter(name, adapter)

    def unused_versions(self, name: str) -> list[int]:
        """Versions of a policy that are offered, but neither current nor pinned by an open
        rollout: they may be retired."""
        return self._registry.unused_versions(name)

    def retire_version(self, name: str, version: int) -> None:
        """No longer serve a version as ``name@version``.

        Raises:
            ConfigError: it is current, or an open rollout is pinned to it.
        """
        self._registry.retire_version(name, version)

    def open_rollout(
        self,
        policy: str,
        *,
        mode: RolloutMode,
        seed: int | None = None,
        tags: Mapping[str, str] | None = None,
    ) -> RolloutTicket:
        """Attribute calls to a new rollout of a policy, pinned to its current version.

        ``seed`` (None: a random one) determines what is sampled; ``tags`` are kept
        with every record.

        Raises:
            UnknownModelError: no policy has this name.
        """
        url = self.url
        rollout = self._registry.open_rollout(policy, mode, seed, tags or {})
        return RolloutTicket(
            rollout_id=rollout.id,
            base_url=f"{url}/r/{rollout.id}/v1",
            api_key=rollout.key,
            headers={ROLLOUT_HEADER: rollout.key},
            policy_version=rollout.version,
        )

    def close_rollout(self, rollout_id: str) -> list[Completion]:
        """Stop serving a rollout; returns its records, in the order in which they were made.

        Calls in flight are abandoned, and recorded as that.

        Raises:
            GatewayError: no such rollout is open.
            StorageError: a last record couldn't be written.
        """
        return self._running().run(self._close(self._open(rollout_id)))

    async def aclose_rollout(self, rollout_id: str) -> list[Completion]:
        """`close_rollout`, awaited."""
        return await self._running().arun(self._close(self._open(rollout_id)))

    def _running(self) -> ServerThread:
        if self._thread is None:
            raise GatewayError("the gateway isn't running", "Call start() first.")
        return self._thread

    def _open(self, rollout_id: str) -> OpenRollout:
        rollout = self._registry.rollout(rollout_id)
        if rollout is None:
            raise GatewayError(f"rollout {rollout_id!r} isn't open")
        return rollout

    async def _close(self, rollout: OpenRollout) -> list[Completion]:
        self._registry.remove_rollout(rollout.id)
        rollout.closed = True
        await _abandon(rollout.calls, rollout_not_open(rollout.id))
        return list(rollout.completions.values())

    async def _abandon_everything(self) -> None:
        for rollout in self._registry.rollouts():
            self._registry.remove_rollout(rollout.id)
            rollout.closed = True
        for policy in self._registry.policies():
            await _abandon(policy.calls, _stopping())


async def _abandon(calls: Iterable[Call], reason: Problem) -> None:
    calls = list(calls)
    for call in calls:
        call.abandon(reason)
    errors = [await call.ended() for call in calls]
    for error in errors:
        if isinstance(error, StorageError):
            raise error


def _stopping() -> Problem:
    return Problem(status=503, message="The gateway is shutting down.", code="shutting_down")
