"""What becomes of a step that runs out of memory, or never ends."""

from __future__ import annotations

import sys
import threading
import traceback

import torch

_CPU_ALLOCATOR = ("can't allocate memory", "not enough memory")
"""What PyTorch says where it has no class of its own for it."""


def is_out_of_memory(error: Exception) -> bool:
    """Whether less work at a time may succeed."""
    if isinstance(error, MemoryError | torch.OutOfMemoryError):
        return True
    return isinstance(error, RuntimeError) and any(part in str(error) for part in _CPU_ALLOCATOR)


def where_is(thread: threading.Thread) -> str:
    """The innermost lines that a thread is in."""
    frame = sys._current_frames().get(thread.ident or 0)  # pyright: ignore[reportPrivateUsage]
    if frame is None:
        return "nowhere: it has ended"
    return "\n".join(line.strip() for line in traceback.format_stack(frame)[-3:])
