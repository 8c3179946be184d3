"""Models as users name them: one to compare with, and one to train."""

from __future__ import annotations

import asyncio
from collections.abc import Iterable, Mapping
from contextlib import AbstractAsyncContextManager
from typing import TYPE_CHECKING, Any, Generic, Self, cast
from urllib.parse import urlsplit
from weakref import WeakKeyDictionary

from pydantic import Field, PrivateAttr, model_validator
from typing_extensions import TypeVar

from art_core.config import CaptureConfig, Checked, LoraConfig, StepConfig
from art_core.errors import ConfigError
from art_core.rollouts.backend import LOOPBACK, Backend, RolloutMode, TrainResult
from art_core.runs import VALIDATION_SPLIT, Retention, check_name
from art_core.trajectories import Trajectory, TrajectoryGroup

if TYPE_CHECKING:
    from openai import AsyncOpenAI

ConfigT = TypeVar("ConfigT", default=Any)

_CALL_TIMEOUT = 1200.0
_CONNECT_TIMEOUT = 60.0


class Model(Checked, Generic[ConfigT]):
    """A model that is prompted, not trained, to compare trained ones with.

    ``Model("gpt-4.1", litellm="openai/gpt-4.1")`` is answered by any provider of
    LiteLLM's; without ``litellm`` by the OpenAI-compatible API at
    ``inference_base_url``, with ``inference_api_key``. ``name`` and ``project`` name
    its run directory. ``config`` is the user's own: it is kept with the model and never
    read here. Keys and URLs are never serialised.

    Raises:
        ConfigError: a field is unknown or can't be used.
    """

    name: str = Field(kw_only=False)
    project: str = "default"
    config: ConfigT = cast("Any", None)
    inference_api_key: str | None = Field(default=None, exclude=True, repr=False)
    inference_base_url: str | None = Field(default=None, exclude=True, repr=False)
    inference_model_name: str | None = None
    """What the API calls the model, if not by ``name``."""
    litellm: str | None = Field(default=None, min_length=1)
    """LiteLLM's name of the model. ``inference_base_url`` and ``inference_api_key``, if
    given, are then its ``api_base`` and ``api_key``."""
    capture: CaptureConfig = CaptureConfig()
    """Which of an agent's own HTTP calls inside a rollout go to this model."""

    _backend: Backend | None = PrivateAttr(default=None)
    _clients: WeakKeyDictionary[asyncio.AbstractEventLoop, AsyncOpenAI] = PrivateAttr(
        default_factory=lambda: WeakKeyDictionary[asyncio.AbstractEventLoop, "AsyncOpenAI"]()
    )

    if not TYPE_CHECKING:  # type checkers make the signature of the fields

        def __init__(self, name=None, /, **fields):
            named = {} if name is None else {"name": name}
            super().__init__(**named, **fields)

    @model_validator(mode="after")
    def _names_are_safe(self) -> Self:
        check_name("name", self.name)
        check_name("project", self.project)
        return self

    @model_validator(mode="after")
    def _is_named_once(self) -> Self:
        if self.litellm is None:
            return self
        if self.trainable:
            raise ValueError("litellm is for models that aren't trained: use Model(...)")
        if self.inference_model_name is not None:
            raise ValueError(
                f"litellm is {self.litellm!r} and inference_model_name "
                f"{self.inference_model_name!r}: pass only one of them"
            )
        return self

    @property
    def trainable(self) -> bool:
        return False

    def backend(self) -> Backend:
        """The backend that the model is registered with.

        Raises:
            ConfigError: it isn't yet.
        """
        if self._backend is None:
            raise ConfigError(
                f"model {self.name!r} has no backend", "First: await model.register(backend)."
            )
        return self._backend

    async def register(self, backend: Backend) -> None:
        """Put the model on a backend; see `Backend.register` for what that does and raises."""
        await backend.register(self)
        self._backend = backend

    def get_inference_name(self, step: int | None = None) -> str:
        """What to ask the API for: the newest version, or with ``step`` a certain one."""
        name = self.inference_model_name or self.name
        return name if step is None else f"{name}@{step}"

    def rollout(
        self,
        scenario: object = None,
        *,
        mode: RolloutMode | None = None,
        seed: int | None = None,
        tags: Mapping[str, str] | None = None,
        capture: CaptureConfig | None = None,
    ) -> AbstractAsyncContextManager[Trajectory]:
        """One run of an agent: each model call inside is served by this model and recorded.

        ``async with model.rollout(scenario) as trajectory:`` gives the trajectory, with
        ``base_url``, ``api_key`` and ``headers`` for agents in other processes. At the
        end its ``histories`` hold the exact tokens. ``mode`` and ``seed`` are, where not
        given, what the training loop says, else ``train`` and none; ``tags`` go into the
        records; ``capture`` overrides the model's own.

        A prompted model's trajectory has no tokens: its ``metadata["model_calls"]`` says
        what the calls took (see `art_core.rollouts.prompted.CallTotals`).

        A synchronous agent is run with ``await asyncio.to_thread(agent, ...)`` inside.

        Raises:
            ConfigError: the model isn't registered, or nothing answers its calls.
            ScenarioError: ``scenario`` can't be written as JSON.
        """
        from art_core.rollouts.rollout import run_rollout

        return run_rollout(
            self, scenario, mode=mode, seed=seed, tags=tags, capture=capture or self.capture
        )

    def openai_client(self) -> AsyncOpenAI:
        """A client of the model's API; the same one for all callers in an event loop.

        Raises:
            ConfigError: ``inference_base_url`` or ``inference_api_key`` isn't set, which
                registering a trainable model does.
        """
        if self.inference_base_url is None or self.inference_api_key is None:
            raise ConfigError(
                f"model {self.name!r} has no inference_base_url or inference_api_key",
                "First: await model.register(backend)."
                if self.trainable
                else "Inside model.rollout() use the trajectory's base_url and api_key."
                if self.litellm is not None
                else "Pass both to Model(...).",
            )
        try:
            loop = asyncio.get_running_loop()
        except RuntimeError:
            return self._new_client(self.inference_base_url, self.inference_api_key)
        if loop not in self._clients:
            self._clients[loop] = self._new_client(self.inference_base_url, self.inference_api_key)
        return self._clients[loop]

    async def log(
        self,
        trajectories: Iterable[Trajectory | BaseException] | Iterable[TrajectoryGroup],
        split: str = VALIDATION_SPLIT,
    ) -> None:
        """Write trajectories or groups, and the means of their metrics, to the run directory."""
        items: list[object] = list(trajectories)
        groups = [item for item in items if isinstance(item, TrajectoryGroup)]
        loose = [item for item in items if isinstance(item, Trajectory | BaseException)]
        if len(groups) + len(loose) < len(items):
            odd = next(i for i in items if not isinstance(i, TrajectoryGroup | Trajectory))
            raise ConfigError(
                f"log was given {odd!r:.200} ({type(odd).__name__})",
                "Pass trajectories (and exceptions), or groups of them.",
            )
        if loose:
            groups.append(TrajectoryGroup(loose))
        await self.backend().log(self, groups, split=split)

    def _new_client(self, base_url: str, api_key: str) -> AsyncOpenAI:
        import openai

        limits = type(openai.DEFAULT_CONNECTION_LIMITS)
        return openai.AsyncOpenAI(
            base_url=base_url,
            api_key=api_key,
            http_client=openai.DefaultAsyncHttpxClient(
                timeout=openai.Timeout(_CALL_TIMEOUT, connect=_CONNECT_TIMEOUT),
                # No call waits for another one's connection; none is left open when the
                # loop ends, as nobody closes this client.
                limits=limits(max_connections=None, max_keepalive_connections=0),
                # No proxy leads to this machine.
                trust_env=urlsplit(base_url).hostname not in LOOPBACK,
            ),
        )


