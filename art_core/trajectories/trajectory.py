"""What one rollout left behind, with its reward."""

from __future__ import annotations

import math
import time
from collections.abc import Generator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass
from datetime import UTC, datetime
from decimal import Decimal
from enum import StrEnum
from numbers import Real
from typing import Any

from pydantic import (
    AwareDatetime,
    BaseModel,
    ConfigDict,
    Field,
    JsonValue,
    ValidationError,
    field_validator,
)

from art_core.errors import RewardError, TrajectoryError
from art_core.trajectories.choices import MessagesAndChoices, as_message
from art_core.trajectories.completion import Message, Tool
from art_core.trajectories.history import History

MetadataValue = JsonValue


class TrajectoryStatus(StrEnum):
    FINISHED = "finished"
    TRUNCATED = "truncated"
    """Cut off by a limit of the agent (turns, recursion); may still be rewarded."""
    FAILED = "failed"
    """The agent raised. Kept to read, never trained on."""


@dataclass(frozen=True, slots=True, kw_only=True)
class RolloutAccess:
    """How model calls reach the policy as calls of one rollout, in any process or language."""

    base_url: str
    """Enough on its own: for ``OPENAI_BASE_URL`` or a client's ``base_url``."""
    api_key: str
    headers: Mapping[str, str]


