"""AutoRL teaches the real model: the judge ranks by the demo's true metric, with noise.

The judge writes the scenarios, too (questions about the standard library's functions),
and is all that the training knows of what is good. Measured is the true metric on
held-out questions: the reciprocal rank of the right page for the query that the model
writes.
"""

from __future__ import annotations

import json
import random
import re
from pathlib import Path
from statistics import fmean
from typing import Any

import pytest

import art_core as art
from art_core.demo.agent import search
from art_core.demo.corpus import load_corpus
from art_core.demo.grading import reciprocal_rank
from art_core.demo.scenarios import make_scenarios as demo_questions
from art_core.trajectories import TrajectoryGroup
from ruler import OpenAIServer, Scenario, autorl
from tests.ruler.fake_judge import FakeJudge, recordings
from tests.ruler.test_scenarios import ordered

NOISE = 0.15
"""Standard deviation of the judge's error on a score in [0, 1]."""


class Expert:
    """Writes questions about the standard library, and grades the searches for them."""

    def __init__(self, folder: Path, seed: int) -> None:
        corpus = load_corpus()
        self.index = folder / "index.sqlite"
        corpus.write_index(self.index)
        questions = list(demo_questions(corpus, held_out=1).training)
        random.Random(seed).shuffle(questions)
        self.function_of = {
            one.question.partition("that will ")[2].partition(". Which")[0]: one.function
            for one in questions
        }
        self.noise = random.Random(seed)

    def answer(self, body: dict[str, Any]) -> dict[str, Any]:
        system, user = (str(body["messages"][i]["content"]) for i in (0, 1))
        if "You write tasks" in system:
            tasks = list(self.function_of)
            return {
                f"task{n}": {"task": tasks[n], "success": "The search finds the function."}
                for n in ordered(body)
            }
        scores = {name: self.score(user, text) for name, text in recordings(user, system).items()}
        if '"winner"' in system:
            best = max(scores, key=lambda name: scores[name])
            return {"explanation": "", "winner": "tie" if len({*scores.values()}) == 1 else best}
        keys = re.findall(r'"(\w+)"', system.partition("exactly these keys: ")[2].partition(".")[0])
        only = next(iter(scores.values()))
        return {key: {"explanation": "", "score": scores.get(key, only)} for key in keys}

    def score(self, prompt: str, recording: str) -> float:
        """The true metric and an error."""
        said = json.loads(recording.splitlines()[-1]).get("content", "")
        task = next(task for task in self.function_of if json.dumps(task)[1:-1] in prompt)
        return min(1.0, max(0.0, self.true_score(task, said) + self.noise.gauss(0, NOISE)))

    def true_score(self, task: str, query: str) -> float:
        return reciprocal_rank(search(self.index, query), self.function_of[task])

    def mean_true_score(self, groups: list[TrajectoryGroup]) -> float:
        return fmean(
            self.true_score(
                str(one.metadata["scenario"]["task"]),  # type: ignore[index,call-overload]
                str(one.messages()[-1].get("content") or ""),
            )
            for group in groups
            for one in group
        )


@pytest.mark.long
@pytest.mark.training
@pytest.mark.timeout(1200)
@pytest.mark.parametrize("seed", [0, 1, 2])
async def test_a_noisy_judge_teaches_the_real_model(
    seed: int, fake_judge: FakeJudge, judge_model: OpenAIServer, tmp_path: Path
) -> None:
    expert = Expert(tmp_path, seed)
    fake_judge.right_answer = expert.answer  # type: ignore[method-assign]
    model = art.TrainableModel(name="finder", project="tests", base_model="smollm2-135m")

    async def agent(scenario: Scenario) -> art.Trajectory:
        question = f"I need something in Python that will {scenario.task}. Which function is that?"
        async with model.rollout(scenario) as trajectory:
            await model.openai_client().chat.completions.create(
                model=model.get_inference_name(),
                messages=[
                    {"role": "system", "content": "Reply with a search query."},
                    {"role": "user", "content": question},
                ],
                max_tokens=16,
            )
        return trajectory

    async with art.LocalBackend(tmp_path / "runs") as backend:
        await model.register(backend)
        report = await autorl(
            model,
            agent,
            judge=judge_model,
            task="Finds functions of Python's standard library by searching.",
            scenarios=88,
            validation=0.3,
            cache=False,
            config=art.TrainConfig(
                steps=8, groups_per_step=6, rollouts_per_group=8, learning_rate=1e-3, eval_every=8,
                eval_rollouts=2, seed=seed,
            ),
        )  # fmt: skip
        files = backend.run_directory(model).trajectories
        before, after = (expert.mean_true_score(files.read("val", step)) for step in (0, 8))
    print(f"seed {seed}: true held-out metric {before:.3f} -> {after:.3f}; {report.win_rate}")
    assert after > before + 0.25
    assert report.win_rate.rate is not None
    assert report.win_rate.rate > 0.5
