"""Logprobs and usage as OpenAI's API spells them."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence
from itertools import accumulate
from typing import Any

from art_core.chat.protocol import ChatFormat
from art_core.gateway.choice_run import Piece
from art_core.trajectories import Completion


def chat_logprobs(chat: ChatFormat, sampled: Piece) -> dict[str, Any]:
    """The ``logprobs`` of a chat choice, one entry per sampled token, control tokens included."""
    content = [
        {
            **_token(chat, token_id, logprob),
            "top_logprobs": [_token(chat, top, value) for top, value in tops.items()],
        }
        for token_id, logprob, tops in _tokens(sampled)
    ]
    return {"content": content, "refusal": None}


def text_logprobs(chat: ChatFormat, sampled: Piece, *, offset: int) -> dict[str, Any]:
    """The ``logprobs`` of a text completion; ``offset``: characters before its first token."""
    tokens = [chat.decode([token_id]) for token_id in sampled.token_ids]
    ends = accumulate((len(token) for token in tokens), initial=offset)
    tops = [
        {chat.decode([top]): value for top, value in tops.items()}
        for _, _, tops in _tokens(sampled)
    ]
    return {
        "tokens": tokens,
        "token_logprobs": sampled.logprobs,
        "top_logprobs": tops if any(tops) else None,
        "text_offset": list(ends)[:-1],
    }


def _tokens(sampled: Piece) -> Iterator[tuple[int, float, dict[int, float]]]:
    tops = sampled.top_logprobs or [dict[int, float]()] * len(sampled.token_ids)
    return zip(sampled.token_ids, sampled.logprobs, tops, strict=True)


def usage(prompt: Sequence[int], completions: Iterable[Completion]) -> dict[str, int]:
    sampled = sum(len(completion.completion_token_ids) for completion in completions)
    return {
        "prompt_tokens": len(prompt),
        "completion_tokens": sampled,
        "total_tokens": len(prompt) + sampled,
    }


def _token(chat: ChatFormat, token_id: int, logprob: float) -> dict[str, Any]:
    text = chat.decode([token_id])
    return {"token": text, "logprob": logprob, "bytes": list(text.encode())}
