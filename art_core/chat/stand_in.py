"""Conversations of made-up words, that show what a template leaves out."""

from __future__ import annotations

import json
from collections.abc import Sequence
from typing import Any, cast

from art_core.chat.turns import Call, Turn, arguments_object
from art_core.chat.writer import nine_characters
from art_core.errors import ChatError


class StandIn:
    """A conversation of the same shape as another, whose every text is a word of its own."""

    def __init__(self, turns: Sequence[Turn]) -> None:
        self._places: dict[str, str] = {}  # each word, and what it stands for
        self._named: dict[str, tuple[str | None, str]] = {}  # ids and names given to calls
        self.turns = [self._turn(turn, at) for at, turn in enumerate(turns)]

    def shape(self) -> list[Any]:
        """What may matter to a template, as JSON values: equal for conversations alike."""
        return [
            [turn.role, turn.text, turn.name, turn.reasoning, _id_form(turn.call_id)]
            + [[call.name, call.arguments, _id_form(call.id)] for call in turn.calls]
            for turn in self.turns
        ]

    def check_nothing_lost(self, text: str) -> None:
        """Raises ChatError: a word isn't in ``text``; names what it stands for."""
        at = 0  # they mostly come in order: where one is found, the next isn't far
        for word, place in self._places.items():
            found = text.find(word, at)
            at = text.find(word) if found < 0 else found
            if at < 0:
                raise ChatError(
                    f"the chat template leaves {place} out",
                    "Change the messages, or use a model whose template can express them.",
                )

    def _turn(self, turn: Turn, at: int) -> Turn:
        where = f"messages[{at}] (role {turn.role!r})"
        calls = tuple(
            self._call(call, f"{where}.tool_calls[{n}]") for n, call in enumerate(turn.calls)
        )
        answered = self._named.get(turn.call_id or turn.name or "")
        call_id, name = answered or (turn.call_id, turn.name)
        return Turn(
            role=turn.role,
            text=self._word(f"the text of {where}") if turn.text.strip() else "",
            name=name,
            calls=calls,
            # Reasoning isn't checked for: templates leave it out on purpose.
            reasoning="qxrzv" if turn.reasoning.strip() else "",
            call_id=call_id,
        )

    def _call(self, call: Call, where: str) -> Call:
        arguments = arguments_object(call.arguments)
        spelled = call.arguments if arguments is None else json.dumps(self._json(arguments, where))
        name = self._word(where)
        # An id may hold the name, and be all that the template writes of it.
        id_ = call.id and call.id.replace(call.name, name)
        self._named[call.id or call.name] = (id_, name)
        return Call(id=id_, name=name, arguments=spelled)

    def _json(self, value: Any, where: str) -> Any:
        if isinstance(value, str):
            return self._word(where) if value else ""
        if isinstance(value, dict):
            fields = cast("dict[str, Any]", value)
            return {key: self._json(item, where) for key, item in fields.items()}
        if isinstance(value, list):
            return [self._json(item, where) for item in cast("list[Any]", value)]
        return value

    def _word(self, place: str) -> str:
        made = f"qx{len(self._places)}zv"
        self._places[made] = place
        return made


def _id_form(call_id: str | None) -> str:
    """What a template may see in an id."""
    if call_id is None:
        return "none"
    if nine_characters(call_id) == call_id:
        return "nine characters"
    return "functions" if call_id.startswith("functions.") else "other"
