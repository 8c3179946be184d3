# pyright: reportUnknownMemberType=false, reportUnknownVariableType=false, reportUnknownArgumentType=false
"""Token ids to text, piece by piece."""

from __future__ import annotations

import codecs
from collections.abc import Iterable, Mapping, Sequence
from typing import Any

import regex
from tokenizers import Tokenizer

from art_core.errors import ChatError

_BYTE_TOKEN = regex.compile(r"<0x([0-9A-Fa-f]{2})>")


class Decoder:
    """Token ids to marked text, piece by piece; bytes of an unfinished character wait."""

    def __init__(self, pieces: Pieces, names: Mapping[int, str]) -> None:
        self._pieces = pieces
        self._names = names
        self._utf8 = codecs.getincrementaldecoder("utf-8")("replace")
        self._strip = pieces.strips_first_blank

    def feed(self, token_ids: Iterable[int]) -> str:
        out: list[str] = []
        for token_id in token_ids:
            name = self._names.get(token_id)
            if name is None:
                text = self._utf8.decode(self._pieces[token_id])
            else:
                text = self._utf8.decode(b"", final=True) + name
                self._utf8.reset()
            if self._strip and text:
                text = text.removeprefix(" ")
                self._strip = False
            out.append(text)
        return "".join(out)

    def finish(self) -> str:
        return self._utf8.decode(b"", final=True)


class Pieces(dict[int, bytes]):
    """UTF-8 bytes of each ordinary token, filled as needed."""

    def __init__(
        self, backend: Tokenizer, spec: dict[str, Any], added: Sequence[dict[str, Any]]
    ) -> None:
        super().__init__()
        self._backend = backend
        self._added = {int(token["id"]): token["content"] for token in added}
        decoders = _decoders(spec.get("decoder"))
        kinds = {decoder["type"] for decoder in decoders}
        self._byte_level = "ByteLevel" in kinds
        self._byte_fallback = "ByteFallback" in kinds
        self._blanks = bool(kinds & {"Metaspace", "Replace"})
        self.strips_first_blank = "Metaspace" in kinds or "Strip" in kinds
        if not (self._byte_level or self._blanks):
            raise ChatError(
                f"tokenizer with decoder {sorted(kinds)}",
                "Byte-level and SentencePiece-style tokenizers are supported.",
            )

    def __missing__(self, token_id: int) -> bytes:
        piece = self[token_id] = self._bytes(token_id)
        return piece

    def _bytes(self, token_id: int) -> bytes:
        if token_id in self._added:
            return self._added[token_id].encode()
        token = self._backend.id_to_token(token_id)
        if token is None:  # a padding row of the model's output matrix: stands for no text
            return b""
        if self._byte_level:
            try:
                return bytes(_BYTE_OF_CHAR[char] for char in token)
            except KeyError:
                return token.encode()
        byte = _BYTE_TOKEN.fullmatch(token) if self._byte_fallback else None
        return bytes([int(byte[1], 16)]) if byte else token.replace("▁", " ").encode()


def _decoders(decoder: dict[str, Any] | None) -> list[dict[str, Any]]:
    if decoder is None:
        return []
    if decoder["type"] == "Sequence":
        return [inner for item in decoder["decoders"] for inner in _decoders(item)]
    return [decoder]


def _byte_of_char() -> dict[str, int]:
    """The inverse of GPT-2's table of bytes as characters: how byte-level tokens are spelled."""
    printable = [*range(33, 127), *range(161, 173), *range(174, 256)]
    table = {chr(byte): byte for byte in printable}
    others = (byte for byte in range(256) if byte not in printable)
    table.update((chr(256 + offset), byte) for offset, byte in enumerate(others))
    return table


_BYTE_OF_CHAR = _byte_of_char()
