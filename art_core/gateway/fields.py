"""The request fields that chat and text completions share, checked and named when wrong."""

from __future__ import annotations

from collections.abc import Collection, Mapping
from typing import Annotated, Any, TypeVar

from pydantic import BaseModel, ConfigDict, Field, JsonValue, ValidationError, field_validator
from pydantic_core import from_json

from art_core.gateway.problems import Problem, invalid, not_json, problem_of_validation

HARMLESS = frozenset(
    {
        "metadata",
        "prediction",
        "prompt_cache_key",
        "prompt_cache_options",
        "prompt_cache_retention",
        "reasoning_effort",
        "safety_identifier",
        "service_tier",
        "store",
        "user",
        "verbosity",
    }
)
"""Accepted whatever they hold: they change accounting, caching or style hints, not the answer."""


MOST_STOPS = 32
LONGEST_STOP = 1000
"""Characters. Each sampled token is looked at for each stop string."""
_DEEPEST_BODY = 150
_DEEPEST_JSON = 200
"""What pydantic reads. Records and trajectories hold messages deeper in, and must be read too."""


class StreamOptions(BaseModel):
    model_config = ConfigDict(strict=True)

    include_usage: bool | None = None


class SamplingFields(BaseModel):
    """How to sample, as OpenAI's API spells it and vLLM extends it. ``null`` means unset."""

    model_config = ConfigDict(strict=True, extra="allow", frozen=True)

    model: str
    stream: bool | None = None
    stream_options: StreamOptions | None = None
    n: Annotated[int, Field(ge=1, le=128)] | None = None
    max_tokens: Annotated[int, Field(ge=1)] | None = None
    temperature: Annotated[float, Field(ge=0, le=100, allow_inf_nan=False)] | None = None
    top_p: Annotated[float, Field(gt=0, le=1)] | None = None
    top_k: Annotated[int, Field(ge=-1)] | None = None
    """0 and -1 mean off."""
    min_p: Annotated[float, Field(ge=0, le=1)] | None = None
    frequency_penalty: Annotated[float, Field(ge=-2, le=2)] | None = None
    presence_penalty: Annotated[float, Field(ge=-2, le=2)] | None = None
    repetition_penalty: Annotated[float, Field(gt=0)] | None = None
    seed: Annotated[int, Field(ge=-(2**63), lt=2**63)] | None = None
    stop: str | list[str] | None = None
    stop_token_ids: Annotated[list[Annotated[int, Field(ge=0)]], Field(max_length=1000)] | None = (
        None
    )
    logit_bias: dict[int, Annotated[float, Field(ge=-100, le=100)]] | None = None
    return_token_ids: bool | None = None

    @field_validator("stop")
    @classmethod
    def _stop_strings_stop(cls, stop: str | list[str] | None) -> str | list[str] | None:
        if stop is not None and (stop == "" or "" in list(stop)):
            raise ValueError("an empty string would stop everything")
        if isinstance(stop, list) and len(stop) > MOST_STOPS:
            raise ValueError(f"at most {MOST_STOPS} can be given")
        if max(map(len, [stop] if isinstance(stop, str) else stop or ()), default=0) > LONGEST_STOP:
            raise ValueError(f"a stop string has at most {LONGEST_STOP} characters")
        return stop

    @property
    def stop_strings(self) -> tuple[str, ...]:
        if self.stop is None:
            return ()
        return (self.stop,) if isinstance(self.stop, str) else tuple(self.stop)

    @property
    def include_usage(self) -> bool:
        return bool(self.stream_options and self.stream_options.include_usage)


_Fields = TypeVar("_Fields", bound=SamplingFields)


def read_fields(
    kind: type[_Fields], body: bytes, unchanging: Mapping[str, Collection[Any]]
) -> _Fields:
    """Parse and check a request's body.

    ``unchanging`` has the fields that this endpoint can't honour, with the values
    that ask for nothing.

    Raises:
        Problem: names the first field that is wrong, unknown or can't be honoured.
    """
    try:
        fields = kind.model_validate_json(body)
    except ValidationError as error:
        raise problem_of_validation(error, body) from error
    _check_json(body)
    for name, value in (fields.model_extra or {}).items():
        _check_extra(name, value, unchanging)
    return fields


def _check_json(body: bytes) -> None:
    """Raises Problem: the body has numbers that JSON hasn't, or is nested too deeply."""
    if b"NaN" in body or b"Infinity" in body:
        try:
            from_json(body, allow_inf_nan=False)
        except ValueError as error:
            raise not_json(str(error)) from error
    if body.count(b"[") + body.count(b"{") > _DEEPEST_BODY:
        levels = _DEEPEST_JSON - _DEEPEST_BODY
        try:
            from_json(b"[" * levels + body + b"]" * levels)
        except ValueError as error:
            raise not_json(f"nested more than {_DEEPEST_BODY} deep") from error


def _check_extra(name: str, value: JsonValue, unchanging: Mapping[str, Collection[Any]]) -> None:
    if value is None or name in HARMLESS:
        return
    if name not in unchanging:
        raise Problem(
            status=400,
            message=f"Unrecognized request argument supplied: {name}",
            param=name,
            code="unknown_parameter",
        )
    if value not in unchanging[name]:
        allowed = " or ".join(repr(each) for each in unchanging[name]) or "nothing"
        raise invalid(
            name,
            f"{value!r:.100} can't be honoured here; leave it out or send {allowed}",
            "unsupported_parameter",
        )
