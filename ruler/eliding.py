"""Shortening what is too long for a judge, by one stated rule.

1. Every text of a message is cut in its middle to at most ``cap`` characters, the
   largest ``cap`` with which the whole fits, but no fewer than `SHORTEST`.
2. If that is still too long, whole messages are left out of the middle.

Beginning and end survive, the judge sees a marker with how much is missing at each
cut, and the number of characters left out is reported. Nothing is cut silently.
"""

from __future__ import annotations

from collections.abc import Sequence

from ruler.messages import Visible, map_strings, to_line

SHORTEST = 200
"""Characters that rule 1 leaves of a text at least."""
_MARKER_ROOM = 80


def shorten_text(text: str, cap: int, mark: str) -> str:
    """``text`` with its middle left out, if it is longer than ``cap`` characters."""
    if len(text) <= cap:
        return text
    head = (cap + 1) // 2
    tail = cap - head
    left_out = len(text) - cap
    return f"{text[:head]} [[{mark}: {left_out} characters left out]] {text[len(text) - tail :]}"


def shorten(messages: Sequence[Visible], room: int, mark: str) -> tuple[list[str], int]:
    """The messages as lines of at most about ``room`` characters, and how many were left out.

    ``room`` can be exceeded by the markers alone.
    """
    lines = [to_line(message) for message in messages]
    full = _length(lines)
    if full <= room:
        return lines, 0
    low, high = SHORTEST, max(full, SHORTEST)
    while low < high:
        middle = (low + high + 1) // 2
        if _length(_cut(messages, middle, mark)) <= room:
            low = middle
        else:
            high = middle - 1
    cut = _without_middle(_cut(messages, low, mark), room, mark)
    return cut, max(0, full - _length(cut))


def share_out(lengths: Sequence[int], room: int) -> list[int]:
    """``room`` divided equally, except that what short ones don't need goes to longer ones."""
    shares = [0] * len(lengths)
    left = room
    waiting = sorted(range(len(lengths)), key=lambda index: lengths[index])
    for position, index in enumerate(waiting):
        shares[index] = min(lengths[index], left // (len(waiting) - position))
        left -= shares[index]
    return shares


def _length(lines: Sequence[str]) -> int:
    return sum(len(line) + 1 for line in lines)


def _cut(messages: Sequence[Visible], cap: int, mark: str) -> list[str]:
    return [_cut_message(message, cap, mark) for message in messages]


def _cut_message(message: Visible, cap: int, mark: str) -> str:
    cut = to_line(map_strings(message, lambda text: shorten_text(text, cap, mark)))
    if len(cut) <= 4 * cap:
        return cut
    # Many short pieces (parts, tool calls) can be as long as one long text.
    role = shorten_text(str(message["role"]), SHORTEST, mark)
    return to_line({"role": role, "message": shorten_text(to_line(message), cap, mark)})


def _without_middle(lines: list[str], room: int, mark: str) -> list[str]:
    if _length(lines) <= room:
        return lines
    head, tail = 0, len(lines)
    spent = _MARKER_ROOM
    for turn in range(len(lines)):
        at_end = turn % 2 == 0  # the end first: it says what came of it all
        line = lines[tail - 1] if at_end else lines[head]
        spent += len(line) + 1
        if spent > room and turn > 0:
            break
        if at_end:
            tail -= 1
        else:
            head += 1
    missing = lines[head:tail]
    note = f"[[{mark}: {len(missing)} messages, {_length(missing)} characters left out]]"
    return [*lines[:head], note, *lines[tail:]]
