"""Teach a model to use an MCP server's tools: inspect, scenarios, train"""

from __future__ import annotations

from pathlib import Path
from typing import Annotated

import typer

from art_core.cli.options import DEFAULT_ROOT, Json, Root

app = typer.Typer(help="Teach a model to use an MCP server's tools.", no_args_is_help=True)

Command = Annotated[
    str | None, typer.Option("--server", help='How to start it: "uvx mcp-server-time".')
]
Url = Annotated[str | None, typer.Option(help="Of a streamable HTTP server.")]
McpJson = Annotated[
    Path | None, typer.Option("--config", help="An mcp.json file, as other MCP hosts use it.")
]
Only = Annotated[list[str] | None, typer.Option(help="Of --config only this server; repeatable.")]
Env = Annotated[
    list[str] | None,
    typer.Option(help="NAME=VALUE, or NAME to pass it on, for --server; secret; repeatable."),
]
Header = Annotated[list[str] | None, typer.Option(help="'Name: value' for --url; secret.")]
Tools = Annotated[list[str] | None, typer.Option("--tool", help="Use only this tool; repeatable.")]
SandboxFolder = Annotated[
    Path | None,
    typer.Option(help="Start servers in a copy of this folder, restored before each rollout."),
]
Judge = Annotated[str | None, typer.Option(help="A LiteLLM model string.")]
JudgeUrl = Annotated[
    str | None,
    typer.Option(help="An OpenAI-compatible server that --judge is a model of, with its /v1."),
]
KeyEnv = Annotated[str, typer.Option(help="Environment variable with the key for --judge-url.")]
Count = Annotated[int, typer.Option("--scenarios", min=1, help="How many to make.")]
Instructions = Annotated[str | None, typer.Option(help="What the tasks should be like.")]
Seed = Annotated[int, typer.Option(help="Of scenarios, shuffles and training.")]


@app.command()
def inspect(
    server: Command = None,
    url: Url = None,
    config: McpJson = None,
    only: Only = None,
    env: Env = None,
    header: Header = None,
    tool: Tools = None,
    sandbox: SandboxFolder = None,
    json: Json = False,
) -> None:
    """Show what a model would see of the servers: tools, instructions, resources, prompts."""
    import asyncio

    from art_core.cli.run_view import print_json
    from integrations.mcp.choosing import Choice
    from integrations.mcp.inspecting import look_at, print_view

    choice = Choice(server, url, config, only, env, header)
    view = asyncio.run(look_at(choice.servers(), tool or None, sandbox))
    if json:
        print_json(view.as_json())
    else:
        print_view(view)


@app.command()
def scenarios(
    judge: Annotated[str, typer.Option(help="Writes the scenarios: a LiteLLM model string.")],
    server: Command = None,
    url: Url = None,
    config: McpJson = None,
    only: Only = None,
    env: Env = None,
    header: Header = None,
    tool: Tools = None,
    sandbox: SandboxFolder = None,
    judge_url: JudgeUrl = None,
    key_env: KeyEnv = "OPENAI_API_KEY",
    scenarios: Count = 24,
    instructions: Instructions = None,
    seed: Seed = 0,
    out: Annotated[Path, typer.Option(help="Written here, a line each.")] = Path("scenarios.jsonl"),
) -> None:
    """Make tasks that need the servers' tools, and show them."""
    import asyncio

    from integrations.mcp.choosing import Choice
    from integrations.mcp.making import make
    from ruler.checking import judge_model

    made = asyncio.run(
        make(
            Choice(server, url, config, only, env, header).servers(),
            judge=judge_model(judge, judge_url, key_env),
            count=scenarios,
            path=out,
            tools=tool or None,
            sandbox=sandbox,
            instructions=instructions,
            seed=seed,
        )
    )
    made.preview(len(made), 400)
    typer.echo(f"{len(made)} scenarios in {out}")


