"""The lean parts against what they replace, by finite differences and by autograd."""
# pyright: reportUnknownMemberType=false, reportUnknownVariableType=false
# pyright: reportUnknownArgumentType=false

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import peft
import pytest
import torch
from torch import Tensor, nn
from torch.autograd import gradcheck
from transformers import PreTrainedModel
from transformers.models.llama import modeling_llama as llama

from art_core.config import LoraConfig
from art_core.grpo import GRPOTrainer
from art_core.grpo.lean import PARTS, Part, make_lean
from art_core.grpo.lean_layers import RMSNorm, Rotary, swiglu
from art_core.grpo.lora_linear import Frozen, Layer, as_layer, linears

RANK, INPUTS, OUTPUTS, TOKENS = 2, 5, 4, 6


def random(*shape: int, dtype: torch.dtype = torch.float64, seed: int = 0) -> Tensor:
    generator = torch.Generator().manual_seed(sum(shape) + seed)
    return torch.randn(shape, generator=generator, dtype=torch.float64).to(dtype)


def layer(inputs: int, outputs: int, dtype: torch.dtype = torch.float64, seed: int = 0) -> Layer:
    frozen = Frozen(random(outputs, inputs, dtype=dtype), random(outputs, dtype=dtype), 0.7)
    adapter_dtype = torch.float32 if dtype == torch.bfloat16 else dtype
    return Layer(
        frozen,
        random(RANK, inputs, dtype=adapter_dtype, seed=seed).requires_grad_(),
        random(outputs, RANK, dtype=adapter_dtype, seed=seed).requires_grad_(),
    )


def plain(x: Tensor, layer: Layer) -> Tensor:
    (weight, bias, scale), a, b = layer
    assert a is not None
    assert b is not None
    return x @ weight.T + (x @ a.T) @ b.T * scale + (0 if bias is None else bias)


def test_lora_layers_on_one_input() -> None:
    x = random(TOKENS, INPUTS).requires_grad_()
    first, second = layer(INPUTS, OUTPUTS), layer(INPUTS, 3, seed=1)

    def together(x: Tensor, *adapters: Tensor) -> tuple[Tensor, ...]:
        a, b, c, d = adapters
        return linears(x, [Layer(first.frozen, a, b), Layer(second.frozen, c, d)])

    leaves: Any = [first.a, first.b, second.a, second.b]
    for ours, expected in zip(linears(x, [first, second]), (first, second), strict=True):
        torch.testing.assert_close(ours, plain(x, expected))
    assert gradcheck(together, (x, *leaves))


def test_lora_layer_in_bfloat16_keeps_what_a_merge_would_round_away() -> None:
    x = random(TOKENS, INPUTS, dtype=torch.bfloat16)
    frozen = Frozen(torch.ones(OUTPUTS, INPUTS, dtype=torch.bfloat16), None, 1.0)
    a, b = torch.full((RANK, INPUTS), 1e-2), torch.full((OUTPUTS, RANK), 1e-2)
    (y,) = linears(x, [Layer(frozen, a.requires_grad_(), b.requires_grad_())])
    exact = x.double() @ torch.ones(OUTPUTS, INPUTS).double().T
    exact += (x.double() @ a.double().T) @ b.double().T
    torch.testing.assert_close(y.double(), exact, rtol=1e-2, atol=2e-2)
    y.sum().backward()
    expected = (torch.ones(TOKENS, OUTPUTS).double() @ b.detach().double()).T @ x.double()
    assert a.grad is not None
    assert a.grad.dtype == torch.float32
    torch.testing.assert_close(a.grad.double(), expected, rtol=2e-2, atol=1e-3)


def test_a_layer_without_an_active_adapter_passes_the_gradient_on() -> None:
    x = random(TOKENS, INPUTS).requires_grad_()
    frozen = layer(INPUTS, OUTPUTS).frozen

    def bare(x: Tensor) -> tuple[Tensor, ...]:
        return linears(x, [Layer(frozen, None, None)])

    assert gradcheck(bare, x)


def test_rms_norm() -> None:
    x, weight = random(TOKENS, INPUTS, dtype=torch.float32).requires_grad_(), random(INPUTS).float()
    expected = nn.functional.rms_norm(x, (INPUTS,), weight, 1e-3)
    actual = RMSNorm.apply(x, weight, 1e-3)
    torch.testing.assert_close(actual, expected, rtol=1e-5, atol=1e-6)
    slopes = random(TOKENS, INPUTS, seed=1).float()
    ours, theirs = (torch.autograd.grad((y * slopes).sum(), x) for y in (actual, expected))
    torch.testing.assert_close(ours, theirs, rtol=1e-5, atol=1e-6)


