# pyright: reportUnknownMemberType=false, reportUnknownVariableType=false
# pyright: reportUnknownArgumentType=false
"""The demo's task trained by this project and by TRL's GRPOTrainer: time to the same reward.

    python -m benchmarks.time_to_reward [--json] [--steps N] [--groups N]

Both in this process, one after the other. Equal: base and dtype, LoRA, objective (CISPO,
advantages normalised by group, token mean, no KL), AdamW, learning rate, gradient clip,
questions of each step and rollouts of each, prompts, lengths, search, grading, and the greedy
play of the held-out questions after each step, off the clock. Not equal: ours plays over HTTP
and records everything, TRL's in a ``rollout_func`` that gives a step's rollouts at once to
transformers' ``generate``; ours corrects for the gap between sampler and trainer, TRL has no
sampler's log-probabilities here; adapters start, and tokens are drawn, from other random
numbers. So curves by step are alike, not the same, and a step is the resolution of the times.

``vs_trl`` is TRL's time over ours to ``target``, the lower of the two best held-out rewards.
``seconds_step`` and ``seconds_step_trl`` are medians; loading and evaluation count for neither.
"""

from __future__ import annotations

import argparse
import asyncio
import itertools
import sys
import tempfile
import time
import warnings
from collections.abc import Sequence
from pathlib import Path
from statistics import fmean, median
from typing import Any

from art_core.config import LoraConfig, TrainConfig
from art_core.demo.agent import INSTRUCTIONS, Finding, search
from art_core.demo.corpus import load_corpus
from art_core.demo.grading import grade
from art_core.demo.run import player
from art_core.demo.scenarios import Scenario, Scenarios, make_scenarios
from art_core.rollouts.plan import planned_scenarios
from benchmarks.report import report

MODEL = "smollm2-135m"
LEARNING_RATE, ROLLOUTS, REPLY_TOKENS, SEED = 1.5e-3, 8, 16, 0
Curve = list[tuple[float, float]]
"""(seconds trained, held-out reward), step 0 first."""


async def ours(scenarios: Scenarios, index: Path, root: Path, steps: int, groups: int) -> Curve:
    from art_core.backends.local import LocalBackend
    from art_core.rollouts import TrainableModel, train
    from art_core.runs import VALIDATION_SPLIT

    seconds = [0.0]
    config = TrainConfig(
        steps=steps, groups_per_step=groups, rollouts_per_group=ROLLOUTS, eval_every=1,
        learning_rate=LEARNING_RATE, max_tokens_per_pass=1024, seed=SEED,
    )  # fmt: skip
    model = TrainableModel(
        name="race", project="benchmark", base_model=MODEL, lora=LoraConfig(rank=8, alpha=16.0)
    )

    def note(step: Any) -> None:
        spent = step.metrics["seconds_gathering"] + step.metrics["seconds_training"]
        seconds.append(seconds[-1] + spent)

    async with LocalBackend(root) as backend:
        await model.register(backend)
        done = await train(
            model, player(model, index), scenarios.training, config,
            validation=scenarios.held_out, on_step=note,
        )  # fmt: skip
    rewards = done.rewards(VALIDATION_SPLIT)
    return [(seconds[step], rewards[step]) for step in sorted(rewards)]


class _Agent:
    """The demo's agent, many questions at once, on transformers' ``generate``."""

    def __init__(self, tokenizer: Any, index: Path) -> None:
        from art_core.chat import chat_format_for

        self._chat = chat_format_for(tokenizer)
        self._index = index

    def play(
        self, model: Any, scenarios: Sequence[Scenario], *, sample: bool
    ) -> list[tuple[list[int], list[int], list[int], float]]:
        """Prompt, completion (with the observation inside), its mask, reward."""
        chat = self._chat
        heads: list[Any] = [
            [{"role": "system", "content": INSTRUCTIONS}, {"role": "user", "content": s.question}]
            for s in scenarios
        ]
        prompts = [chat.render(head) for head in heads]
        queries = self._generate(model, prompts, sample)
        texts = [self._text(query) for query in queries]
        pages = [search(self._index, text) for text in texts]
        seconds: list[list[int]] = []
        for head, prompt, query, text, found in zip(
            heads, prompts, queries, texts, pages, strict=True
        ):
            shown = f"Found: {', '.join(found) or 'nothing'}. So the function is called"
            said: list[Any] = [*head, {"role": "assistant", "content": text}]
            user: Any = [{"role": "user", "content": shown}]
            whole = chat.bridge(prompt + query, said, user, sampled=len(query))
            if whole is None:
                raise RuntimeError("the template can't continue a recorded conversation")
            seconds.append(whole)
        answers = self._generate(model, seconds, sample)
        results: list[tuple[list[int], list[int], list[int], float]] = []
        for i, scenario in enumerate(scenarios):
            observed = len(seconds[i]) - len(prompts[i]) - len(queries[i])
            mask = [1] * len(queries[i]) + [0] * observed + [1] * len(answers[i])
            completion = seconds[i][len(prompts[i]) :] + answers[i]
            finding = Finding(texts[i], pages[i], self._text(answers[i]))
            results.append((prompts[i], completion, mask, grade(finding, scenario).reward))
        return results

    def _text(self, token_ids: list[int]) -> str:
        content = self._chat.parse(token_ids).message.get("content")
        return content if isinstance(content, str) else ""

    def _generate(self, model: Any, rows: list[list[int]], sample: bool) -> list[list[int]]:
        import torch

        ends = list(self._chat.stop_token_ids)
        width = max(len(row) for row in rows)
        tokens = torch.tensor([[ends[0]] * (width - len(row)) + row for row in rows])
        mask = torch.tensor([[0] * (width - len(row)) + [1] * len(row) for row in rows])
        training = model.training
        model.eval()
        with torch.no_grad():
            made = model.generate(
                input_ids=tokens, attention_mask=mask, max_new_tokens=REPLY_TOKENS,
                do_sample=sample, temperature=1.0, top_k=0, top_p=1.0,
                eos_token_id=ends, pad_token_id=ends[0],
            )[:, width:].tolist()  # fmt: skip
        model.train(training)
        cuts = [next((i + 1 for i, t in enumerate(row) if t in ends), len(row)) for row in made]
        return [row[:cut] for row, cut in zip(made, cuts, strict=True)]