@app.command()
def train(
    server: Command = None,
    url: Url = None,
    config: McpJson = None,
    only: Only = None,
    env: Env = None,
    header: Header = None,
    tool: Tools = None,
    model: Annotated[str, typer.Option(help="The base model to train.")] = "smollm2-135m",
    name: Annotated[str, typer.Option(help="What the trained model is called.")] = "agent",
    project: Annotated[str, typer.Option(help="What it belongs to.")] = "mcp",
    judge: Judge = None,
    judge_url: JudgeUrl = None,
    key_env: KeyEnv = "OPENAI_API_KEY",
    reward: Annotated[
        str | None,
        typer.Option(help="module:function, given the Outcome of a rollout; instead of --judge."),
    ] = None,
    scenarios: Count = 24,
    scenarios_file: Annotated[
        Path | None, typer.Option(help='JSON lines, each with a "task", instead of making them.')
    ] = None,
    held_out: Annotated[
        float, typer.Option(help="Share of the scenarios that is never trained on.")
    ] = 0.25,
    instructions: Instructions = None,
    system: Annotated[str | None, typer.Option(help="The agent's system message.")] = None,
    steps: Annotated[int, typer.Option(help="Training steps.")] = 20,
    groups: Annotated[int, typer.Option(help="Scenarios in a step.")] = 4,
    rollouts: Annotated[int, typer.Option(help="Rollouts of each.")] = 8,
    learning_rate: Annotated[float, typer.Option(help="Peak learning rate.")] = 5e-5,
    max_turns: Annotated[int, typer.Option(help="Model calls in a rollout.")] = 10,
    max_tokens: Annotated[int, typer.Option(help="Of one answer of the model.")] = 512,
    tool_timeout: Annotated[float, typer.Option(help="Seconds for a tool call.")] = 60.0,
    isolation: Annotated[
        str, typer.Option(help="Servers: one for each 'rollout', a 'pool', or one 'shared'.")
    ] = "pool",
    pool_size: Annotated[int, typer.Option(help="Servers in the pool.")] = 4,
    sandbox: SandboxFolder = None,
    reset: Annotated[
        str | None,
        typer.Option(help="module:function, given the Workspace before each rollout."),
    ] = None,
    warm_start: Annotated[
        int,
        typer.Option(
            min=0,
            help="Demonstrate so many scenarios first, and learn from that; it's the first step. "
            "They are played as --scenarios-file says, or by --teacher.",
        ),
    ] = 0,
    teacher: Annotated[
        str | None, typer.Option(help="A model of --teacher-url that demonstrates.")
    ] = None,
    teacher_url: Annotated[
        str, typer.Option(help="An OpenAI-compatible server, with its /v1.")
    ] = "https://api.openai.com/v1",
    teacher_key_env: Annotated[
        str, typer.Option(help="Environment variable with the key for --teacher-url.")
    ] = "OPENAI_API_KEY",
    min_reward: Annotated[
        float, typer.Option(help="Demonstrations with a reward below it aren't learned from.")
    ] = 0.5,
    seed: Seed = 0,
    root: Root = DEFAULT_ROOT,
) -> None:
    """Train a model on a server's tools; report on held-out scenarios before and after.

    Stopped and started again, it goes on where it was.
    """
    import asyncio

    from art_core.config import TrainConfig
    from integrations.mcp.choosing import Choice, check_isolation, imported
    from integrations.mcp.demonstrating import named_teacher
    from integrations.mcp.loop import Limits
    from integrations.mcp.report import print_report
    from integrations.mcp.training import Training, run_training
    from ruler.checking import judge_model

    training = Training(
        servers=Choice(server, url, config, only, env, header).servers(),
        tools=tool or None,
        base_model=model,
        name=name,
        project=project,
        judge=None if judge is None else judge_model(judge, judge_url, key_env),
        reward=None if reward is None else imported("reward", reward),
        scenarios=scenarios,
        scenarios_file=scenarios_file,
        held_out=held_out,
        instructions=instructions,
        system=system,
        limits=Limits(max_turns=max_turns, max_tokens=max_tokens, tool_timeout=tool_timeout),
        isolation=check_isolation(isolation),
        pool_size=pool_size,
        sandbox=sandbox,
        reset=None if reset is None else imported("reset", reset),
        warm_start=warm_start,
        teacher=None if teacher is None else named_teacher(teacher, teacher_url, teacher_key_env),
        min_reward=min_reward,
        root=root,
        config=TrainConfig(
            steps=steps,
            groups_per_step=groups,
            rollouts_per_group=rollouts,
            learning_rate=learning_rate,
            seed=seed,
        ),
    )
    print_report(asyncio.run(run_training(training)))
