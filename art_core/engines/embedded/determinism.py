# pyright: reportUnknownMemberType=false
"""Whether this machine's matrix products allow deterministic mode."""

from __future__ import annotations

from collections.abc import Iterable

import torch
from torch import nn

from art_core.engines.embedded.linears import make_linear
from art_core.engines.embedded.scheduler import CHUNK
from art_core.errors import EngineError


@torch.inference_mode()
def check_rows_are_independent(linears: Iterable[nn.Linear], rows: int) -> None:
    """Check that a row of a product doesn't depend on where in the batch it is.

    With the number of rows fixed, that is all that is needed for a request to get
    the same bits in any company. No BLAS promises it, so it is tried: once for each
    shape, at the batch sizes that deterministic mode uses.

    Raises:
        EngineError: a product's bits depend on the row.
    """
    tried: set[torch.Size] = set()
    generator = torch.Generator().manual_seed(0)
    for linear in linears:
        weight = linear.weight
        if weight.shape in tried:
            continue
        tried.add(weight.shape)
        layers = (linear, make_linear(weight, linear.bias))
        for count in {rows, CHUNK}:
            x = torch.randn(count, weight.shape[1], generator=generator)
            x = x.to(weight.device, weight.dtype)
            order = torch.randperm(count, generator=generator).to(weight.device)
            if any(not torch.equal(layer(x)[order], layer(x[order])) for layer in layers):
                raise EngineError(
                    f"deterministic mode isn't possible here: with {count} rows, the bits of a "
                    f"{tuple(weight.shape)} product depend on the row",
                    "Use another max_running, or run without deterministic=True.",
                )
