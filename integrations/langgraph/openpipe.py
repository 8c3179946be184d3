"""OpenPipe ART's two entry points, with its signatures."""

from __future__ import annotations

import functools
from collections.abc import Awaitable, Callable
from typing import Any, Literal, ParamSpec

from langchain.chat_models import init_chat_model as langchain_init_chat_model
from langchain_core.language_models import BaseChatModel
from langchain_core.runnables import Runnable

from art_core.rollouts import TrainableModel
from art_core.trajectories import Trajectory
from integrations.langgraph.models import chat_model
from integrations.langgraph.routing import current_model, open_rollouts

P = ParamSpec("P")


def wrap_rollout(
    model: TrainableModel[Any], fn: Callable[P, Awaitable[Trajectory]]
) -> Callable[P, Awaitable[Trajectory]]:
    """Make ``fn``, which runs a graph and returns a `Trajectory` with a reward, a rollout.

    The trajectory that it returns is completed with the recorded tokens and, where
    it has none of its own, with the conversations: that of the last call in
    ``messages_and_choices`` and ``tools``, the others in ``additional_histories``.
    An exception gets out, as it would without the wrapper.
    """

    @functools.wraps(fn)
    async def wrapper(*args: P.args, **kwargs: P.kwargs) -> Trajectory:
        async with open_rollouts([model], None, "all") as rollouts:
            theirs = await fn(*args, **kwargs)
        return _completed(theirs, rollouts.trajectories[model.name])

    return wrapper


def init_chat_model(
    model: str | None = None,
    *,
    model_provider: str | None = None,
    configurable_fields: Literal["any"] | list[str] | tuple[str, ...] | None = None,
    config_prefix: str | None = None,
    **kwargs: Any,
) -> BaseChatModel | Runnable[Any, Any]:
    """LangChain's ``init_chat_model``, whose model inside a rollout is the policy.

    Inside a rollout ``model`` and ``model_provider`` don't matter, all else does:
    ``temperature``, ``max_tokens``, ``timeout`` and so on, and the fields that can be
    configured at a call. Outside it is LangChain's own.
    """
    policy = current_model()
    if policy is None:
        return langchain_init_chat_model(
            model,
            model_provider=model_provider,
            configurable_fields=configurable_fields,  # pyright: ignore[reportArgumentType]
            config_prefix=config_prefix,
            **kwargs,
        )
    if configurable_fields is None:
        return chat_model(policy, **kwargs)
    return langchain_init_chat_model(
        policy.get_inference_name(),
        model_provider="openai",
        configurable_fields=configurable_fields,
        config_prefix=config_prefix,
        base_url=policy.inference_base_url,
        api_key=policy.inference_api_key,
        **kwargs,
    )


def _completed(theirs: Trajectory, recorded: Trajectory) -> Trajectory:
    theirs.rollout_id = recorded.rollout_id
    theirs.histories = recorded.histories
    theirs.logs = [*theirs.logs, *recorded.logs]
    if not theirs.messages_and_choices:
        theirs.messages_and_choices = recorded.messages_and_choices
        theirs.tools = recorded.tools
        theirs.additional_histories = [
            history
            for history in recorded.histories
            if history.messages_and_choices != recorded.messages_and_choices
        ]
    return theirs
