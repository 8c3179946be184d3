"""What an answer must be: JSON, a tool call, one call at most."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any, cast

from art_core.chat.protocol import ChatFormat
from art_core.gateway.problems import invalid
from art_core.trajectories import Tool

ANY_OBJECT: dict[str, Any] = {"type": "object"}


@dataclass(frozen=True, slots=True, kw_only=True)
class Demands:
    """What a request demands of its answer; nothing, if all is left as it is."""

    tools: list[Tool] | None = None
    """The tools that the model is told of."""
    callable: Sequence[Tool] = ()
    """One of these must be called."""
    schema: Mapping[str, Any] | None = None
    """Content must be JSON of this schema."""
    one_call: bool = False
    """The answer ends with its first call."""

    def grammar(self, chat: ChatFormat) -> str | None:
        """What sampling must be held to.

        Raises:
            ChatError: this model's answers can't be put into a grammar.
        """
        if self.callable:
            return chat.answer_grammar(None, self.callable, several=not self.one_call)
        if self.schema is not None:
            return chat.answer_grammar(self.schema, self.tools or (), several=not self.one_call)
        return None


def tools_demanded(
    tools: list[Tool] | None, choice: str, name: object = None, *, one_call: bool
) -> Demands:
    """Demands about tools. ``choice``: ``auto``, ``none``, ``required``; or ``named``, with a name.

    Raises:
        Problem: a call is demanded of a tool that isn't there.
    """
    if choice == "none":
        return Demands()
    if choice == "auto":
        return Demands(tools=tools or None, one_call=one_call)
    named = [tool for tool in tools or () if choice == "required" or _name(tool) == name]
    if not named:
        what = "a tool" if choice == "required" else f"the tool {name!r:.80}"
        raise invalid("tool_choice", f"{what} must be called, which isn't among the tools")
    return Demands(tools=tools, callable=named, one_call=one_call)


def schema_demanded(param: str, given: Mapping[str, Any] | None) -> Mapping[str, Any] | None:
    """The JSON schema that a format (``type`` and perhaps ``schema``) asks for.

    Raises:
        Problem: it asks for something else, or there is no schema.
    """
    kind = (given or {"type": "text"}).get("type")
    if given is None or kind == "text":
        return None
    if kind == "json_object":
        return ANY_OBJECT
    if kind != "json_schema":
        raise invalid(
            param, f"type {kind!r:.80} can't be honoured; send json_schema, json_object or text"
        )
    schema = given.get("schema")
    if not isinstance(schema, dict):
        raise invalid(f"{param}.schema", "is missing", "missing_required_parameter")
    return cast("dict[str, Any]", schema)


def _name(tool: Tool) -> object:
    function = tool.get("function")
    return function.get("name") if isinstance(function, dict) else None
