"""What scenarios are made from."""

from __future__ import annotations

import json
from collections.abc import Sequence
from dataclasses import dataclass

from art_core.errors import ConfigError
from art_core.trajectories import Tool
from ruler.case import digest_of
from ruler.messages import to_line, visible_tools


@dataclass(frozen=True, slots=True, kw_only=True)
class Source:
    """A description of the agent, its tools, tasks that it was given: any or all of them."""

    task: str | None
    tools: Sequence[Tool]
    examples: Sequence[str]

    def __post_init__(self) -> None:
        if not ((self.task or "").strip() or self.tools or self.examples):
            raise ConfigError(
                "there is no task, no tool and no example to make scenarios from",
                "Say what the agent does (task=…), or pass its tools or examples.",
            )
        if len(self.tool_names) != len(set(self.tool_names)) or "" in self.tool_names:
            raise ConfigError(
                f"tools are named {list(self.tool_names)!r}",
                "Pass tools as OpenAI's API spells them, each with a name of its own.",
            )

    @property
    def tool_names(self) -> tuple[str, ...]:
        named = [tool.get("name") for tool in visible_tools(self.tools)]
        names = tuple(name if isinstance(name, str) else "" for name in named)
        return names + ("",) * (len(self.tools) - len(names))

    @property
    def digest(self) -> str:
        """Tells sources apart."""
        parts = [self.task, list(self.tools), list(self.examples)]
        return digest_of(json.dumps(part, sort_keys=True) for part in parts)[:16]

    def lines(self) -> list[str]:
        """All of it as JSON, one thing a line."""
        lines = [to_line({"description": self.task})] if self.task else []
        lines += [to_line({"tool": tool}) for tool in visible_tools(self.tools)]
        return lines + [to_line({"example": example}) for example in self.examples]
