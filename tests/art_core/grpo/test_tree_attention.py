"""Tree attention, in all its forms, against softmax under a dense mask."""
# pyright: reportUnknownMemberType=false, reportUnknownVariableType=false
# pyright: reportUnknownArgumentType=false

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import numpy as np
import pytest
import torch
from torch import Tensor

from art_core.errors import TrainingError
from art_core.grpo import attention_blocks
from art_core.grpo.tree import Segment
from art_core.grpo.tree_attention import AttentionTree, attend, attention_interface

HEADS, KV_HEADS, WIDTH = 4, 2, 8
# Two roots; the first branches at its end, and its second child again.
SEGMENTS = (
    Segment(0, 5, 23),
    Segment(5, 9, 9),
    Segment(9, 12, 23),
    Segment(12, 20, 20),
    Segment(20, 23, 23),
    Segment(23, 30, 30),
)
NODES = 30


def ancestors() -> Tensor:
    """[N, N] bool: column is an ancestor of row, or row itself; by walking the segments."""
    sees = torch.zeros(NODES, NODES, dtype=torch.bool)
    for segment in SEGMENTS:
        for node in range(segment.start, segment.end):
            sees[node : segment.end, node] = True
            sees[segment.end : segment.subtree_end, node] = True
    return sees


def dense(query: Tensor, key: Tensor, value: Tensor, scale: float) -> Tensor:
    repeats = HEADS // KV_HEADS
    k, v = key.repeat_interleave(repeats, 0), value.repeat_interleave(repeats, 0)
    scores = (query @ k.transpose(1, 2) * scale).masked_fill(~ancestors(), float("-inf"))
    return (scores.softmax(-1) @ v).transpose(0, 1)


def inputs(dtype: torch.dtype = torch.float64) -> tuple[Tensor, Tensor, Tensor]:
    generator = torch.Generator().manual_seed(0)
    shapes = [(HEADS, NODES, WIDTH), (KV_HEADS, NODES, WIDTH), (KV_HEADS, NODES, WIDTH)]
    query, key, value = (
        torch.randn(shape, generator=generator, dtype=dtype).requires_grad_() for shape in shapes
    )
    return query, key, value


def gradients(output: Tensor, leaves: Sequence[Tensor]) -> list[Tensor]:
    weights = torch.linspace(-1, 1, output.numel(), dtype=output.dtype).view_as(output)
    return list(torch.autograd.grad((output * weights).sum(), leaves))


@pytest.fixture(params=["kernel", "portable"])
def blocks(request: pytest.FixtureRequest, monkeypatch: pytest.MonkeyPatch) -> None:
    if request.param == "portable":
        forward, backward = attention_blocks.portable_forward, attention_blocks.portable_backward
        monkeypatch.setattr(attention_blocks, "_cpu_forward", forward)
        monkeypatch.setattr(attention_blocks, "_cpu_backward", backward)
        monkeypatch.setattr(attention_blocks, "ROWS", 3)


@pytest.mark.usefixtures("blocks")
def test_output_and_gradients_are_those_of_the_dense_mask() -> None:
    ours, theirs = inputs(), inputs()
    actual = attend(ours[0], ours[1], ours[2], AttentionTree(SEGMENTS), 0.3)
    expected = dense(theirs[0], theirs[1], theirs[2], 0.3)
    torch.testing.assert_close(actual, expected)
    for a, b in zip(gradients(actual, ours), gradients(expected, theirs), strict=True):
        torch.testing.assert_close(a, b)


@pytest.mark.usefixtures("blocks")
def test_it_takes_tensors_whose_heads_are_not_contiguous() -> None:
    ours, theirs = inputs(), inputs()
    query, key, value = (x.transpose(0, 1).contiguous().transpose(0, 1) for x in ours)
    actual = attend(query, key, value, AttentionTree(SEGMENTS), None)
    expected = dense(theirs[0], theirs[1], theirs[2], WIDTH**-0.5)
    torch.testing.assert_close(actual, expected)
    for a, b in zip(gradients(actual, ours), gradients(expected, theirs), strict=True):
        torch.testing.assert_close(a, b)


def test_in_bfloat16_gradients_are_as_near_to_the_truth_as_the_dense_masks() -> None:
    exact, plain, ours = inputs(), inputs(torch.bfloat16), inputs(torch.bfloat16)
    truth = gradients(dense(*exact, 0.3), exact)
    expected = gradients(dense(*plain, 0.3), plain)
    actual = gradients(attend(*ours, AttentionTree(SEGMENTS), 0.3), ours)
    for a, b, c in zip(actual, expected, truth, strict=True):
        assert (a - c).norm() <= 1.2 * (b - c).norm()


def test_block_mask_is_the_ancestor_relation() -> None:
    block_mask = attention_blocks.tree_block_mask(SEGMENTS, torch.device("cpu"))
    rows, columns = np.meshgrid(range(NODES), range(NODES), indexing="ij")
    seen = block_mask.mask_mod(
        torch.tensor(0), torch.tensor(0), torch.tensor(rows), torch.tensor(columns)
    )
    assert torch.equal(seen, ancestors())


@pytest.mark.filterwarnings("ignore:flex_attention called without torch.compile")
def test_flex_attention_gives_the_same() -> None:
    query, key, value = (x.detach() for x in inputs(torch.float32))
    block_mask = attention_blocks.tree_block_mask(SEGMENTS, torch.device("cpu"))
    actual = attend(query, key, value, AttentionTree(SEGMENTS, block_mask), 0.3)
    torch.testing.assert_close(actual, dense(query, key, value, 0.3), rtol=1e-4, atol=1e-5)


@pytest.mark.parametrize(
    ("extras", "said"),
    [
        ({"prefix_tree": None}, "no tree"),
        ({"softcap": 30.0}, "softcap"),
        ({"s_aux": torch.zeros(4)}, "s_aux"),
        ({"dropout": 0.1}, "dropout"),
        ({"attention_mask": torch.zeros(1, 1, NODES, NODES)}, "a mask"),
    ],
)
def test_what_it_cannot_do_is_refused(extras: dict[str, object], said: str) -> None:
    query, key, value = (x.unsqueeze(0) for x in inputs())
    arguments: dict[str, object] = {
        "attention_mask": None,
        "prefix_tree": AttentionTree(SEGMENTS),
        **extras,
    }
    call: Any = attention_interface
    with pytest.raises(TrainingError, match=said):
        call(torch.nn.Identity(), query, key, value, **arguments)
