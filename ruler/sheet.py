"""The data half of a judge's prompt: trajectories between delimiters nobody can guess."""

from __future__ import annotations

import random
from collections.abc import Sequence
from dataclasses import dataclass

from ruler.case import Entry, digest_of
from ruler.eliding import share_out, shorten
from ruler.messages import Conversation, Visible, to_line

_LETTERS = "bcdfghjklmnpqrstvwxz"
_ID_LENGTH = 5
_NONCE_LENGTH = 16


@dataclass(frozen=True, slots=True, kw_only=True)
class Sheet:
    """Some entries, laid out for one call."""

    text: str
    nonce: str
    """In every delimiter; occurs nowhere in the data."""
    ids: tuple[str, ...]
    """Of the entries, in the order given; likewise."""
    left_out_chars: int


def lay_out(entries: Sequence[Entry], *, salt: str, max_chars: int) -> Sheet:
    """Lay the entries out in the order given, in about ``max_chars`` characters.

    Delimiters and ids are a digest of ``salt`` and of all that the entries say: the
    same call has the same ones, so that answers can be cached, and no trajectory
    can contain them, because what it contains changes them.
    """
    nonce, ids = _names(entries, salt)
    firsts = [entry.conversations[0] for entry in entries if entry.conversations]
    shared = _shared_length(firsts) if len(firsts) == len(entries) else 0
    tools = _shared_tools(entries)
    leading = firsts[0].messages[:shared] if shared else ()
    context = _Part(title="", messages=[*_tools_line(tools), *leading])
    parts = [_parts(entry, shared, show_tools=not tools) for entry in entries]

    context_room = min(context.length, max_chars // 2)
    rooms = share_out([sum(one.length for one in own) for own in parts], max_chars - context_room)
    lines, left_out = shorten(context.messages, context_room, nonce)
    blocks = [_block(nonce, "context shared by all trajectories", lines)] if lines else []
    for entry, name, own, room in zip(entries, ids, parts, rooms, strict=True):
        lines, missing = _lines(own, room, nonce)
        left_out += missing
        cut_off = " (cut off by a limit of the agent)" if entry.cut_off else ""
        blocks.append(_block(nonce, f"trajectory {name}{cut_off}", lines))
    return Sheet(text="\n\n".join(blocks), nonce=nonce, ids=ids, left_out_chars=left_out)


@dataclass(frozen=True, slots=True, kw_only=True)
class _Part:
    """A conversation, or what of it isn't shown elsewhere."""

    title: str
    messages: list[Visible]

    @property
    def length(self) -> int:
        return sum(len(to_line(message)) + 1 for message in self.messages)


def _block(nonce: str, title: str, lines: Sequence[str]) -> str:
    return "\n".join([f"=== {nonce} begin {title}", *lines, f"=== {nonce} end"])


def _shared_length(firsts: Sequence[Conversation]) -> int:
    """How many leading messages all have; what an agent did last is always shown as its own."""
    if len(firsts) == 1:
        return firsts[0].first_act
    count = 0
    for lines in zip(*(one.lines for one in firsts), strict=False):
        if len(set(lines)) > 1:
            break
        count += 1
    return min(count, *(one.last_act for one in firsts))


def _shared_tools(entries: Sequence[Entry]) -> tuple[Visible, ...]:
    """The tools, where every conversation of every entry has the same."""
    every = [one.tools for entry in entries for one in entry.conversations]
    return every[0] if every and all(tools == every[0] for tools in every) else ()


def _tools_line(tools: Sequence[Visible]) -> list[Visible]:
    return [{"role": "tools", "tools": list(tools)}] if tools else []


def _parts(entry: Entry, shared: int, *, show_tools: bool) -> list[_Part]:
    parts: list[_Part] = []
    for number, one in enumerate(entry.conversations):
        skip = shared if number == 0 else _begins_like(one, entry.conversations[:number])
        same = f"the same {skip} messages as an earlier one" if number else "the shared context"
        title = f"conversation {number + 1} of {len(entry.conversations)}"
        parts.append(
            _Part(
                title=f"{title}, after {same}" if skip else title,
                messages=[*(_tools_line(one.tools) if show_tools else ()), *one.messages[skip:]],
            )
        )
    return parts


def _lines(parts: Sequence[_Part], room: int, mark: str) -> tuple[list[str], int]:
    if not any(part.messages for part in parts):
        return [f"--- {mark} nothing: this agent did nothing"], 0
    lines: list[str] = []
    left_out = 0
    for part, space in zip(parts, share_out([one.length for one in parts], room), strict=True):
        shown, missing = shorten(part.messages, space, mark)
        left_out += missing
        lines += [f"--- {mark} {part.title}", *shown] if len(parts) > 1 else shown
    return lines, left_out


def _begins_like(one: Conversation, earlier: Sequence[Conversation]) -> int:
    """The most leading messages that ``one`` has in common with an earlier conversation."""
    best = 0
    for other in earlier:
        count = 0
        for mine, theirs in zip(one.lines, other.lines, strict=False):
            if mine != theirs:
                break
            count += 1
        best = max(best, count)
    return min(best, one.last_act)


def _names(entries: Sequence[Entry], salt: str) -> tuple[str, tuple[str, ...]]:
    said = "\n".join(
        line
        for entry in entries
        for one in entry.conversations
        for line in (*map(to_line, one.tools), *one.lines)
    )
    attempt = 0
    while True:
        digest = digest_of([salt, str(attempt), *(entry.digest for entry in entries)])
        generator = random.Random(digest)
        nonce = digest[:_NONCE_LENGTH]
        ids = tuple("".join(generator.choices(_LETTERS, k=_ID_LENGTH)) for _ in entries)
        if len(set(ids)) == len(ids) and not any(name in said for name in (nonce, *ids)):
            return nonce, ids
        attempt += 1
