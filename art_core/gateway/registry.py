"""The policies and open rollouts of a gateway."""

from __future__ import annotations

import secrets
import threading
from collections.abc import Iterator, Mapping

from art_core.engines.protocol import AdapterRef
from art_core.errors import ConfigError, UnknownModelError
from art_core.gateway.policy import BEST, Policy, version_of
from art_core.gateway.rollout import OpenRollout
from art_core.rollouts.backend import RolloutMode
from art_core.runs.names import check_name


class Registry:
    """All methods may be called from any thread."""

    def __init__(self) -> None:
        self._lock = threading.Lock()
        self._policies: dict[str, Policy] = {}
        self._rollouts: dict[str, OpenRollout] = {}

    def add_policy(self, policy: Policy) -> None:
        """Raises ConfigError: the name is taken or can't be part of a model name."""
        check_name("policy", policy.name)
        with self._lock:
            if policy.name in self._policies:
                raise ConfigError(f"a policy named {policy.name!r} is already served")
            self._policies[policy.name] = policy

    def policies(self) -> list[Policy]:
        with self._lock:
            return list(self._policies.values())

    def policy(self, name: str) -> Policy:
        """Raises UnknownModelError: there is none."""
        with self._lock:
            policy = self._policies.get(name)
        if policy is None:
            raise UnknownModelError(f"no policy is named {name!r}", self.offer())
        return policy

    def resolve(self, model: str) -> tuple[Policy, AdapterRef | None]:
        """The policy and version behind ``name``, ``name@step`` or ``name:best``, or
        ``project/`` and one of these.

        Raises:
            UnknownModelError: there is none; lists those there are.
        """
        project, _, short = model.rpartition("/")
        name, at, step = short.rpartition("@")
        with self._lock:
            found = [self._policies.get(each) for each in (short, name, short.removesuffix(BEST))]
        whole, pinned, best = (
            None if each is None or (project and each.project != project) else each
            for each in found
        )
        if whole is not None:
            return whole, whole.current
        if best is not None and best.best is not None:
            return best, best.best
        if at and pinned is not None and step.isdecimal() and int(step) in pinned.versions:
            return pinned, pinned.versions[int(step)]
        raise UnknownModelError(f"model {model!r} does not exist", self.offer())

    def offer(self) -> str:
        """What can be asked for, in words."""
        names = [name for policy in self.policies() for name in policy.model_names()]
        return f"Served here: {', '.join(names)}." if names else "No policy is served yet."

    def open_rollout(
        self, name: str, mode: RolloutMode, seed: int | None, tags: Mapping[str, str]
    ) -> OpenRollout:
        """Raises UnknownModelError: there is no such policy."""
        policy = self.policy(name)
        with self._lock:
            rollout = OpenRollout(
                policy=policy,
                adapter=policy.current,
                mode=mode,
                seed=secrets.randbits(63) if seed is None else seed,
                tags=dict(tags),
            )
            self._rollouts[rollout.id] = rollout
        return rollout

    def rollout(self, rollout_id: str) -> OpenRollout | None:
        with self._lock:
            return self._rollouts.get(rollout_id)

    def rollouts(self) -> list[OpenRollout]:
        with self._lock:
            return list(self._rollouts.values())

    def remove_rollout(self, rollout_id: str) -> None:
        with self._lock:
            self._rollouts.pop(rollout_id, None)

    def unused_versions(self, name: str) -> list[int]:
        """Offered versions that are neither current nor pinned by an open rollout."""
        policy = self.policy(name)
        with self._lock:
            used = {version_of(policy.current), *self._pinned(policy)}
            return sorted(set(policy.versions) - used)

    def set_adapter(self, name: str, adapter: AdapterRef | None) -> None:
        """Pin new rollouts to another version."""
        policy = self.policy(name)
        with self._lock:
            policy.serve(adapter)

    def retire_version(self, name: str, version: int) -> None:
        """Raises ConfigError: the version is current, or a rollout is pinned to it."""
        policy = self.policy(name)
        with self._lock:
            if version in self._pinned(policy):
                raise ConfigError(f"open rollouts are pinned to {name}@{version}")
            policy.retire(version)

    def _pinned(self, policy: Policy) -> Iterator[int]:
        return (each.version for each in self._rollouts.values() if each.policy is policy)
