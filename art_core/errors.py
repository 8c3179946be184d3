"""Every exception that ART Core raises, one tree.

    ArtError
    ├── ConfigError (ValueError)            a value the user gave can't be used
    │   ├── ExampleError                    examples that can't be learned from
    │   ├── ScenarioError                   scenarios of a wrong shape
    │   └── UnknownModelError               no such base model or policy
    ├── MissingExtraError (ImportError)     an optional dependency isn't installed
    ├── ChatError (ValueError)              messages that can't become tokens
    ├── TrajectoryError (ValueError)        a trajectory that can't be trained on
    │   ├── RewardError                     reward missing, None, NaN, infinite or not a number
    │   └── UnknownCompletionError          a Choice that no record stands behind
    ├── RolloutError (RuntimeError)         a rollout, or too many of them, failed
    │   ├── RolloutTimeoutError (TimeoutError)
    │   └── TooManyFailuresError
    ├── EngineError (RuntimeError)          inference
    │   ├── ContextLengthError (ValueError) prompt (+ max_tokens) longer than the context
    │   ├── EngineOverloadedError           queue or KV memory full: try again later
    │   ├── EngineStartError                the engine can't be started, or attached to
    │   ├── EngineDiedError                 the engine stopped working
    │   ├── GrammarError (ValueError)       a grammar that sampling can't be constrained by
    │   └── AdapterError                    an adapter that can't be loaded or isn't loaded
    ├── TrainingError (RuntimeError)        the training step
    │   └── NonFiniteError                  loss or gradient isn't finite
    ├── RunError (RuntimeError)             the run directory
    │   ├── RunLockedError                  another process uses it
    │   ├── RunMismatchError                it belongs to another configuration
    │   └── RunDamagedError                 a file in it isn't what its manifest says
    ├── StorageError (OSError)              disk full, read-only, …
    ├── WeightsError (RuntimeError)         a base model can't be fetched, verified or loaded
    ├── GatewayError (RuntimeError)         the gateway can't start or answered wrongly
    │   └── PortTakenError (OSError)
    ├── ServerError (RuntimeError)          a training server (art serve) answered with an error
    │   ├── ServerUnreachableError          it can't be reached, or stopped answering
    │   ├── AccessDeniedError               the key is missing, revoked or of another project
    │   └── LimitExceededError              a limit of the key is reached
    ├── JudgeError (RuntimeError)           a judge (ruler) gave no usable scores
    │   ├── JudgeSetupError (ValueError)    it can't be used as it is set up: key, name, price
    │   ├── JudgeAnswerError                it answered, but never in the form asked for
    │   ├── JudgeUnavailableError           overloaded, timed out or unreachable
    │   └── BudgetSpentError                the user's budget for it is spent
    └── ToolServerError (RuntimeError)      a server of tools (MCP) breaks the protocol
        ├── ToolServerStartError            it can't be started or reached
        └── ToolServerDiedError             it was there, and its connection is gone

Each carries ``problem`` (what is wrong: field and value) and ``remedy`` (what to
do); ``str()`` joins them. All survive pickling.
"""

from __future__ import annotations

from typing import Any


class ArtError(Exception):
    """Root of the tree."""

    problem: str
    remedy: str | None

    def __init__(self, problem: str, remedy: str | None = None) -> None:
        super().__init__(problem, remedy)
        self.problem = problem
        self.remedy = remedy

    def __str__(self) -> str:
        if self.remedy is None:
            return self.problem
        return f"{self.problem.rstrip('.')}. {self.remedy}"

    def __reduce__(self) -> tuple[Any, ...]:
        return type(self), (self.problem, self.remedy)


class ConfigError(ArtError, ValueError):
    """A value the user gave can't be used."""


class ScenarioError(ConfigError):
    """Scenarios of a wrong shape."""


class ExampleError(ConfigError):
    """Examples that can't be learned from."""


class UnknownModelError(ConfigError):
    """No such base model or policy."""


class MissingExtraError(ArtError, ImportError):
    """An optional dependency isn't installed."""


class ChatError(ArtError, ValueError):
    """Messages or tools that this chat format can't express."""


class TrajectoryError(ArtError, ValueError):
    """A trajectory that can't be trained on."""


class RewardError(TrajectoryError):
    """A reward that is missing, None, NaN, infinite or not a number."""


class UnknownCompletionError(TrajectoryError):
    """A Choice that no record stands behind."""


class RolloutError(ArtError, RuntimeError):
    """A rollout failed."""


class RolloutTimeoutError(RolloutError, TimeoutError):
    """A rollout ran out of time."""


class TooManyFailuresError(RolloutError):
    """More rollouts failed than the caller allows."""


class EngineError(ArtError, RuntimeError):
    """Inference failed."""


class ContextLengthError(EngineError, ValueError):
    """Prompt, or prompt and ``max_tokens``, longer than the context."""


class EngineOverloadedError(EngineError):
    """The engine's queue is full; the same request may succeed later."""


class EngineStartError(EngineError):
    """The engine can't be started, or isn't one that can be used."""


class EngineDiedError(EngineError):
    """The engine stopped working."""


class GrammarError(EngineError, ValueError):
    """A grammar that sampling can't be constrained by."""


class AdapterError(EngineError):
    """An adapter that can't be loaded, or isn't loaded."""


class TrainingError(ArtError, RuntimeError):
    """A training step failed."""


class NonFiniteError(TrainingError):
    """Loss or gradient isn't finite."""


class RunError(ArtError, RuntimeError):
    """The run directory can't be used."""


class RunLockedError(RunError):
    """Another process uses the run directory."""


class RunMismatchError(RunError):
    """The run directory belongs to another configuration."""


class RunDamagedError(RunError):
    """A file of the run isn't what it should be."""


class StorageError(ArtError, OSError):
    """The disk is full, read-only or failing."""


class WeightsError(ArtError, RuntimeError):
    """A base model can't be fetched, verified or loaded."""


class GatewayError(ArtError, RuntimeError):
    """The gateway can't start, or was answered wrongly."""


class PortTakenError(GatewayError, OSError):
    """The port is in use."""


class ServerError(ArtError, RuntimeError):
    """A training server answered with an error."""


class ServerUnreachableError(ServerError):
    """A training server that can't be reached, or stopped answering."""


class AccessDeniedError(ServerError):
    """An API key that is missing, wrong, revoked or of another project."""


class LimitExceededError(ServerError):
    """A limit of the API key is reached."""


class JudgeError(ArtError, RuntimeError):
    """A judge gave no usable scores."""


class JudgeSetupError(JudgeError, ValueError):
    """A judge that can't be used as it is set up: wrong key, unknown model, unknown price."""


class JudgeAnswerError(JudgeError):
    """A judge answered, but never in the form it was asked for."""


class JudgeUnavailableError(JudgeError):
    """A judge that is overloaded, timed out or unreachable, after all retries."""


class BudgetSpentError(JudgeError):
    """The budget that the user set for judging is spent."""


class ToolServerError(ArtError, RuntimeError):
    """A server of tools breaks the protocol."""


class ToolServerStartError(ToolServerError):
    """A server of tools can't be started or reached."""


class ToolServerDiedError(ToolServerError):
    """A server of tools was there, and its connection is gone."""