class Trajectory(BaseModel):
    """One rollout: what was said, the exact tokens, and how well it went.

    ``messages_and_choices``, ``tools`` and ``additional_histories`` are the
    conversations as an agent holds them; Choices in them are trained on, plain
    assistant messages are context. ``histories`` are the same with the recorded
    tokens, filled in by `TrainableModel.rollout` or when the trajectory is
    joined with its records.
    """

    model_config = ConfigDict(
        extra="forbid",
        validate_assignment=True,
        arbitrary_types_allowed=True,
        ser_json_inf_nan="constants",
    )

    messages_and_choices: MessagesAndChoices = []
    tools: list[Tool] | None = None
    additional_histories: list[History] = []
    reward: float | None = None
    """Finite; None: not scored yet, which training refuses."""
    metrics: dict[str, float | int | bool] = {}
    metadata: dict[str, MetadataValue] = {}
    logs: list[str] = []
    histories: list[History] = []
    status: TrajectoryStatus = TrajectoryStatus.FINISHED
    error: str | None = None
    """The traceback of a failed rollout."""
    rollout_id: str | None = None
    start_time: AwareDatetime = Field(default_factory=lambda: datetime.now(UTC))

    _access: RolloutAccess | None = None
    """Private, so that it is never written anywhere."""

    def __init__(self, **fields: Any) -> None:
        if fields.get("reward") is not None:
            fields["reward"] = check_reward(fields["reward"])
        super().__init__(**fields)

    def __setattr__(self, name: str, value: Any) -> None:
        # Checked here too, so that the user sees a RewardError and not pydantic's wrapping of it.
        if name == "reward" and value is not None:
            value = check_reward(value)
        super().__setattr__(name, value)

    @field_validator("reward", mode="before")
    @classmethod
    def _reward_is_a_number(cls, value: object) -> float | None:
        return None if value is None else check_reward(value)

    @property
    def base_url(self) -> str:
        """URL of an OpenAI-compatible API at which calls belong to this rollout.

        Raises:
            TrajectoryError: outside of `TrainableModel.rollout`; so for the next two.
        """
        return self._open().base_url

    @property
    def api_key(self) -> str:
        """A key that attributes calls to this rollout."""
        return self._open().api_key

    @property
    def headers(self) -> dict[str, str]:
        """Headers that attribute calls to this rollout."""
        return dict(self._open().headers)

    def set_access(self, access: RolloutAccess | None) -> None:
        """Called by `TrainableModel.rollout`, at its beginning and end."""
        self._access = access

    def _open(self) -> RolloutAccess:
        if self._access is None:
            raise TrajectoryError(
                "this trajectory has no open rollout",
                "base_url, api_key and headers exist inside 'async with model.rollout(...) as "
                "trajectory:'.",
            )
        return self._access

    def messages(self) -> list[Message]:
        """The conversation as message dictionaries."""
        return [as_message(item) for item in self.messages_and_choices]

    def log(self, message: str) -> None:
        """Keep a line with the trajectory."""
        self.logs.append(message)

    @contextmanager
    def track_duration(self, name: str) -> Generator[None]:
        """Add the seconds spent inside to the metric ``duration/<name>``."""
        started = time.monotonic()
        try:
            yield
        finally:
            key = f"duration/{name}"
            self.metrics[key] = self.metrics.get(key, 0.0) + time.monotonic() - started

    def finish(self) -> Trajectory:
        """Set the metric ``duration`` to the seconds since ``start_time``."""
        self.metrics["duration"] = (datetime.now(UTC) - self.start_time).total_seconds()
        return self

    def check_contents(self) -> None:
        """Check what was put into the trajectory's containers since it was made.

        Pydantic sees assignments only, not ``metrics["accuracy"] = np.float32(1)``. What
        the constructor would convert is converted; what couldn't be read again from the
        run's files, or not be written, is an error here and not there.

        Raises:
            TrajectoryError: names the rollout, the field and the value.
        """
        for field in ("messages_and_choices", "tools", "metrics", "metadata", "logs"):
            try:
                setattr(self, field, getattr(self, field))
                self.model_dump_json(include={field})
            except ValidationError as error:
                first = error.errors(include_url=False)[0]
                raise self._unusable(first["loc"], first["msg"], first["input"]) from error
            except (ValueError, RecursionError) as error:
                raise self._unusable((field,), str(error), getattr(self, field)) from error
        for name, value in self.metrics.items():
            try:
                name.encode()
                float(value)
            except (OverflowError, UnicodeEncodeError) as error:
                raise self._unusable(("metrics", name), str(error), value) from error

    def _unusable(
        self, place: tuple[int | str, ...], reason: str, value: object
    ) -> TrajectoryError:
        where = ".".join(str(part) for part in place)
        return TrajectoryError(
            f"{where!a} of rollout {self.rollout_id} is {value!a:.100}: {reason}",
            "metrics are numbers, logs strings, messages, metadata and tools what JSON can hold.",
        )

    def for_logging(self) -> dict[str, Any]:
        """A dictionary to print: reward, metrics, metadata, logs and messages."""
        return {
            "reward": self.reward,
            "metrics": self.metrics,
            "metadata": self.metadata,
            "messages": [
                {**as_message(item), "trainable": not isinstance(item, dict)}
                for item in self.messages_and_choices
            ],
            "logs": self.logs,
        }

    def __str__(self) -> str:
        return (
            f"Trajectory(reward={self.reward}, status={self.status}, "
            f"messages={len(self.messages_and_choices)}, histories={len(self.histories)}, "
            f"metrics={self.metrics}, metadata={self.metadata})"
        )


def check_reward(value: object) -> float:
    """A reward as a finite float; numbers and bools (1.0, 0.0) are rewards.

    Raises:
        RewardError: for anything else: strings, None, NaN, infinities, arrays of
            more than one element.
    """
    remedy = "A reward must be a finite number, or a bool (True is 1.0, False is 0.0)."
    if isinstance(value, str | bytes) or value is None:
        raise RewardError(f"reward is {value!r}", remedy)
    item = getattr(value, "item", None)
    if callable(item):
        try:
            value = item()
        except (TypeError, ValueError, RuntimeError) as error:
            raise RewardError(f"reward is {value!r:.100}", remedy) from error
    if not isinstance(value, Real | Decimal):
        raise RewardError(f"reward is {value!r:.100} ({type(value).__name__})", remedy)
    try:
        reward = float(value)
    except (OverflowError, ValueError) as error:
        raise RewardError(f"reward is {value!r:.100}, which no float can hold", remedy) from error
    if not math.isfinite(reward):
        raise RewardError(f"reward is {value!r}", remedy)
    return reward
