"""From a description to a trained model: scenarios, training by a judge, a report"""

from __future__ import annotations

from pathlib import Path
from typing import Annotated

import typer

from art_core.cli.options import DEFAULT_ROOT, Root


def auto(
    task: Annotated[str, typer.Argument(help="What the agent does, in a sentence or a page.")],
    judge: Annotated[
        str, typer.Option(help="Writes the scenarios and judges: a LiteLLM model string.")
    ],
    judge_url: Annotated[
        str | None,
        typer.Option(help="An OpenAI-compatible server that --judge is a model of, with its /v1."),
    ] = None,
    key_env: Annotated[
        str, typer.Option(help="Environment variable with the key for --judge-url.")
    ] = "OPENAI_API_KEY",
    model: Annotated[str, typer.Option(help="The base model to train.")] = "smollm2-135m",
    name: Annotated[str, typer.Option(help="What the trained model is called.")] = "auto",
    project: Annotated[str, typer.Option(help="What it belongs to.")] = "auto",
    agent: Annotated[
        str | None,
        typer.Option(
            help="module:function, async, called with (model, scenario), returns the Trajectory. "
            "Without it the model just answers."
        ),
    ] = None,
    tools: Annotated[
        Path | None, typer.Option(help="JSON file: the agent's tools, as OpenAI's API spells them.")
    ] = None,
    examples: Annotated[
        Path | None, typer.Option(help="Text file: a task that a user asked on each line.")
    ] = None,
    scenarios: Annotated[int, typer.Option(help="How many to make.")] = 40,
    tries: Annotated[
        int, typer.Option(help="Rollouts to try each scenario for solvability; 0: none.")
    ] = 0,
    steps: Annotated[int, typer.Option(help="Training steps.")] = 20,
    groups: Annotated[int, typer.Option(help="Scenarios in a step.")] = 8,
    rollouts: Annotated[int, typer.Option(help="Rollouts of each.")] = 8,
    learning_rate: Annotated[float, typer.Option(help="Peak learning rate.")] = 5e-5,
    max_tokens: Annotated[int, typer.Option(help="Of an answer, without --agent.")] = 256,
    max_usd: Annotated[float | None, typer.Option(help="Stop when judging costs this.")] = None,
    seed: Annotated[int, typer.Option(help="Of scenarios, shuffles and training.")] = 0,
    root: Root = DEFAULT_ROOT,
) -> None:
    """Make scenarios from a description, train on a judge's scores, compare with the base."""
    from art_core.config import TrainConfig
    from ruler.auto.command import AutoOptions, run_auto

    run_auto(
        AutoOptions(
            task=task,
            judge=judge,
            judge_url=judge_url,
            key_env=key_env,
            base_model=model,
            name=name,
            project=project,
            agent=agent,
            tools=tools,
            examples=examples,
            scenarios=scenarios,
            tries=tries,
            max_tokens=max_tokens,
            max_usd=max_usd,
            root=root,
            config=TrainConfig(
                steps=steps,
                groups_per_step=groups,
                rollouts_per_group=rollouts,
                learning_rate=learning_rate,
                seed=seed,
            ),
        )
    )
