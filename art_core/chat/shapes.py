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
from collections.abc import Sequence
from hashlib import blake2b

from art_core.chat.grammar import Grammar
from art_core.chat.reading import calls_in
from art_core.chat.stand_in import StandIn
from art_core.chat.turns import Turn, same_call
from art_core.chat.ways import WAYS, Way
from art_core.chat.writer import Writer
from art_core.errors import ChatError
from art_core.trajectories import Tool

_REMEMBERED = 4096


class Shapes:
    """Remembers how each shape of conversation is put for one template."""

    def __init__(self, writer: Writer, grammar: Grammar) -> None:
        self._writer = writer
        self._grammar = grammar
        self._ways: OrderedDict[bytes, Way | ChatError] = OrderedDict()

    def put(self, turns: Sequence[Turn], tools: Sequence[Tool]) -> list[Turn]:
        """``turns`` as the template can express them, whole.

        Raises:
            ChatError: it can't; names what would be lost, or what the template says.
        """
        stand_in = StandIn(turns)
        key = blake2b(json.dumps([stand_in.shape(), tools]).encode()).digest()
        way = self._ways.get(key)
        if way is None:
            way = self._ways[key] = self._find_way(stand_in, tools)
            if len(self._ways) > _REMEMBERED:
                self._ways.popitem(last=False)
        if isinstance(way, ChatError):
            raise ChatError(way.problem, way.remedy)
        return way(turns)

    def _find_way(self, stand_in: StandIn, tools: Sequence[Tool]) -> Way | ChatError:
        refusals: list[ChatError] = []
        for way in WAYS:
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
