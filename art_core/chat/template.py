# pyright: reportUnknownMemberType=false, reportUnknownVariableType=false, reportUnknownArgumentType=false
"""A chat template as it is: turns in, marked text out, or an error that says what it refuses."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import TYPE_CHECKING, Any, Literal

from art_core.chat.turns import Turn, parse_json
from art_core.chat.vocabulary import Vocabulary
from art_core.errors import ChatError
from art_core.trajectories import Tool

if TYPE_CHECKING:
    from transformers import PreTrainedTokenizerBase

ArgumentsForm = Literal["object", "string", "texts"]
"""What a template wants ``arguments`` to be: an object, its JSON, or an object whose values
are already text (templates that print values one by one print Python's True and None)."""
ContentForm = Literal["string", "parts"]


class Template:
    """A tokenizer's Jinja template, and what messages must look like for it."""

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
        self.knows_developer = "developer" in source
        self.content_form: ContentForm = "string"
        self.arguments_form: ArgumentsForm = "object"

    def text(self, turns: Sequence[Turn], tools: Sequence[Tool], *, generation: bool) -> str:
        """Marked text of the conversation, and of the assistant's opening if ``generation``.

        Raises:
            ChatError: the template raises, or fails, on this conversation.
        """
        from jinja2 import TemplateError

        messages = [self._message(turn, f"messages[{at}]") for at, turn in enumerate(turns)]
        try:
            rendered = self._tokenizer.apply_chat_template(
                self._vocabulary.shield(messages),
                tools=self._vocabulary.shield(tools) or None,
                chat_template=self.source,
                add_generation_prompt=generation,
                tokenize=False,
                **self._variables,
            )
        except (
            TemplateError,
            TypeError,
            KeyError,
            IndexError,
            AttributeError,
            ValueError,
        ) as error:
            raise ChatError(
                f"the chat template refuses this conversation: {error}",
                "Change the messages, or use a model whose template can express them.",
            ) from error
        if not isinstance(rendered, str):
            raise ChatError(f"the chat template gave {type(rendered).__name__}, not text")
        return self._vocabulary.mark(rendered)

    def _message(self, turn: Turn, where: str) -> dict[str, Any]:
        role = turn.role
        if role == "developer" and not self.knows_developer:
            role = "system"
        content: Any = turn.text
        if self.content_form == "parts":
            content = [{"type": "text", "text": turn.text}] if turn.text else []
        message: dict[str, Any] = {"role": role, "content": content}
        if turn.name is not None:
            message["name"] = turn.name
        if turn.reasoning:
            message["reasoning_content"] = turn.reasoning
            if "thinking" in self.source:
                message["thinking"] = turn.reasoning
        if turn.calls:
            message["tool_calls"] = [
                {
                    "id": call.id or f"call_{at}",
                    "type": "function",
                    "function": {
                        "name": call.name,
                        "arguments": self._arguments(call.arguments, f"{where}.tool_calls[{at}]"),
                    },
                }
                for at, call in enumerate(turn.calls)
            ]
        if turn.call_id is not None:
            message["tool_call_id"] = turn.call_id
        return message

    def _arguments(self, arguments: str, where: str) -> Any:
        import json

        try:
            value = parse_json(arguments)
        except ValueError:
            value = None
        if not isinstance(value, dict):
            raise ChatError(
                f"{where}.function.arguments is {arguments!r:.200}",
                "This chat template can only express arguments that are a JSON object.",
            )
        if self.arguments_form == "string":
            return json.dumps(value, ensure_ascii=False)
        if self.arguments_form == "texts":
            return {
                key: item if isinstance(item, str) else json.dumps(item, ensure_ascii=False)
                for key, item in value.items()
            }
        return value
