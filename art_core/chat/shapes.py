"""Nothing is lost: how a conversation must be put so that a template writes all of it.

Templates raise on some conversations and silently leave parts out of others (a
system message, all tool calls but the first). So for each *shape* of
conversation, what the template does is tried once on a stand-in whose every
text is a unique word, and the first way of putting it that keeps every word is
used. Where none does, the request is refused with the reason.
"""

from __future__ import annotations

import json
from collections import OrderedDict
from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace
from hashlib import blake2b
from typing import Any, cast

from art_core.chat.grammar import Grammar
from art_core.chat.reading import calls_in
from art_core.chat.turns import Call, Turn, arguments_object, same_call
from art_core.chat.writer import Writer, nine_characters
from art_core.errors import ChatError
from art_core.trajectories import Tool

Adapt = Callable[[Sequence[Turn]], list[Turn]]
_REMEMBERED = 4096


class Shapes:
    """Remembers how each shape of conversation is put for one template."""

    def __init__(self, writer: Writer, grammar: Grammar) -> None:
        self._writer = writer
        self._grammar = grammar
        self._ways: OrderedDict[bytes, Adapt | ChatError] = OrderedDict()

    def put(self, turns: Sequence[Turn], tools: Sequence[Tool]) -> list[Turn]:
        """``turns`` as the template can express them, whole.

        Raises:
            ChatError: it can't; names what would be lost, or what the template says.
        """
        stand_in = _stand_in(turns)
        key = blake2b(json.dumps([stand_in.shape, tools]).encode()).digest()
        way = self._ways.get(key)
        if way is None:
            way = self._ways[key] = self._find_way(stand_in, tools)
            if len(self._ways) > _REMEMBERED:
                self._ways.popitem(last=False)
        if isinstance(way, ChatError):
            raise ChatError(way.problem, way.remedy)
        return way(turns)

    def _find_way(self, stand_in: _StandIn, tools: Sequence[Tool]) -> Adapt | ChatError:
        refusals: list[ChatError] = []
        for way in _WAYS:
            try:
                turns = way(stand_in.turns)
                text = self._writer.text(turns, tools, generation=True)
                stand_in.check_nothing_lost(text)
                self._check_calls(turns, text)
            except ChatError as refusal:
                refusals.append(refusal)
            else:
                return way
        return refusals[0]

    def _check_calls(self, turns: Sequence[Turn], text: str) -> None:
        """The calls read back as they were given; before them may stand the template's examples."""
        given = [same_call(call) for turn in turns for call in turn.calls]
        syntax = self._grammar.calls
        if not given or syntax is None or syntax.only_at_start:
            return
        found = [same_call(call) for call in calls_in(self._grammar, text)]
        if found[-len(given) :] != given:
            raise ChatError(
                f"the chat template writes the tool calls {given} as {found[-len(given) :]}",
                "Change the messages, or use a model whose template can express them.",
            )


@dataclass(frozen=True, slots=True)
class _StandIn:
    """A conversation of the same shape whose every text is a word of its own."""

    turns: list[Turn]
    words: dict[str, str]
    """Each word, and what it stands for."""
    shape: list[Any]

    def check_nothing_lost(self, text: str) -> None:
        for word, place in self.words.items():
            if word not in text:
                raise ChatError(
                    f"the chat template leaves {place} out",
                    "Change the messages, or use a model whose template can express them.",
                )