def trl(scenarios: Scenarios, index: Path, root: Path, steps: int, groups: int) -> Curve:
    import peft
    from datasets import Dataset
    from transformers import PrinterCallback, TrainerCallback
    from trl.trainer.grpo_config import GRPOConfig
    from trl.trainer.grpo_trainer import GRPOTrainer

    from art_core.weights import resolve
    from art_core.weights.loading import load

    weights = load(resolve(MODEL))
    agent = _Agent(weights.tokenizer, index)
    by_question = {s.question: s for s in scenarios.training}
    played = [
        scenarios.training[index].question
        for step in range(1, steps + 1)
        for index in planned_scenarios(len(scenarios.training), groups, SEED, step)
    ]
    batch = groups * ROLLOUTS

    def rollouts(prompts: list[str], trainer: Any) -> dict[str, Any]:
        results = agent.play(trainer.model, [by_question[p] for p in prompts], sample=True)
        names = ("prompt_ids", "completion_ids", "env_mask", "earned")
        columns = dict(zip(names, map(list, zip(*results, strict=True)), strict=True))
        return {**columns, "logprobs": None}

    def earned_reward(earned: list[float], **_: Any) -> list[float | None]:
        return [*earned]

    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        trainer: Any = GRPOTrainer(
            model=weights.new_model(),
            reward_funcs=earned_reward,
            rollout_func=rollouts,
            args=GRPOConfig(
                output_dir=str(root), use_cpu=True, bf16=False, loss_type="cispo",
                epsilon_high=5.0, learning_rate=LEARNING_RATE, lr_scheduler_type="constant",
                max_steps=steps, num_generations=ROLLOUTS, per_device_train_batch_size=ROLLOUTS,
                gradient_accumulation_steps=batch // ROLLOUTS, shuffle_dataset=False,
                gradient_checkpointing=False, report_to=[], save_strategy="no",
                disable_tqdm=True, logging_strategy="no", seed=SEED,
            ),
            train_dataset=Dataset.from_list([{"prompt": question} for question in played]),
            processing_class=weights.tokenizer,
            peft_config=peft.LoraConfig(
                r=8, lora_alpha=16, target_modules="all-linear", task_type="CAUSAL_LM"
            ),
        )  # fmt: skip
        curve: Curve = []

        def measure(seconds: float) -> None:
            results = agent.play(trainer.model, scenarios.held_out, sample=False)
            curve.append((seconds, fmean(reward for *_, reward in results)))
            print("TRL", *curve[-1], file=sys.stderr, flush=True)

        class Measure(TrainerCallback):
            started = 0.0

            def on_step_begin(self, *_: Any, **__: Any) -> None:
                if not self.started:
                    self.started = time.perf_counter()

            def on_step_end(self, *_: Any, **__: Any) -> None:
                now = time.perf_counter()
                measure(now - self.started)
                self.started += time.perf_counter() - now

        trainer.remove_callback(PrinterCallback)  # standard output is the report's
        measure(0.0)
        trainer.add_callback(Measure())
        trainer.train()
    return curve


def seconds_to(target: float, curve: Curve) -> float:
    return next(seconds for seconds, reward in curve if reward >= target)


def seconds_of_a_step(curve: Curve) -> float:
    return median(after - before for (before, _), (after, _) in itertools.pairwise(curve))


def main() -> None:
    parser = argparse.ArgumentParser(description=(__doc__ or "").splitlines()[0])
    parser.add_argument("--json", action="store_true", help="print one JSON object")
    parser.add_argument("--steps", type=int, default=8)
    parser.add_argument("--groups", type=int, default=4)
    parser.add_argument("--held-out", type=int, default=64)
    arguments = parser.parse_args()
    scenarios = make_scenarios(load_corpus(None), held_out=arguments.held_out)
    with tempfile.TemporaryDirectory() as folder:
        index = Path(folder) / "index.sqlite"
        load_corpus(None).write_index(index)
        size = (arguments.steps, arguments.groups)
        theirs = trl(scenarios, index, Path(folder) / "trl", *size)
        mine = asyncio.run(ours(scenarios, index, Path(folder) / "ours", *size))
    target = min(max(reward for _, reward in curve) for curve in (mine, theirs))
    step, step_trl = seconds_of_a_step(mine), seconds_of_a_step(theirs)
    figures: dict[str, Any] = {
        "seconds_step": step,
        "seconds_step_trl": step_trl,
        "step_vs_trl": step_trl / step,
        "target": target,
        "seconds": seconds_to(target, mine),
        "seconds_trl": seconds_to(target, theirs),
        "rewards": [reward for _, reward in mine],
        "rewards_trl": [reward for _, reward in theirs],
        "seconds_by_step": [seconds for seconds, _ in mine],
        "seconds_by_step_trl": [seconds for seconds, _ in theirs],
    }
    if target > max(mine[0][1], theirs[0][1]):  # else one of the two has learned nothing
        figures["vs_trl"] = figures["seconds_trl"] / figures["seconds"]
    report("time_to_reward", figures, setup={"model": MODEL, **vars(arguments)})


if __name__ == "__main__":
    main()
