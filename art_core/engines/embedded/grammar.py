# pyright: reportUnknownMemberType=false, reportUnknownVariableType=false
# pyright: reportUnknownArgumentType=false
"""Grammars (`SamplingParams.grammar`) to masks over the vocabulary, by llguidance."""

from __future__ import annotations

import threading
from typing import TYPE_CHECKING

import torch
from torch import Tensor

from art_core.errors import GrammarError, MissingExtraError

if TYPE_CHECKING:
    from llguidance import LLMatcher, LLTokenizer
    from transformers import PreTrainedTokenizerBase


class TokenMask:
    """Which tokens one completion may go on with; belongs to the engine's thread."""

    def __init__(self, matcher: LLMatcher, vocab_size: int, device: torch.device) -> None:
        self._matcher = matcher
        self._vocab_size = vocab_size
        self._device = device
        self._shifts = torch.arange(8, dtype=torch.uint8)

    def legal(self) -> Tensor:
        """[vocabulary], True where the grammar allows the token next."""
        packed = torch.frombuffer(bytearray(self._matcher.compute_bitmask()), dtype=torch.uint8)
        bits = (packed[:, None] >> self._shifts) & 1
        return bits.flatten()[: self._vocab_size].bool().to(self._device)

    def accept(self, token: int) -> None:
        """Go on behind a token that was legal."""
        self._matcher.consume_token(token)


class Grammars:
    """Compiles grammars for one tokenizer. All methods may be called from any thread."""

    def __init__(
        self, tokenizer: PreTrainedTokenizerBase, vocab_size: int, device: torch.device
    ) -> None:
        self._tokenizer = tokenizer
        self._vocab_size = vocab_size
        self._device = device
        self._lock = threading.Lock()
        self._by_ends: dict[tuple[int, ...], LLTokenizer] = {}

    def mask(self, grammar: str, ends: tuple[int, ...]) -> TokenMask:
        """A mask that allows a completion of ``grammar`` and then one of the tokens ``ends``.

        The first call takes about a second.

        Raises:
            GrammarError: the grammar can't be compiled.
            MissingExtraError: llguidance isn't installed.
        """
        try:
            from llguidance import LLMatcher
        except ImportError as error:
            raise MissingExtraError(
                "constrained sampling needs llguidance", "pip install llguidance"
            ) from error
        matcher = LLMatcher(self._for_ends(ends), LLMatcher.grammar_from_lark(grammar))
        if matcher.is_error():
            raise GrammarError(f"the grammar can't be used: {matcher.get_error()}")
        return TokenMask(matcher, self._vocab_size, self._device)

    def _for_ends(self, ends: tuple[int, ...]) -> LLTokenizer:
        from llguidance.hf import from_tokenizer
        from transformers import PreTrainedTokenizerFast

        if not isinstance(self._tokenizer, PreTrainedTokenizerFast):
            raise GrammarError("constrained sampling needs a tokenizer of the tokenizers library")
        with self._lock:
            if ends not in self._by_ends:
                self._by_ends[ends] = from_tokenizer(
                    self._tokenizer, n_vocab=self._vocab_size, eos_token=list(ends) or None
                )
            return self._by_ends[ends]
