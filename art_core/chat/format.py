# pyright: reportUnknownMemberType=false, reportUnknownVariableType=false, reportUnknownArgumentType=false
"""Puts a chat format together for a tokenizer and its template."""

from __future__ import annotations

import json
from collections.abc import Mapping, Sequence
from dataclasses import replace
from pathlib import Path
from typing import TYPE_CHECKING, Any, cast

from art_core.chat.answer import what_is_lost, written_answers
from art_core.chat.bridge import continuation
from art_core.chat.constrain import AnswerGrammars
from art_core.chat.grammar import Grammar
from art_core.chat.learn import Learned, learn
from art_core.chat.normalise import normalise, normalise_tools
from art_core.chat.parse import Parser
from art_core.chat.protocol import ParsedMessage
from art_core.chat.renderer import LibraryRenderer
from art_core.chat.shapes import Shapes
from art_core.chat.template import JinjaTemplate
from art_core.chat.tools import write_as_text
from art_core.chat.turns import Turn
from art_core.chat.vocabulary import Vocabulary
from art_core.chat.writer import Writer
from art_core.errors import ChatError
from art_core.trajectories import Message, Tool

if TYPE_CHECKING:
    from transformers import PreTrainedTokenizerBase


def chat_format_for(
    tokenizer: PreTrainedTokenizerBase,
    *,
    template: str | None = None,
    renderer: str | None = None,
    stop_token_ids: Sequence[int] = (),
    variables: Mapping[str, Any] | None = None,
) -> TemplateFormat:
    """The chat format of a tokenizer.

    ``template``: Jinja source to use instead of the tokenizer's own, or the name of
    one of its own where it has several.
    ``renderer``: name of a renderer of the renderers library to use instead, for
    models that have no Jinja template.
    ``stop_token_ids``: more tokens that end a turn; those of a ``generation_config.json``
    beside the tokenizer are known.
    ``variables``: what the template is given besides messages, such as
    ``{"enable_thinking": False}``; the renderer's settings.

    Raises:
        ChatError: there is no template, it can't be used, or the tokenizer isn't
            of the `tokenizers` library.
        MissingExtraError: ``renderer`` is given and the library isn't installed.
    """
    ends = [*stop_token_ids, *_configured_ends(tokenizer)]
    if renderer is not None:
        vocabulary = Vocabulary(tokenizer)
        writer = LibraryRenderer(tokenizer, vocabulary, renderer, variables or {})
        ends += writer.stop_token_ids
    else:
        source = _template_source(tokenizer, template)
        vocabulary = Vocabulary(tokenizer, source)
        writer = JinjaTemplate(tokenizer, vocabulary, source, variables or {})
    learned = learn(writer, vocabulary)
    ends += learned.end_token_ids
    if isinstance(tokenizer.eos_token_id, int):
        ends.append(tokenizer.eos_token_id)
    if not ends:
        raise ChatError(
            "no token ends an assistant turn in this chat template",
            "Pass stop_token_ids=, or a tokenizer with an eos_token.",
        )
    return TemplateFormat(vocabulary, writer, learned, stop_token_ids=tuple(dict.fromkeys(ends)))


def _template_source(tokenizer: PreTrainedTokenizerBase, wanted: str | None) -> str:
    own: object = tokenizer.chat_template
    if isinstance(own, dict):
        named = cast("dict[str, str]", own)
        if wanted is None and len(named) != 1:
            raise ChatError(
                f"the tokenizer has several chat templates: {', '.join(named)}",
                "Pass the name of one as template=.",
            )
        own = named.get(wanted or next(iter(named)), wanted)
    elif wanted is not None:
        own = wanted
    if not isinstance(own, str) or not own:
        raise ChatError(
            "the tokenizer has no chat template",
            "Use an instruct model, or pass template= (Jinja source) or renderer=.",
        )
    return own


def _configured_ends(tokenizer: PreTrainedTokenizerBase) -> list[int]:
    """The end tokens that a model folder's generation config names."""
    config = Path(tokenizer.name_or_path) / "generation_config.json"
    if not tokenizer.name_or_path or not config.is_file():
        return []
    ends = json.loads(config.read_text(encoding="utf-8")).get("eos_token_id")
    return [ends] if isinstance(ends, int) else list(ends or ())


