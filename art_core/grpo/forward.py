"""Running a causal language model on a tree, or on a plain row of tokens."""
# pyright: reportUnknownMemberType=false, reportUnknownVariableType=false
# pyright: reportUnknownArgumentType=false

from __future__ import annotations

from typing import Any

import torch
from torch import Tensor
from transformers import PreTrainedModel

from art_core.grpo.attention_blocks import tree_block_mask
from art_core.grpo.rows import IntArray
from art_core.grpo.tree import PrefixTree
from art_core.grpo.tree_attention import AttentionTree

ModelInputs = dict[str, Any]


def tree_inputs(tree: PrefixTree, device: torch.device) -> ModelInputs:
    """For a model on tree attention."""
    block_mask = tree_block_mask(tree.segments, device) if device.type == "cuda" else None
    return {
        **plain_inputs(tree.token_ids, device),
        "position_ids": torch.as_tensor(tree.positions, device=device).unsqueeze(0),
        "prefix_tree": AttentionTree(tree.segments, block_mask),
    }


def plain_inputs(token_ids: IntArray, device: torch.device) -> ModelInputs:
    """One row of tokens, for a model on its own attention."""
    tokens = torch.as_tensor(token_ids, device=device).unsqueeze(0)
    return {"input_ids": tokens, "use_cache": False}


def hidden_states(model: PreTrainedModel, inputs: ModelInputs) -> Tensor:
    """[N, D] the last hidden states of the N tokens."""
    backbone: Any = model.base_model
    return backbone(**inputs).last_hidden_state[0]


def logits(model: PreTrainedModel, inputs: ModelInputs, at: Tensor) -> Tensor:
    """[Q, V] the model's logits at the token indices ``at``, [Q]."""
    causal: Any = model
    return causal(**inputs, logits_to_keep=at).logits[0]