def _stand_in(turns: Sequence[Turn]) -> _StandIn:
    words: dict[str, str] = {}

    def word(place: str) -> str:
        made = f"qx{len(words)}zv"
        words[made] = place
        return made

    def stand_in_json(value: Any, place: str) -> Any:
        if isinstance(value, str):
            return word(place) if value else ""
        if isinstance(value, dict):
            fields = cast("dict[str, Any]", value)
            return {key: stand_in_json(item, place) for key, item in fields.items()}
        if isinstance(value, list):
            return [stand_in_json(item, place) for item in cast("list[Any]", value)]
        return value

    made: list[Turn] = []
    names: dict[str, tuple[str | None, str | None]] = {}
    for at, turn in enumerate(turns):
        where = f"messages[{at}] (role {turn.role!r})"
        calls: list[Call] = []
        for n, call in enumerate(turn.calls):
            arguments = arguments_object(call.arguments)
            spelled = call.arguments
            if arguments is not None:
                spelled = json.dumps(stand_in_json(arguments, f"{where}.tool_calls[{n}]"))
            name = word(f"{where}.tool_calls[{n}]")
            # An id may hold the name, and be all that the template writes of it.
            id_ = call.id and call.id.replace(call.name, name)
            names[call.id or call.name] = (id_, name)
            calls.append(replace(call, id=id_, name=name, arguments=spelled))
        call_id, name = names.get(turn.call_id or turn.name or "", (turn.call_id, turn.name))
        made.append(
            replace(
                turn,
                call_id=call_id,
                name=name,
                text=word(f"the text of {where}") if turn.text.strip() else "",
                reasoning="qxrzv" if turn.reasoning.strip() else "",
                calls=tuple(calls),
            )
        )
    shape = [
        [t.role, t.text, t.name, t.reasoning, _id_form(t.call_id)]
        + [[c.name, c.arguments, _id_form(c.id)] for c in t.calls]
        for t in made
    ]
    return _StandIn(made, words, shape)


def _as_is(turns: Sequence[Turn]) -> list[Turn]:
    return list(turns)


def _one_system_message(turns: Sequence[Turn]) -> list[Turn]:
    """Leading system and developer messages joined into one."""
    system, rest = _leading_system(turns)
    if not system:
        return list(rest)
    return [replace(system[0], text="\n\n".join(turn.text for turn in system)), *rest]


def _system_in_user(turns: Sequence[Turn]) -> list[Turn]:
    """For templates without a system role: its text in front of the first user message's."""
    system, rest = _leading_system(turns)
    if not system or not rest or rest[0].role != "user":
        return list(turns)
    texts = [turn.text for turn in [*system, rest[0]] if turn.text]
    return [replace(rest[0], text="\n\n".join(texts)), *rest[1:]]


def _leading_system(turns: Sequence[Turn]) -> tuple[list[Turn], list[Turn]]:
    count = next(
        (at for at, turn in enumerate(turns) if turn.role not in ("system", "developer")),
        len(turns),
    )
    return list(turns[:count]), list(turns[count:])


def _without_reasoning(turns: Sequence[Turn]) -> list[Turn]:
    """Reasoning of earlier turns may go: many templates leave it out themselves."""
    return [replace(turn, reasoning="") for turn in turns]


def _both(first: Adapt, second: Adapt) -> Adapt:
    return lambda turns: second(first(turns))


def _mistral_ids(turns: Sequence[Turn]) -> list[Turn]:
    return _with_ids(turns, lambda id_, name, count: nine_characters(id_))


def _kimi_ids(turns: Sequence[Turn]) -> list[Turn]:
    """Kimi's template writes nothing of a call's name but what its id holds."""
    return _with_ids(turns, lambda id_, name, count: f"functions.{name}:{count}")


def _text_apart(turns: Sequence[Turn]) -> list[Turn]:
    """What an assistant says beside its calls as a turn of its own, before them."""
    made: list[Turn] = []
    for turn in turns:
        if turn.calls and turn.text:
            made += [replace(turn, calls=()), replace(turn, text="", reasoning="")]
        else:
            made.append(turn)
    return made


def _with_ids(turns: Sequence[Turn], make: Callable[[str, str, int], str]) -> list[Turn]:
    ids: dict[str | None, str] = {}
    made: list[Turn] = []
    for turn in turns:
        calls: list[Call] = []
        for call in turn.calls:
            ids[call.id] = make(call.id or "", call.name, len(ids))
            calls.append(replace(call, id=ids[call.id]))
        call_id = ids.get(turn.call_id, turn.call_id)
        made.append(replace(turn, calls=tuple(calls), call_id=call_id))
    return made


def _id_form(call_id: str | None) -> str:
    """What a template may see in an id."""
    if call_id is None:
        return "none"
    if nine_characters(call_id) == call_id:
        return "nine characters"
    return "functions" if call_id.startswith("functions.") else "other"


_WAYS: tuple[Adapt, ...] = (
    _as_is,
    _one_system_message,
    _system_in_user,
    _without_reasoning,
    _both(_without_reasoning, _one_system_message),
    _both(_without_reasoning, _system_in_user),
    _mistral_ids,
    _kimi_ids,
    _text_apart,
)
