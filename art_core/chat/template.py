# pyright: reportUnknownMemberType=false, reportUnknownVariableType=false, reportUnknownArgumentType=false
"""Conversations written by a tokenizer's Jinja template."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import TYPE_CHECKING, Any

from art_core.chat.turns import Turn
from art_core.chat.vocabulary import Vocabulary
from art_core.chat.writer import NULL, Forms, as_messages, as_tools, refused
from art_core.errors import ChatError
from art_core.trajectories import Tool

if TYPE_CHECKING:
    from transformers import PreTrainedTokenizerBase


class JinjaTemplate:
    """A template as transformers renders it (`art_core.chat.writer.Writer`)."""

    def __init__(
        self,
        tokenizer: PreTrainedTokenizerBase,
        vocabulary: Vocabulary,
        source: str,
        variables: Mapping[str, Any],
    ) -> None:
        self._tokenizer = tokenizer
        self._vocabulary = vocabulary
        self._variables = dict(variables)
        self.source = source
        self.forms = Forms()

    def text(self, turns: Sequence[Turn], tools: Sequence[Tool], *, generation: bool) -> str:
        from jinja2 import TemplateError

        messages = as_messages(turns, self.forms, self.source)
        try:
            rendered = self._tokenizer.apply_chat_template(
                self._vocabulary.shield(messages),
                tools=self._vocabulary.shield(as_tools(tools, self.forms.tools)),
                chat_template=self.source,
                add_generation_prompt=generation,
                tokenize=False,
                **self._variables,
            )
        # Templates fail in their own words, or by what they do to values: indexing, adding, …
        except (TemplateError, TypeError, ValueError, LookupError, AttributeError) as error:
            raise refused(error) from error
        if not isinstance(rendered, str):
            raise ChatError(f"the chat template gave {type(rendered).__name__}, not text")
        marked = self._vocabulary.mark(rendered)
        if self.forms.arguments == "named nulls":
            quote = self._vocabulary.mark('<|"|>')
            marked = marked.replace(f"{quote}{NULL}{quote}", "null")
        return marked
