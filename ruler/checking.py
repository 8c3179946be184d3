"""What ``art ruler check`` does."""

from __future__ import annotations

import asyncio
import json
import os
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import cast, get_args

from pydantic import ValidationError
from rich.console import Console

from art_core.errors import ConfigError
from art_core.trajectories import TrajectoryGroup
from ruler.judges.litellm_model import LiteLLMModel
from ruler.judges.model import JudgeModel, Structured
from ruler.judges.openai_server import OpenAIServer
from ruler.resolving import Mode
from ruler.rubric import DEFAULT_RUBRIC
from ruler.scorer import Ruler
from ruler.tally import Budget
from ruler.trust import evaluate


@dataclass(frozen=True, slots=True, kw_only=True)
class CheckOptions:
    """As on the command line."""

    judge: str
    url: str | None
    key_env: str
    groups: Sequence[Path]
    rubric: Path | None
    mode: str
    orders: int
    structured: str | None
    max_usd: float | None
    concurrency: int
    cache: bool


def run_check(options: CheckOptions, *, as_json: bool) -> float | None:
    """Evaluate, print, and return the share of pairs that were ordered right."""
    groups = [group for path in options.groups for group in read_groups(path)] or None
    ruler = Ruler(
        judge_model(options.judge, options.url, options.key_env, options.structured),
        DEFAULT_RUBRIC if options.rubric is None else read_text(options.rubric),
        mode=cast("Mode", options.mode),
        budget=Budget(usd=options.max_usd),
        concurrency=options.concurrency,
        cache=options.cache,
    )
    with Console(stderr=True).status(f"asking {ruler.judge.name} …"):
        report = asyncio.run(evaluate(groups, ruler, orders=options.orders))
    console = Console()
    if as_json:
        console.print_json(json.dumps(report.as_dict()))
    else:
        console.print(report.table())
    return report.pair_accuracy


def read_groups(path: Path) -> list[TrajectoryGroup]:
    """The groups in a JSONL file.

    Raises:
        ConfigError: there is no such file, or a line isn't a group; names the line.
    """
    groups: list[TrajectoryGroup] = []
    for number, line in enumerate(read_text(path).splitlines(), start=1):
        if not line.strip():
            continue
        try:
            groups.append(TrajectoryGroup.model_validate_json(line))
        except ValidationError as error:
            raise ConfigError(
                f"{path} line {number} is not a trajectory group: {error.errors()[0]['msg']}",
                "Each line is a TrajectoryGroup as JSON, with a reward for each trajectory.",
            ) from error
    return groups


def read_text(path: Path) -> str:
    """A UTF-8 file.

    Raises:
        ConfigError: it can't be read.
    """
    try:
        return path.read_text("utf-8")
    except (OSError, UnicodeDecodeError) as error:
        raise ConfigError(f"{path} can't be read: {error}", "Give a UTF-8 text file.") from error


def judge_model(
    judge: str, url: str | None, key_env: str, structured: str | None = None
) -> JudgeModel:
    """The judge that a command line names.

    Raises:
        ConfigError: ``structured`` isn't one of the ways there are.
    """
    if structured is not None and structured not in get_args(Structured):
        raise ConfigError(
            f"structured is {structured!r}", f"Choose one of {', '.join(get_args(Structured))}."
        )
    form = cast("Structured | None", structured)
    if url is None:
        # This process is ours, so the prices that come with litellm are preferred to a download.
        os.environ.setdefault("LITELLM_LOCAL_MODEL_COST_MAP", "True")
        return LiteLLMModel(model=judge, structured=form)
    return OpenAIServer(
        base_url=url,
        model=judge,
        api_key=os.environ.get(key_env, "none"),
        structured=form or "schema",
    )
