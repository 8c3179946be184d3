# pyright: reportUnknownMemberType=false
"""What can be set about the embedded engine."""

from __future__ import annotations

from dataclasses import dataclass

import psutil
import torch


@dataclass(frozen=True, slots=True, kw_only=True)
class EmbeddedOptions:
    """Limits of the embedded engine; the defaults suit a machine shared with a trainer."""

    max_running: int = 64
    """Requests computed at a time."""
    max_waiting: int = 4096
    """Requests queued behind them; more are refused with EngineOverloadedError."""
    step_tokens: int = 512
    """Most tokens of one step: a longer prompt is computed in pieces, so that running
    requests go on meanwhile."""
    step_seconds: float = 600.0
    """A step that takes longer is taken for a hang: all requests fail with EngineDiedError."""
    kv_bytes: int | None = None
    """Memory for keys and values; None: a fifth of what is free (CUDA: half)."""
    copy_bytes: int | None = None
    """Memory for merged copies of adapted weights; None: two fifths of what is free
    (CUDA: a quarter). Adapters beyond it are served unmerged."""
    deterministic: bool = False
    """The same request gives the same bits whatever else runs; slower, see docs/engine.md."""

    def kv_budget(self, device: torch.device) -> int:
        if self.kv_bytes is not None:
            return self.kv_bytes
        return int(_free_bytes(device) * (0.5 if device.type == "cuda" else 0.2))

    def copy_budget(self, device: torch.device) -> int:
        if self.copy_bytes is not None:
            return self.copy_bytes
        return int(_free_bytes(device) * (0.25 if device.type == "cuda" else 0.4))


def _free_bytes(device: torch.device) -> int:
    if device.type == "cuda":
        return torch.cuda.mem_get_info(device)[0]
    return psutil.virtual_memory().available
