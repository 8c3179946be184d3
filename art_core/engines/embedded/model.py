# pyright: reportUnknownMemberType=false, reportUnknownVariableType=false
# pyright: reportUnknownArgumentType=false, reportUnknownParameterType=false
"""A transformers model made to run flat batches over the engine's KV memory."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import torch
from torch import Tensor, nn
from transformers import AttentionInterface, PretrainedConfig, PreTrainedModel

from art_core.engines.embedded.attention import ForwardPlan, Shape, attend
from art_core.engines.embedded.kv import KVLayout
from art_core.errors import EngineError

_ATTENTION = "art_embedded"
_HOOK = "art_embedded_hook"
_LAYER_TYPES = {"full_attention", "sliding_attention"}
_KNOWN_ARGUMENTS = {"dropout", "scaling", "sliding_window", "softcap", "is_causal"}
_HARMLESS_ARGUMENTS = {"use_cache", "position_ids", "cache", "output_attentions"}


@dataclass(frozen=True, slots=True)
class Architecture:
    """What the engine has to know about a model, found by running it once."""

    layout: KVLayout
    attention_modules: Mapping[str, int]
    """Name of each attention module, and its layer."""
    shapes: Sequence[Shape]

    @property
    def has_windows(self) -> bool:
        return any(shape.window is not None for shape in self.shapes)


class ServedModel:
    """One module tree (one set of weights), run on flat batches.

    Args:
        tree: from `BaseWeights.new_model`; taken over.
    """

    def __init__(self, tree: PreTrainedModel, architecture: Architecture) -> None:
        self.tree = tree
        self._architecture = architecture
        self._plan: ForwardPlan | None = None
        _use_attention(tree)
        for name, layer in architecture.attention_modules.items():
            setattr(tree.get_submodule(name), _HOOK, _Hook(self, layer))

    def forward(
        self, token_ids: Tensor, positions: Tensor, plan: ForwardPlan, wanted: Tensor
    ) -> Tensor:
        """Compute one flat batch, writing its keys and values to KV memory.

        Args:
            token_ids: [tokens]; positions: [tokens], in their sequences.
            plan: where each token belongs.
            wanted: [rows] indices of the tokens whose logits are needed.

        Returns:
            [rows, vocabulary] logits.
        """
        self._plan = plan
        output = self.tree(
            input_ids=token_ids[None],
            position_ids=positions[None],
            use_cache=False,
            logits_to_keep=wanted,
        )
        return output.logits[0]

    def attend(self, layer: int, query: Tensor, key: Tensor, value: Tensor) -> Tensor:
        if self._plan is None:
            raise EngineError("attention was called outside a forward pass")
        architecture = self._architecture
        shape = architecture.shapes[layer]
        return attend(self._plan, architecture.layout, layer, shape, query, key, value)


@dataclass(frozen=True, slots=True)
class _Hook:
    """Hung on an attention module: leads from transformers' call back to the engine."""

    model: ServedModel
    layer: int

    def __call__(self, query: Tensor, key: Tensor, value: Tensor, _: Mapping[str, Any]) -> Tensor:
        return self.model.attend(self.layer, query, key, value)

    def __deepcopy__(self, memo: object) -> _Hook:
        return self


def _attention(
    module: nn.Module,
    query: Tensor,
    key: Tensor,
    value: Tensor,
    attention_mask: Tensor | None,
    **arguments: Any,
) -> tuple[Tensor, None]:
    """transformers' interface: [1, heads, tokens, dim] in, [1, tokens, heads, dim] out."""
    del attention_mask  # None: transformers builds none for an implementation it doesn't know
    hook = getattr(module, _HOOK)
    flat = (tensor[0].transpose(0, 1) for tensor in (query, key, value))
    return hook(*flat, arguments)[None], None


def _use_attention(tree: PreTrainedModel) -> None:
    AttentionInterface.register(_ATTENTION, _attention)
    tree.set_attn_implementation(_ATTENTION)


