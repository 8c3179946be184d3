"""What is read off a model's configuration."""
# pyright: reportUnknownMemberType=false, reportUnknownVariableType=false, reportUnknownArgumentType=false

from __future__ import annotations

from typing import Any

import pytest
import torch
import transformers as tf

from art_core.grpo.architectures import Probe

SIZES: dict[str, Any] = {
    "vocab_size": 97, "hidden_size": 32, "intermediate_size": 48, "num_hidden_layers": 1,
    "num_attention_heads": 4, "num_key_value_heads": 2, "head_dim": 8, "pad_token_id": 0,
    "mamba_d_ssm": 32, "mamba_n_heads": 4, "mamba_d_head": 8, "mamba_d_state": 8,
    "mamba_n_groups": 1, "mamba_chunk_size": 8,
}  # fmt: skip


@pytest.mark.parametrize(("multiplier", "linear"), [(1.0, True), (1.02, False)])
def test_a_multiplier_of_the_logits_is_seen_below_bfloat16s_rounding(
    multiplier: float, linear: bool
) -> None:
    """2% is less than a trial in bfloat16 can tell from rounding; the configuration says it."""
    config: Any = tf.FalconH1Config(**SIZES, lm_head_multiplier=multiplier)
    with torch.random.fork_rng():
        torch.manual_seed(0)
        model: Any = tf.AutoModelForCausalLM.from_config(config, dtype=torch.bfloat16)
    assert Probe(model.requires_grad_(False).eval()).head_is_linear() is linear
