# pyright: reportUnknownMemberType=false, reportUnknownVariableType=false
# pyright: reportUnknownArgumentType=false, reportUnknownParameterType=false
"""A llama-architecture GGUF file, dequantized into an ordinary Hugging Face folder.

transformers reads such files itself, but every time anew (20 s) and won't save them.
"""

from __future__ import annotations

import re
from pathlib import Path
from typing import Any

import gguf
import numpy as np
from safetensors.numpy import save_file
from tokenizers import AddedToken, Tokenizer, decoders, models, pre_tokenizers
from transformers import GenerationConfig, LlamaConfig, PreTrainedTokenizerFast

from art_core.errors import WeightsError
from art_core.weights.files import OnProgress, Progress

_TENSORS = {
    "token_embd": "model.embed_tokens",
    "output_norm": "model.norm",
    "output": "lm_head",
    "attn_norm": "input_layernorm",
    "ffn_norm": "post_attention_layernorm",
    "attn_q": "self_attn.q_proj",
    "attn_k": "self_attn.k_proj",
    "attn_v": "self_attn.v_proj",
    "attn_output": "self_attn.o_proj",
    "ffn_gate": "mlp.gate_proj",
    "ffn_up": "mlp.up_proj",
    "ffn_down": "mlp.down_proj",
}
_CONTROL_TOKEN = 3
"""``tokenizer.ggml.token_type`` of special tokens."""


def convert(source: Path, target: Path, on_progress: OnProgress) -> None:
    """Write ``target``: config, float32 safetensors, tokenizer, chat template.

    Raises:
        WeightsError: not a llama model with a GPT-2-style (SmolLM) tokenizer.
    """
    reader = gguf.GGUFReader(source)
    fields = {name: field.contents() for name, field in reader.fields.items()}
    kind = (fields["general.architecture"], fields.get("tokenizer.ggml.pre"))
    if kind != ("llama", "smollm"):
        raise WeightsError(f"{source.name} is {kind}, expected ('llama', 'smollm')")
    target.mkdir()
    config = _config(fields, tied=all(t.name != "output.weight" for t in reader.tensors))
    tensors: dict[str, np.ndarray[Any, Any]] = {}
    for done, tensor in enumerate(reader.tensors, 1):
        values = gguf.dequantize(tensor.data, tensor.tensor_type).astype(np.float32)
        tensors[_hf_name(tensor.name)] = _restore_head_order(tensor.name, values, config)
        on_progress(Progress("convert", done, len(reader.tensors)))
    save_file(tensors, target / "model.safetensors", metadata={"format": "pt"})
    config.save_pretrained(target)
    GenerationConfig(
        bos_token_id=config.bos_token_id,
        eos_token_id=config.eos_token_id,
        pad_token_id=config.pad_token_id,
    ).save_pretrained(target)
    _tokenizer(fields).save_pretrained(target)


def _config(fields: dict[str, Any], *, tied: bool) -> LlamaConfig:
    def llama(key: str) -> Any:
        return fields[f"llama.{key}"]

    return LlamaConfig(
        architectures=["LlamaForCausalLM"],
        vocab_size=llama("vocab_size"),
        hidden_size=llama("embedding_length"),
        intermediate_size=llama("feed_forward_length"),
        num_hidden_layers=llama("block_count"),
        num_attention_heads=llama("attention.head_count"),
        num_key_value_heads=llama("attention.head_count_kv"),
        head_dim=llama("rope.dimension_count"),
        max_position_embeddings=llama("context_length"),
        rope_parameters={"rope_type": "default", "rope_theta": llama("rope.freq_base")},
        rms_norm_eps=float(f"{llama('attention.layer_norm_rms_epsilon'):.6g}"),  # stored as float32
        tie_word_embeddings=tied,
        bos_token_id=fields["tokenizer.ggml.bos_token_id"],
        eos_token_id=fields["tokenizer.ggml.eos_token_id"],
        pad_token_id=fields["tokenizer.ggml.padding_token_id"],
        dtype="float32",
    )


def _hf_name(name: str) -> str:
    match = re.fullmatch(r"(?:blk\.(\d+)\.)?(\w+)\.weight", name)
    if match is None or match[2] not in _TENSORS:
        raise WeightsError(f"unknown tensor {name!r} in a llama GGUF file")
    layer = "" if match[1] is None else f"model.layers.{match[1]}."
    return f"{layer}{_TENSORS[match[2]]}.weight"


def _restore_head_order(
    name: str, weight: np.ndarray[Any, Any], config: LlamaConfig
) -> np.ndarray[Any, Any]:
    """Undo llama.cpp's interleaving of the two rotary halves in q and k rows."""
    heads = {
        "attn_q.weight": config.num_attention_heads,
        "attn_k.weight": config.num_key_value_heads,
    }.get(name.rsplit(".", 2)[-2] + ".weight")
    if heads is None:
        return weight
    rows, columns = weight.shape
    interleaved = weight.reshape(heads, rows // heads // 2, 2, columns)
    return np.ascontiguousarray(interleaved.swapaxes(1, 2).reshape(rows, columns))


def _tokenizer(fields: dict[str, Any]) -> PreTrainedTokenizerFast:
    tokens: list[str] = fields["tokenizer.ggml.tokens"]
    merges = [tuple(merge.split(" ")) for merge in fields["tokenizer.ggml.merges"]]
    backend = Tokenizer(models.BPE({token: i for i, token in enumerate(tokens)}, merges))
    # SmolLM's: every digit on its own, then GPT-2's byte-level pieces.
    backend.pre_tokenizer = pre_tokenizers.Sequence(
        [
            pre_tokenizers.Digits(individual_digits=True),
            pre_tokenizers.ByteLevel(add_prefix_space=False, use_regex=True),
        ]
    )
    backend.decoder = decoders.ByteLevel()
    types: list[int] = fields["tokenizer.ggml.token_type"]
    control = [token for token, kind in zip(tokens, types, strict=True) if kind == _CONTROL_TOKEN]
    backend.add_special_tokens([AddedToken(token, special=True) for token in control])
    tokenizer = PreTrainedTokenizerFast(
        tokenizer_object=backend,
        bos_token=tokens[fields["tokenizer.ggml.bos_token_id"]],
        eos_token=tokens[fields["tokenizer.ggml.eos_token_id"]],
        pad_token=tokens[fields["tokenizer.ggml.padding_token_id"]],
        unk_token=tokens[fields["tokenizer.ggml.unknown_token_id"]],
        model_max_length=fields["llama.context_length"],
        clean_up_tokenization_spaces=False,
    )
    tokenizer.chat_template = fields["tokenizer.chat_template"]
    return tokenizer
