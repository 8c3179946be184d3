"""The GRPO engine: exact policy gradients over prefix trees of tokens.

    trainer = GRPOTrainer(model, lora=LoraConfig(rank=8))
    metrics = trainer.step(groups)

Usable alone, on token data; the math is in ``docs/grpo.md``.
"""

from art_core.config import LoraConfig, StepConfig
from art_core.grpo.metrics import StepMetrics
from art_core.grpo.trainer import GRPOTrainer

__all__ = ["GRPOTrainer", "LoraConfig", "StepConfig", "StepMetrics"]