class TrainableModel(Model[ConfigT], Generic[ConfigT]):
    """A LoRA adapter of ``base_model`` that is trained and served by a backend.

    Raises:
        ConfigError: a field is unknown or can't be used.
    """

    base_model: str = Field(min_length=1)
    """``smollm2-135m``, a Hugging Face id or a local folder."""
    lora: LoraConfig = LoraConfig()

    @property
    def trainable(self) -> bool:
        return True

    async def get_step(self) -> int:
        """How many training steps the served adapter has had."""
        return await self.backend().get_step(self)

    async def train(
        self, trajectory_groups: Iterable[TrajectoryGroup], config: StepConfig | None = None
    ) -> TrainResult:
        """One training step on scored groups; the new adapter is live when it returns.

        If this is cancelled, the step is finished first.

        Raises:
            ConfigError: there is no group, or a group has less than two trajectories.
            TrajectoryError: a trajectory can't be trained on; names it.
        """
        from art_core.rollouts.attempts import to_its_end

        groups = list(trajectory_groups)
        return await to_its_end(self.backend().train(self, groups, config or StepConfig()))

    async def delete_checkpoints(
        self, best_checkpoint_metric: str = f"{VALIDATION_SPLIT}/reward"
    ) -> None:
        """Remove all checkpoints but the latest and the best by a metric."""
        run = self.backend().run_directory(self)
        run.prune(Retention(last=1, best=best_checkpoint_metric))
