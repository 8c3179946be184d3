# pyright: reportUnknownMemberType=false, reportUnknownVariableType=false, reportUnknownArgumentType=false
"""Puts a chat format together for a tokenizer and its template."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import TYPE_CHECKING, Any

from art_core.chat.bridge import continuation
from art_core.chat.grammar import Grammar, ToolTypes
from art_core.chat.learn import learn_grammar
from art_core.chat.normalise import normalise, normalise_tools
from art_core.chat.parse import Parser
from art_core.chat.protocol import ParsedMessage
from art_core.chat.shapes import Shapes
from art_core.chat.template import Template
from art_core.chat.tools import write_as_text
from art_core.chat.turns import Turn
from art_core.chat.vocabulary import Vocabulary
from art_core.errors import ChatError
from art_core.trajectories import Message, Tool

if TYPE_CHECKING:
    from transformers import PreTrainedTokenizerBase


def chat_format_for(
    tokenizer: PreTrainedTokenizerBase,
    *,
    template: str | None = None,
    stop_token_ids: Sequence[int] = (),
    variables: Mapping[str, Any] | None = None,
) -> TemplateFormat:
    """The chat format of a tokenizer.

    ``template``: Jinja source to use instead of the tokenizer's own.
    ``stop_token_ids``: more tokens that end a turn (a generation config's).
    ``variables``: what the template is given besides messages, such as
    ``{"enable_thinking": False}``.

    Raises:
        ChatError: there is no template, it can't be used, or the tokenizer isn't
            of the `tokenizers` library.
    """
    source = template or getattr(tokenizer, "chat_template", None)
    if not isinstance(source, str) or not source:
        raise ChatError(
            "the tokenizer has no chat template",
            "Use an instruct model, or pass template= (Jinja source).",
        )
    vocabulary = Vocabulary(tokenizer, source)
    chat_template = Template(tokenizer, vocabulary, source, variables or {})
    learned = learn_grammar(chat_template, vocabulary)
    ends = [*stop_token_ids, *learned.end_token_ids]
    if isinstance(tokenizer.eos_token_id, int):
        ends.append(tokenizer.eos_token_id)
    if not ends:
        raise ChatError(
            "no token ends an assistant turn in this chat template",
            "Pass stop_token_ids=, or a tokenizer with an eos_token.",
        )
    return TemplateFormat(
        vocabulary,
        chat_template,
        learned.grammar,
        stop_token_ids=tuple(dict.fromkeys(ends)),
        tools_as_text=learned.tools_as_text,
        unreadable_tools=learned.unreadable_tools,
    )


class TemplateFormat:
    """The chat convention of a Jinja template (`art_core.chat.ChatFormat`)."""

    def __init__(
        self,
        vocabulary: Vocabulary,
        template: Template,
        grammar: Grammar,
        *,
        stop_token_ids: tuple[int, ...],
        tools_as_text: bool,
        unreadable_tools: bool,
    ) -> None:
        self._vocabulary = vocabulary
        self._template = template
        self._shapes = Shapes(template)
        self.grammar = grammar
        self.stop_token_ids = stop_token_ids
        self.tools_as_text = tools_as_text
        """Tools are written by our own convention (`art_core.chat.tools`)."""
        self._unreadable_tools = unreadable_tools

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
        prompt = self._text(normalise(recorded_messages[:-1]), wanted)
        whole = self._text(normalise([*recorded_messages, *new_messages]), wanted)
        if not whole.startswith(prompt):
            return None
        appended = continuation(
            self._vocabulary,
            self.grammar,
            ToolTypes(tools),
            frozenset(self.stop_token_ids),
            sampled=recorded_token_ids[len(recorded_token_ids) - sampled :],
            written=whole[len(prompt) :],
        )
        return None if appended is None else [*recorded_token_ids, *appended]

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

    def encode(self, text: str) -> list[int]:
        return self._vocabulary.encode(text)

    def decode(self, token_ids: Sequence[int]) -> str:
        return self._vocabulary.unmark(self._vocabulary.decode(token_ids))

    def _text(self, turns: Sequence[Turn], tools: Sequence[Tool]) -> str:
        has_tools = bool(tools) or any(turn.calls or turn.role == "tool" for turn in turns)
        if has_tools and self._unreadable_tools:
            raise ChatError(
                "this chat template writes tool calls in a form that can't be read back",
                "Use a model with another template, or leave tools out.",
            )
        if has_tools and self.tools_as_text:
            turns, tools = write_as_text(turns, tools, self._vocabulary.mark), ()
        turns = self._shapes.put(turns, tools)
        return self._template.text(turns, tools, generation=True)
