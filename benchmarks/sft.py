# pyright: reportUnknownMemberType=false, reportUnknownVariableType=false
# pyright: reportUnknownArgumentType=false
"""Learning from examples, against TRL's SFTTrainer: time per update, and what is masked.

    python -m benchmarks.sft [--json]

Both get the same tokens and labels of the same conversations, the same base weights and
LoRA, and are measured in turn: ``vs_trl`` with tool conversations that begin with the same
definitions of tools, ``vs_trl_plain`` with as many that have nothing in common.
``loss_gap`` is the difference of their first losses. ``trl_marks_exact`` is the share of
conversations whose ``{% generation %}`` mask in TRL's own training templates marks what a
served model samples, no more and no less, of those that both express in the same tokens;
``trl_marks_exact_inside`` the same up to the end of the last answer.
"""

from __future__ import annotations

import gc
import statistics
import tempfile
import time
import warnings
from collections.abc import Sequence
from typing import Any

from datasets import Dataset
from jinja2 import TemplateError
from peft import LoraConfig as PeftLora
from transformers import PrinterCallback, TrainerCallback
from trl.trainer.sft_config import SFTConfig as TrlConfig
from trl.trainer.sft_trainer import SFTTrainer

from art_core.chat import chat_format_for
from art_core.config import LoraConfig, SftConfig
from art_core.errors import ChatError
from art_core.grpo import GRPOTrainer
from art_core.sft.batches import step_config, to_batch
from art_core.sft.conversations import is_answer, token_rows
from art_core.sft.examples import Prepared, prepare
from art_core.weights import resolve
from art_core.weights.loading import BaseWeights, load
from benchmarks.report import report
from tests.art_core.chat.corpus import CONVERSATIONS
from tests.art_core.chat.templates import Template, trl_templates

BATCH = 4
ROUNDS = 3
TOOLS: list[dict[str, Any]] = [
    {
        "type": "function",
        "function": {
            "name": f"look_up_{name}",
            "description": f"Everything that is known about a {name}, by its number",
            "parameters": {"type": "object", "properties": {"number": {"type": "integer"}}},
        },
    }
    for name in ("customer", "parcel", "invoice", "article")
]


def with_tools(number: int) -> dict[str, Any]:
    call = {"name": "look_up_parcel", "arguments": f'{{"number": {number}}}'}
    return {
        "messages": [
            {"role": "user", "content": f"Where is parcel {number}?"},
            {
                "role": "assistant",
                "content": None,
                "tool_calls": [{"id": "call_1", "type": "function", "function": call}],
            },
            {"role": "tool", "tool_call_id": "call_1", "content": f"parcel {number}: in Oslo"},
            {"role": "assistant", "content": f"Parcel {number} is in Oslo."},
        ],
        "tools": TOOLS,
    }


def plain(number: int) -> dict[str, Any]:
    words = " ".join(str(number * 37 + n) for n in range(12))
    return {
        "messages": [
            {"role": "system", "content": f"You know the list {words}."},
            {"role": "user", "content": "What is it?"},
            {"role": "assistant", "content": f"It is {words}."},
        ]
    }


class Clock(TrainerCallback):
    """Seconds of each of TRL's steps."""

    def __init__(self) -> None:
        self.seconds: list[float] = []
        self._started = 0.0

    def on_step_begin(self, *_: Any, **__: Any) -> None:
        self._started = time.perf_counter()

    def on_step_end(self, *_: Any, **__: Any) -> None:
        self.seconds.append(time.perf_counter() - self._started)


def seconds_of_trl(weights: BaseWeights, examples: Sequence[Prepared]) -> tuple[float, float]:
    """Median of a step, after a first one to warm up; and the first loss."""
    rows = [row for example in examples for row in example.rows]
    labels = [
        [token if on else -100 for token, on in zip(r.token_ids, r.trained, strict=True)]
        for r in rows
    ]
    data = Dataset.from_dict({"input_ids": [list(r.token_ids) for r in rows], "labels": labels})
    clock = Clock()
    with tempfile.TemporaryDirectory() as folder, warnings.catch_warnings():
        warnings.simplefilter("ignore")
        trainer = SFTTrainer(
            model=weights.new_model(),
            args=TrlConfig(
                output_dir=folder,
                per_device_train_batch_size=len(rows),
                max_steps=2,
                learning_rate=2e-4,
                gradient_checkpointing=False,
                bf16=False,
                use_cpu=weights.device.type == "cpu",
                logging_steps=1,
                report_to=[],
                disable_tqdm=True,
                save_strategy="no",
                max_length=None,
            ),
            train_dataset=data,
            peft_config=PeftLora(r=8, lora_alpha=16, target_modules="all-linear"),
            processing_class=weights.tokenizer,
            callbacks=[clock],
        )
        trainer.remove_callback(PrinterCallback)  # it prints to where the figures go
        trainer.train()
    losses = [entry["loss"] for entry in trainer.state.log_history if "loss" in entry]
    return clock.seconds[-1], float(losses[0])


