"""Warm starts: supervised fine-tuning and distillation, on the trainer of `art_core.grpo`.

    await backend.train_sft(model, "examples.jsonl")

The adapter, its checkpoints and the tokens are those of the reinforcement learning that
comes after. Described in ``docs/sft.md``.
"""
