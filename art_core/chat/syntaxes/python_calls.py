# pyright: reportUnknownMemberType=false, reportUnknownVariableType=false
"""Tool calls written as Python: LFM2."""

from __future__ import annotations

import json
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any, cast

from art_core.chat.grammar import CallSyntaxError, ToolTypes
from art_core.chat.turns import Call


@dataclass(frozen=True, slots=True, kw_only=True)
class PythonCalls:
    """``[look_up(city='Paris', days=3), ping()]``, read by transformers' strict parser of it."""

    name: str
    open: str
    close: str
    inner: str = "(?!)"
    ends_with_turn: bool = False
    only_at_start: bool = False
    pythonic: bool = True

    def may_close(self, body: str) -> bool:
        return True

    def decode(self, opening: Mapping[str, str], body: str, types: ToolTypes) -> list[Call]:
        from transformers.utils.chat_parsing.content_parsers import parse_content

        try:
            calls = parse_content(body.strip(), "python-call-list", {})
        except (ValueError, RecursionError) as error:
            raise CallSyntaxError(str(error).partition("\n")[0], body) from error
        if not calls:
            raise CallSyntaxError("an empty list of calls")
        return [
            Call(name=call["name"], arguments=json.dumps(call["arguments"], ensure_ascii=False))
            for call in cast("list[dict[str, Any]]", calls)
        ]
