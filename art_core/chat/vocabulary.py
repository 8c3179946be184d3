# pyright: reportUnknownMemberType=false, reportUnknownVariableType=false, reportUnknownArgumentType=false
"""A tokenizer with its control tokens under guard.

Control tokens (``<|im_end|>``, ``<think>``) mean structure: only a template may
write them into a prompt, and only their ids count as structure in what a model
sampled. So text lives here in two spellings. *Plain* text is what people see.
*Marked* text has each control token as a secret name that no plain text holds,
so ``<|im_end|>`` from a web page and the template's own can't be confused.
"""

from __future__ import annotations

import json
import secrets
from collections.abc import Iterable, Iterator, Mapping, Sequence
from typing import TYPE_CHECKING, Any, cast

import regex
from tokenizers import AddedToken, Tokenizer

from art_core.chat.decoding import Decoder, Pieces
from art_core.chat.dialects import KNOWN_MARKERS
from art_core.errors import ChatError

if TYPE_CHECKING:
    from transformers import PreTrainedTokenizerBase

_SHAPED_LIKE_CONTROL = regex.compile(r"<[|｜].+[|｜]>")


class Vocabulary:
    """Ids, plain text and marked text of one tokenizer."""

    def __init__(self, tokenizer: PreTrainedTokenizerBase, template: str = "") -> None:
        """Take a tokenizer of the `tokenizers` library, and the chat template's source.

        Control tokens are the added tokens that are special, that the template
        writes, that some model uses as a marker, or that look like ``<|this|>``.
        Other added tokens (runs of blanks, HTML tags) are ordinary text.

        Raises:
            ChatError: a tokenizer of another kind.
        """
        backend = getattr(tokenizer, "backend_tokenizer", None)
        if not isinstance(backend, Tokenizer):
            raise ChatError(
                f"{type(tokenizer).__name__} isn't a tokenizer of the tokenizers library",
                "Save it once with a tokenizer.json, then load that folder.",
            )
        spec = cast("dict[str, Any]", json.loads(backend.to_str()))
        added = cast("list[dict[str, Any]]", spec["added_tokens"])
        controls = {
            token["content"]: int(token["id"])
            for token in added
            if len(token["content"]) > 1 and _is_control(token, template)
        }
        nonce = "".join(chr(0x100000 + secrets.randbelow(0xFFF0)) for _ in range(3))
        self.ids: Mapping[str, int] = controls
        """Id of each control token."""
        self._names = {text: f"{nonce}{chr(0xF0000 + n)}" for n, text in enumerate(controls)}
        self._by_name = {name: text for text, name in self._names.items()}
        self.special = {token["content"] for token in added if token["special"]}
        """Control tokens that are never shown."""
        self.name_pattern = f"{nonce}[\U000f0000-\U000ffffd]"
        """Regex for any one control token in marked text."""
        self._name = regex.compile(self.name_pattern)
        longest_first = sorted(map(regex.escape, controls), key=len, reverse=True)
        self._control = regex.compile("|".join(longest_first) or "(?!)")
        self._break = nonce + chr(0x10FFFD)
        self._guarded, self._to_real = _guarded_copy(spec, added, self._names)
        self._pieces = Pieces(backend, spec, added)
        self._name_of_id = {id_: self._names[text] for text, id_ in controls.items()}
        swallowing = {token["content"] for token in added if token["rstrip"]}
        self._neutral = next((self._names[t] for t in controls if t not in swallowing), None)

    def mark(self, text: str) -> str:
        """Marked text of what a template wrote, where each control token is meant.

        Control tokens inside what `shield` protected stay text.
        """
        marked = self._control.sub(lambda match: self._names[match[0]], text)
        return marked.replace(self._break, "")

    def shield(self, value: Any) -> Any:
        """``value`` (nested lists and dicts of strings) with no control token left intact.

        What it puts in is taken out by `mark`.
        """
        if isinstance(value, str):
            while self._control.search(value):
                value = self._control.sub(
                    lambda match: f"{match[0][0]}{self._break}{match[0][1:]}", value
                )
            return value
        if isinstance(value, Mapping):
            fields = cast("Mapping[str, Any]", value)
            return {self.shield(key): self.shield(item) for key, item in fields.items()}
        if isinstance(value, list | tuple):
            return [self.shield(item) for item in cast("Sequence[Any]", value)]
        return value

    def unmark(self, marked: str, *, hide_special: bool = False) -> str:
        """Plain text of marked text."""

        def plain(match: regex.Match[str]) -> str:
            text = self._by_name.get(match[0], "")
            return "" if hide_special and text in self.special else text

        return self._name.sub(plain, marked)

    def controls(self, marked: str, start: int = 0) -> Iterator[tuple[int, int, int]]:
        """Start, end and token id of each control token in marked text."""
        for match in self._name.finditer(marked, start):
            yield match.start(), match.end(), self.ids[self._by_name[match[0]]]

    def encode(self, marked: str) -> list[int]:
        """Token ids of marked (or plain) text: only marked control tokens become such ids.

        Raises:
            ChatError: the tokenizer makes a control token of plain text, or the text
                can't be UTF-8.
        """
        try:
            # As a batch, because then other threads may run; without offsets it is also quicker.
            (encoding,) = self._guarded.encode_batch_fast([marked])
        except TypeError as error:
            raise ChatError(
                "a text has half of a character in it (a surrogate such as \\ud800)",
                "Send whole characters.",
            ) from error
        ids = [self._to_real.get(id_, id_) for id_ in encoding.ids]
        meant = len(self._name.findall(marked))
        if sum(id_ in self._name_of_id for id_ in ids) != meant:
            raise ChatError(
                "the tokenizer turns plain text into control tokens",
                "Its model vocabulary spells them as ordinary words: use another tokenizer.",
            )
        return ids

    def encode_after(self, token_id: int | None, marked: str) -> list[int]:
        """Token ids of marked text that continues a prompt whose last token is ``token_id``.

        Tokenizers treat the beginning of a text differently (a blank is put in
        front), and some control tokens swallow the blanks behind them: this
        tokenizes the text as it stands in place. None: behind ordinary text.
        """
        before = self._name_of_id.get(-1 if token_id is None else token_id, self._neutral)
        if before is None:
            return self.encode(marked)
        return self.encode(before + marked)[1:]

    def decoder(self) -> Decoder:
        return Decoder(self._pieces, self._name_of_id)

    def decode(self, token_ids: Iterable[int]) -> str:
        """Marked text of token ids."""
        decoder = self.decoder()
        return decoder.feed(token_ids) + decoder.finish()


def _is_control(token: Mapping[str, Any], template: str) -> bool:
    text: str = token["content"]
    if not text.strip():
        return False
    known = token["special"] or text in template or text in KNOWN_MARKERS
    return known or bool(_SHAPED_LIKE_CONTROL.fullmatch(text))


def _guarded_copy(
    spec: dict[str, Any], added: Sequence[dict[str, Any]], names: Mapping[str, str]
) -> tuple[Tokenizer, dict[int, int]]:
    """The tokenizer with control tokens renamed, and the real ids of its added tokens."""
    bare = {**spec, "added_tokens": [], "truncation": None, "padding": None, "post_processor": None}
    guarded = Tokenizer.from_str(json.dumps(bare))
    for token in added:
        name = names.get(token["content"])
        guarded.add_tokens(
            [
                AddedToken(
                    name or token["content"],
                    single_word=token["single_word"],
                    lstrip=token["lstrip"],
                    rstrip=token["rstrip"],
                    normalized=token["normalized"] and name is None,
                )
            ]
        )
    real: dict[int, int] = {}
    for token in added:
        id_ = guarded.token_to_id(names.get(token["content"], token["content"]))
        real[cast("int", id_)] = int(token["id"])
    return guarded, real