def test_rms_norm_in_bfloat16_is_transformers_to_the_bit() -> None:
    norm = llama.LlamaRMSNorm(64, eps=1e-5).to(torch.bfloat16).requires_grad_(False)
    norm.weight.copy_(random(64))
    x = random(TOKENS, 64, dtype=torch.bfloat16)
    torch.testing.assert_close(RMSNorm.apply(x, norm.weight, 1e-5), norm(x), rtol=0, atol=0)


def test_rotary() -> None:
    rotate_as_transformers: Any = llama.apply_rotary_pos_emb
    x = random(TOKENS, 3, 8).requires_grad_()
    angles = random(TOKENS, 4)
    cos, sin = angles.cos().unsqueeze(1), angles.sin().unsqueeze(1)
    whole = [torch.cat([angle.squeeze(1)] * 2, -1).unsqueeze(0) for angle in (cos, sin)]
    heads_first = x.transpose(0, 1).unsqueeze(0)
    expected, _ = rotate_as_transformers(heads_first, heads_first, *whole)
    torch.testing.assert_close(Rotary.apply(x, cos, sin), expected[0].transpose(0, 1))

    def rotate(x: Tensor) -> Tensor:
        return Rotary.apply(x, cos, sin)

    assert gradcheck(rotate, x)


def test_swiglu() -> None:
    x = random(TOKENS, INPUTS).requires_grad_()
    gate, up, down = layer(INPUTS, 7), layer(INPUTS, 7, seed=1), layer(7, INPUTS)
    expected = plain(nn.functional.silu(plain(x, gate)) * plain(x, up), down)
    torch.testing.assert_close(swiglu(x, gate, up, down), expected)

    def with_adapters(x: Tensor, *adapters: Tensor) -> Tensor:
        layers = [
            Layer(part.frozen, adapters[2 * i], adapters[2 * i + 1])
            for i, part in enumerate((gate, up, down))
        ]
        return swiglu(x, *layers)

    leaves: Any = [tensor for part in (gate, up, down) for tensor in (part.a, part.b)]
    assert gradcheck(with_adapters, (x, *leaves))


@pytest.mark.parametrize(
    ("architecture", "kinds"),
    [
        ("llama", {"LoRA layers", "RMSNorm", "SwiGLU", "rotary attention"}),
        ("qwen3", {"LoRA layers", "RMSNorm", "SwiGLU", "rotary attention"}),
        ("gemma", {"LoRA layers", "RMSNorm (1 + weight)", "rotary attention"}),
        ("gemma2", {"LoRA layers", "RMSNorm (1 + weight)"}),
        ("gpt2", set[str]()),
    ],
)
def test_what_is_replaced(
    architecture: str, kinds: set[str], tiny_model: Callable[..., PreTrainedModel]
) -> None:
    model = tiny_model(architecture)
    GRPOTrainer(model)
    replaced = {m.forward.func for m in model.modules() if "forward" in vars(m)}  # type: ignore[union-attr]
    assert {part.name for part in PARTS if part.forward in replaced} == kinds


def test_a_look_alike_keeps_its_own_code() -> None:
    class LoudRMSNorm(nn.RMSNorm):
        def forward(self, x: Tensor) -> Tensor:
            return 3 * super().forward(x)

    model = nn.Sequential(LoudRMSNorm(4, eps=1e-6)).requires_grad_(False)
    x = random(3, 4, dtype=torch.float32)
    expected = model(x)
    assert make_lean(model, lambda: torch.allclose(model(x), expected)) == []
    assert "forward" not in vars(model[0])


def test_a_part_that_raises_is_put_back(monkeypatch: pytest.MonkeyPatch) -> None:
    def broken(module: nn.Module, x: Tensor) -> Tensor:
        raise RuntimeError("other shapes than expected")

    def is_identity(module: nn.Module) -> bool:
        return isinstance(module, nn.Identity)

    monkeypatch.setattr("art_core.grpo.lean.PARTS", [Part("broken", is_identity, broken)])
    model = nn.Sequential(nn.Identity())
    x = torch.ones(1)
    assert make_lean(model, lambda: bool(model(x) == x)) == []
    assert model(x) == x


@pytest.mark.parametrize("setting", [{"dora": True}, {"dropout": 0.5}])
def test_other_adapters_are_left_to_peft(
    setting: dict[str, Any], tiny_model: Callable[..., PreTrainedModel]
) -> None:
    model = tiny_model("llama")
    GRPOTrainer(model, lora=LoraConfig(**setting))
    adapters = [m for m in model.modules() if isinstance(m, peft.tuners.lora.Linear)]
    assert adapters
    assert all(as_layer(module) is None for module in adapters)