class _Recorder:
    """Takes the place of attention in the probe run and notes what it is called with."""

    def __init__(self, name: str, calls: list[_Call]) -> None:
        self._name = name
        self._calls = calls

    def __call__(
        self, query: Tensor, key: Tensor, value: Tensor, arguments: Mapping[str, Any]
    ) -> Tensor:
        self._calls.append(_Call(self._name, query.shape, key.shape, value.shape, arguments))
        return query.new_zeros(*query.shape[:-1], value.shape[-1])


@dataclass(frozen=True, slots=True)
class _Call:
    name: str
    query: torch.Size
    key: torch.Size
    value: torch.Size
    arguments: Mapping[str, Any]


def inspect(tree: PreTrainedModel, device: torch.device, dtype: torch.dtype) -> Architecture:
    """Find out how a model attends; its tree is used up.

    Raises:
        EngineError: its attention isn't causal softmax attention, the same for all
            layers up to windows, called through transformers' attention interface.
    """
    name = type(tree).__name__
    config = tree.config.get_text_config()
    _refuse_unknown_layers(name, config)
    _use_attention(tree)
    if tree.config._attn_implementation != _ATTENTION:  # pyright: ignore[reportPrivateUsage]
        raise _refusal(name, "doesn't call attention through transformers' interface")
    calls: list[_Call] = []
    for module_name, module in tree.named_modules():
        setattr(module, _HOOK, _Recorder(module_name, calls))
    with torch.inference_mode():
        tree(input_ids=torch.zeros(1, 2, dtype=torch.long, device=device), use_cache=False)
    if len(calls) != config.num_hidden_layers or len({c.name for c in calls}) != len(calls):
        raise _refusal(name, f"attends {len(calls)} times in {config.num_hidden_layers} layers")
    if len({(c.query, c.key, c.value) for c in calls}) != 1:
        raise _refusal(name, "has heads of different sizes in different layers")
    _, heads, key_dim = calls[0].key
    layout = KVLayout(
        layers=len(calls),
        heads=heads,
        group=calls[0].query[1] // heads,
        key_dim=key_dim,
        value_dim=calls[0].value[2],
        dtype=dtype,
        device=device,
    )
    shapes = [_shape(name, config, layer, tree, call) for layer, call in enumerate(calls)]
    return Architecture(layout, {call.name: i for i, call in enumerate(calls)}, shapes)


def _refuse_unknown_layers(name: str, config: PretrainedConfig) -> None:
    if config.is_encoder_decoder:
        raise _refusal(name, "is an encoder-decoder model")
    unknown = set(getattr(config, "layer_types", None) or ()) - _LAYER_TYPES
    if unknown:
        raise _refusal(name, f"has {', '.join(sorted(unknown))} layers")


def _shape(
    name: str, config: PretrainedConfig, layer: int, tree: PreTrainedModel, call: _Call
) -> Shape:
    arguments = {key: value for key, value in call.arguments.items() if value is not None}
    unknown = arguments.keys() - _KNOWN_ARGUMENTS - _HARMLESS_ARGUMENTS
    causal = arguments.get("is_causal", getattr(tree.get_submodule(call.name), "is_causal", True))
    if unknown or not causal:
        what = f"with {', '.join(sorted(unknown))}" if unknown else "to later tokens"
        raise _refusal(name, f"attends {what} in layer {layer}")
    layer_types = getattr(config, "layer_types", None)
    window = arguments.get("sliding_window")
    if layer_types is not None and (layer_types[layer] == "sliding_attention") != bool(window):
        raise _refusal(name, f"says {layer_types[layer]} of layer {layer}, with window {window}")
    scale = arguments.get("scaling", call.query[2] ** -0.5)
    return Shape(scale=scale, softcap=arguments.get("softcap"), window=window)


def _refusal(name: str, what: str) -> EngineError:
    return EngineError(
        f"the embedded engine can't serve {name}: it {what}", "Serve it with engine='vllm'."
    )
