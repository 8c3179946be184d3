"""Running a causal language model up to its last hidden states."""
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


def tree_hidden(model: PreTrainedModel, tree: PrefixTree) -> Tensor:
    """[N, D] of the nodes of a tree; the model is on tree attention."""
    device = model.device
    block_mask = tree_block_mask(tree.segments, device) if device.type == "cuda" else None
    return _hidden(
        model,
        tree.token_ids,
        position_ids=torch.as_tensor(tree.positions, device=device).unsqueeze(0),
        prefix_tree=AttentionTree(tree.segments, block_mask),
    )


def plain_hidden(model: PreTrainedModel, token_ids: IntArray) -> Tensor:
    """[N, D] of one row of tokens; the model is on its own attention."""
    return _hidden(model, token_ids)


def _hidden(model: PreTrainedModel, token_ids: IntArray, **extras: Any) -> Tensor:
    tokens = torch.as_tensor(token_ids, device=model.device).unsqueeze(0)
    backbone: Any = model.base_model
    return backbone(input_ids=tokens, use_cache=False, **extras).last_hidden_state[0]