def seconds_of_ours(weights: BaseWeights, examples: Sequence[Prepared]) -> tuple[float, float]:
    trainer = GRPOTrainer(weights.new_model(), lora=LoraConfig(rank=8, alpha=16))
    batch, config = to_batch(examples), step_config(SftConfig(), 10)
    first = trainer.fit(batch, config).loss
    started = time.perf_counter()
    trainer.fit(batch, config)
    return time.perf_counter() - started, first


def compare(weights: BaseWeights, examples: Sequence[Prepared]) -> tuple[float, float]:
    """Their time over ours, and the largest difference of first losses."""
    ratios: list[float] = []
    gaps: list[float] = []
    for _ in range(ROUNDS):
        theirs, their_loss = seconds_of_trl(weights, examples)
        gc.collect()  # trainers refer to themselves
        ours, our_loss = seconds_of_ours(weights, examples)
        ratios.append(theirs / ours)
        gaps.append(abs(their_loss - our_loss))
    return statistics.median(ratios), max(gaps)


def mask_shares() -> tuple[float, float, int]:
    """Shares of conversations that TRL's own marks mask exactly, whole and up to the last
    trained token; and how many were compared."""
    compared = [
        found
        for template in trl_templates()
        if template.name.endswith("_training")
        for conversation in CONVERSATIONS
        if (found := marks(template, conversation.messages, conversation.tools)) is not None
    ]
    whole = sum(ours == theirs for ours, theirs in compared)
    inside = sum(ours[: _end(ours)] == theirs[: _end(ours)] for ours, theirs in compared)
    return whole / len(compared), inside / len(compared), len(compared)


def marks(
    template: Template, messages: Sequence[Any], tools: Any
) -> tuple[list[bool], list[bool]] | None:
    """Our mask and theirs; None where one refuses, or they write different tokens."""
    places = [at for at, message in enumerate(messages) if at and is_answer(message)]
    if not places or any("type" in message for message in messages):
        return None
    said = list(messages[: places[-1] + 1])
    try:
        rows = token_rows(template.chat, said, tools, [is_answer(m) for m in said])
        made: Any = template.tokenizer.apply_chat_template(
            said, tools=tools, return_dict=True, return_assistant_tokens_mask=True
        )
    except (ChatError, TemplateError, TypeError, ValueError, LookupError, AttributeError):
        return None
    if len(rows) != 1 or tuple(made["input_ids"][: len(rows[0].token_ids)]) != rows[0].token_ids:
        return None
    theirs = [bool(mark) for mark in made["assistant_masks"]]
    return [*rows[0].trained, *([False] * (len(theirs) - len(rows[0].trained)))], theirs


def _end(mask: Sequence[bool]) -> int:
    """Behind the last trained token."""
    return max(at for at, on in enumerate(mask) if on) + 1


def main() -> None:
    weights = load(resolve("smollm2-135m"))
    chat = chat_format_for(weights.tokenizer)

    def read(make: Any) -> list[Prepared]:
        made = [make(number) for number in range(100, 100 + BATCH)]
        return prepare(made, chat, SftConfig(), context_length=2048).examples

    tools, tools_gap = compare(weights, read(with_tools))
    unlike, unlike_gap = compare(weights, read(plain))
    whole, inside, compared = mask_shares()
    report(
        "sft",
        {
            "vs_trl": tools,
            "vs_trl_plain": unlike,
            "loss_gap": max(tools_gap, unlike_gap),
            "trl_marks_exact": whole,
            "trl_marks_exact_inside": inside,
            "conversations_compared": compared,
        },
        setup={"rounds": ROUNDS, "batch": BATCH, "dtype": str(weights.dtype)},
    )


if __name__ == "__main__":
    main()
