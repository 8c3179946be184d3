# pyright: reportUnknownMemberType=false, reportUnknownVariableType=false, reportUnknownArgumentType=false
"""Conversations written by the renderers library, for models without a Jinja template."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import TYPE_CHECKING, Any, cast

from art_core.chat.turns import Turn
from art_core.chat.vocabulary import Vocabulary
from art_core.chat.writer import Forms, as_messages, as_tools, refused
from art_core.errors import ChatError, MissingExtraError
from art_core.trajectories import Tool

if TYPE_CHECKING:
    from transformers import PreTrainedTokenizerBase


class LibraryRenderer:
    """A renderer of the library (`art_core.chat.writer.Writer`).

    It tokenizes through our vocabulary, so that text from users and tools can't
    become control tokens: on its own it lets them through.
    """

    source = ""

    def __init__(
        self,
        tokenizer: PreTrainedTokenizerBase,
        vocabulary: Vocabulary,
        name: str,
        settings: Mapping[str, Any],
    ) -> None:
        try:
            from pydantic import TypeAdapter
            from renderers import RendererConfig, create_renderer
        except ImportError as error:
            raise MissingExtraError(
                "renderers isn't installed", "Install it: pip install renderers"
            ) from error
        self._vocabulary = vocabulary
        guarded = cast("Any", _GuardedTokenizer(tokenizer, vocabulary))
        try:
            config = TypeAdapter(RendererConfig).validate_python({"name": name, **settings})
            self._renderer = create_renderer(guarded, config)
        except (ValueError, AssertionError, RuntimeError) as error:
            raise ChatError(f"renderer {name!r} can't be used: {error}") from error
        self.stop_token_ids: Sequence[int] = self._renderer.get_stop_token_ids()
        self.forms = Forms()

    def text(self, turns: Sequence[Turn], tools: Sequence[Tool], *, generation: bool) -> str:
        messages = as_messages(turns, self.forms)
        shield = self._vocabulary.shield
        try:
            ids = self._renderer.render_ids(
                shield(messages),
                tools=shield(as_tools(tools, self.forms.tools)),
                add_generation_prompt=generation,
            )
        except (ValueError, TypeError, LookupError, AttributeError, AssertionError) as error:
            raise refused(error) from error
        return self._vocabulary.decode(ids)


class _GuardedTokenizer:
    """The part of a tokenizer that renderers use."""

    def __init__(self, tokenizer: PreTrainedTokenizerBase, vocabulary: Vocabulary) -> None:
        self._tokenizer = tokenizer
        self._vocabulary = vocabulary
        self.name_or_path: str = tokenizer.name_or_path
        self.unk_token_id = tokenizer.unk_token_id
        self.eos_token_id = tokenizer.eos_token_id
        self.chat_template = tokenizer.chat_template

    def encode(self, text: str, *args: Any, **kwargs: Any) -> list[int]:
        return self._vocabulary.encode(self._vocabulary.mark(text))

    def decode(self, token_ids: Any, *args: Any, **kwargs: Any) -> str:
        ids = [token_ids] if isinstance(token_ids, int) else token_ids
        return self._vocabulary.unmark(self._vocabulary.decode(ids))

    def convert_tokens_to_ids(self, tokens: Any) -> Any:
        return self._tokenizer.convert_tokens_to_ids(tokens)