class TemplateFormat:
    """The chat convention of a Jinja template (`art_core.chat.ChatFormat`)."""

    def __init__(
        self,
        vocabulary: Vocabulary,
        writer: Writer,
        learned: Learned,
        *,
        stop_token_ids: tuple[int, ...],
    ) -> None:
        self._vocabulary = vocabulary
        self._writer = writer
        self._shapes = Shapes(writer, learned.grammar)
        self.grammar = learned.grammar
        self.stop_token_ids = stop_token_ids
        self.tools_as_text = learned.tools_as_text
        """Tools are written by our own convention (`art_core.chat.tools`)."""
        self.forms = writer.forms
        """What the template wants to be given."""
        self.unreadable_tools = learned.unreadable_tools
        """The template writes tool calls in no syntax that we can read back: refused."""

    def render(self, messages: Sequence[Message], tools: Sequence[Tool] | None = None) -> list[int]:
        return self._vocabulary.encode(self._text(normalise(messages), normalise_tools(tools)))

    def bridge(
        self,
        recorded_token_ids: Sequence[int],
        recorded_messages: Sequence[Message],
        new_messages: Sequence[Message],
        tools: Sequence[Tool] | None = None,
        *,
        sampled: int,
    ) -> list[int] | None:
        wanted = normalise_tools(tools)
        turns = normalise([*recorded_messages, *new_messages])
        # The recorded words are in the ids; here only the shape of the recorded turns matters.
        recorded = [_bare(turn) for turn in turns[: len(recorded_messages)]]
        prompt = self._text(recorded[:-1], wanted)
        whole = self._text([*recorded, *turns[len(recorded) :]], wanted)
        if not whole.startswith(prompt):
            return None
        appended = continuation(
            self._vocabulary,
            self.grammar,
            frozenset(self.stop_token_ids),
            sampled=recorded_token_ids[len(recorded_token_ids) - sampled :],
            said=recorded[-1].text,
            written=whole[len(prompt) :],
        )
        return None if appended is None else [*recorded_token_ids, *appended]

    def answer(
        self,
        messages: Sequence[Message],
        response: Message,
        tools: Sequence[Tool] | None = None,
    ) -> list[int]:
        turns, wanted = normalise([*messages, response]), normalise_tools(tools)
        prompt = self.render(messages, tools)
        lost = "opening or the end"
        for written in written_answers(
            self._vocabulary,
            self.grammar,
            self.stop_token_ids,
            lambda turns, generation: self._text(turns, wanted, generation=generation),
            turns,
        ):
            token_ids = self._vocabulary.encode_after(prompt[-1], written)
            parsed = self.parse(token_ids, tools)
            found = what_is_lost(turns[-1], response, parsed.message)
            if found is None and not parsed.errors:
                return token_ids
            lost = found or lost
        raise ChatError(
            f"the chat template doesn't write the {lost} of this answer as the model says it",
            "Change the answer (leave reasoning out, say), or use a model whose template can "
            "express it.",
        )

    def parse(
        self,
        token_ids: Sequence[int],
        tools: Sequence[Tool] | None = None,
        *,
        call_id_seed: str = "",
    ) -> ParsedMessage:
        parser = self.stream_parser(tools, call_id_seed=call_id_seed)
        parser.feed(token_ids)
        return parser.finish()[1]

    def stream_parser(
        self,
        tools: Sequence[Tool] | None = None,
        *,
        call_id_seed: str = "",
        stop: Sequence[str] = (),
    ) -> Parser:
        return Parser(
            self._vocabulary,
            self.grammar,
            stop_token_ids=frozenset(self.stop_token_ids),
            tools=tools,
            call_id_seed=call_id_seed,
            stop=stop,
        )

    def text_parser(self, *, stop: Sequence[str] = ()) -> Parser:
        return Parser(
            self._vocabulary,
            Grammar(control=self.grammar.control),
            stop_token_ids=frozenset(self.stop_token_ids),
            stop=stop,
        )

    def answer_grammar(
        self,
        schema: Mapping[str, Any] | None,
        tools: Sequence[Tool] = (),
        *,
        several: bool = True,
    ) -> str:
        grammars = AnswerGrammars(self._vocabulary, self.grammar, self._text)
        return grammars.grammar(schema, normalise_tools(tools), several=several)

    def encode(self, text: str) -> list[int]:
        return self._vocabulary.encode(text)

    def decode(self, token_ids: Sequence[int]) -> str:
        return self._vocabulary.unmark(self._vocabulary.decode(token_ids))

    def _text(
        self, turns: Sequence[Turn], tools: Sequence[Tool], *, generation: bool = True
    ) -> str:
        has_tools = bool(tools) or any(turn.calls or turn.role == "tool" for turn in turns)
        if has_tools and self.unreadable_tools:
            raise ChatError(
                "this chat template writes tool calls in a form that can't be read back",
                "Use a model with another template, or leave tools out.",
            )
        if has_tools and self.tools_as_text:
            turns, tools = write_as_text(turns, tools, self._vocabulary.mark), ()
        turns = self._shapes.put(turns, tools)
        return self._writer.text(turns, tools, generation=generation)


def _bare(turn: Turn) -> Turn:
    """A turn with tool calls, without what a template may not be able to spell, or moves."""
    calls = tuple(replace(call, arguments="{}") for call in turn.calls)
    return replace(turn, text="", calls=calls) if calls else turn
