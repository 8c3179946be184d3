"""Replacing a model's slow parts by those of `lean_layers`, each tried before it is trusted.

A kind of part is recognised by the names of its submodules, given its new ``forward``
(on the instances alone, the classes stay as they are), and kept only if the model
still computes the same. So a model that merely looks like what a part computes
keeps its own code for it.
"""
# pyright: reportUnknownMemberType=false, reportUnknownVariableType=false
# pyright: reportUnknownArgumentType=false

from __future__ import annotations

import logging
from collections.abc import Callable
from functools import partial
from typing import Any, NamedTuple

from peft.tuners.lora import Linear as LoraLinear
from torch import Tensor, nn

from art_core.grpo.lean_layers import RMSNorm, Rotary, swiglu
from art_core.grpo.lora_linear import as_layer, linears
from art_core.grpo.tree_attention import AttentionTree, attend

logger = logging.getLogger(__name__)


class Part(NamedTuple):
    name: str
    matches: Callable[[nn.Module], bool]
    forward: Callable[..., Any]
    """Called with the module before its arguments."""
    needs_tree: bool = False


def make_lean(model: nn.Module, agrees: Callable[[], bool], *, trees: bool = True) -> list[str]:
    """Replace what can be; returns the names of the kinds of parts that were.

    Args:
        agrees: whether ``model`` still computes what it did.
        trees: whether it is given trees.
    """
    kept: list[str] = []
    for part in (part for part in PARTS if trees or not part.needs_tree):
        modules = [m for m in model.modules() if part.matches(m) and "forward" not in vars(m)]
        for module in modules:
            module.forward = partial(part.forward, module)
        if modules and _tried(agrees, part.name):
            kept.append(part.name)
            continue
        for module in modules:
            del module.forward
    return kept


def _tried(agrees: Callable[[], bool], name: str) -> bool:
    try:
        return agrees()
    except (RuntimeError, TypeError, ValueError, AttributeError) as error:
        logger.debug("this model's %s isn't what it looks like: %s", name, error)
        return False


def _has(module: nn.Module, *names: str) -> bool:
    return all(hasattr(module, name) for name in names)


def _is_lora_linear(module: nn.Module) -> bool:
    return isinstance(module, LoraLinear) and as_layer(module) is not None


def _is_norm(module: nn.Module) -> bool:
    weight = getattr(module, "weight", None)
    named = type(module).__name__.endswith("RMSNorm") and isinstance(_epsilon(module), float)
    return named and isinstance(weight, nn.Parameter) and not weight.requires_grad


def _is_swiglu(module: nn.Module) -> bool:
    return _has(module, "gate_proj", "up_proj", "down_proj")


def _is_rotary_attention(module: nn.Module) -> bool:
    return _has(module, "q_proj", "k_proj", "v_proj", "o_proj", "head_dim", "scaling")


def _epsilon(module: Any) -> Any:
    return getattr(module, "variance_epsilon", getattr(module, "eps", None))


def _lora_linear(module: Any, x: Tensor) -> Tensor:
    layer = as_layer(module)
    if layer is None:
        return type(module).forward(module, x)
    (y,) = linears(x.reshape(-1, x.shape[-1]), [layer])
    return y.view(*x.shape[:-1], -1)


def _norm(module: Any, x: Tensor) -> Tensor:
    return RMSNorm.apply(x, module.weight, _epsilon(module))


def _norm_plus_one(module: Any, x: Tensor) -> Tensor:
    return RMSNorm.apply(x, module.weight + 1, _epsilon(module))


def _swiglu(module: Any, x: Tensor) -> Tensor:
    layers = [as_layer(m) for m in (module.gate_proj, module.up_proj, module.down_proj)]
    gate, up, down = layers
    if gate is None or up is None or down is None:
        return type(module).forward(module, x)
    return swiglu(x.reshape(-1, x.shape[-1]), gate, up, down).view(x.shape)


def _rotary_attention(
    module: Any,
    hidden_states: Tensor,
    position_embeddings: tuple[Tensor, Tensor],
    attention_mask: Tensor | None = None,
    *,
    prefix_tree: AttentionTree | None = None,
    **rest: Any,
) -> tuple[Tensor, Tensor | None]:
    layers = [as_layer(m) for m in (module.q_proj, module.k_proj, module.v_proj)]
    known = [layer for layer in layers if layer is not None]
    if prefix_tree is None or len(known) < len(layers):
        return type(module).forward(
            module,
            hidden_states,
            position_embeddings=position_embeddings,
            attention_mask=attention_mask,
            prefix_tree=prefix_tree,
            **rest,
        )
    nodes = hidden_states.shape[1]
    projected = linears(hidden_states[0], known)
    query, key, value = (x.view(nodes, -1, module.head_dim) for x in projected)
    if hasattr(module, "q_norm"):
        query, key = module.q_norm(query), module.k_norm(key)
    cos, sin = (half_angles(x) for x in position_embeddings)
    query, key = Rotary.apply(query, cos, sin), Rotary.apply(key, cos, sin)
    query, key, value = (x.transpose(0, 1) for x in (query, key, value))
    output = attend(query, key, value, prefix_tree, module.scaling)
    return module.o_proj(output.view(1, nodes, -1)), None


def half_angles(angles: Tensor) -> Tensor:
    """[1, N, D] whose halves are the same to [N, 1, D / 2]."""
    return angles[0, :, : angles.shape[-1] // 2].unsqueeze(1)


PARTS = (
    Part("LoRA layers", _is_lora_linear, _lora_linear),
    Part("RMSNorm", _is_norm, _norm),
    Part("RMSNorm (1 + weight)", _is_norm, _norm_plus_one),
    Part("SwiGLU", _is_swiglu, _swiglu),
    Part("rotary attention", _is_rotary_attention, _rotary_attention, needs_tree=True),
)
