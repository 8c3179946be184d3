"""What the user calls a judge, made into a `Judge`."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Literal, cast

from art_core.errors import ConfigError
from ruler.judges.litellm_model import LiteLLMModel
from ruler.judges.model import JudgeModel
from ruler.methods.absolute import Absolute, Criteria
from ruler.methods.function import FunctionJudge, ScoreFunction
from ruler.methods.judge import Judge
from ruler.methods.pairwise import Pairwise
from ruler.methods.panel import Panel
from ruler.methods.relative import Relative
from ruler.rubric import Criterion, RubricText

Mode = Literal["relative", "pairwise", "absolute"]
"""How a judge *model* is asked; judges and functions have a way of their own."""
JudgeSpec = str | JudgeModel | Judge | ScoreFunction
"""A LiteLLM model string, a model, a judge, or a function."""
Rubric = RubricText | Sequence[Criterion]


def make_judge(spec: JudgeSpec | Sequence[JudgeSpec], rubric: Rubric, mode: Mode) -> Judge:
    """One judge; several are a panel that averages.

    Raises:
        ConfigError: it is none of these, or the rubric doesn't go with the mode.
    """
    if isinstance(spec, Sequence) and not isinstance(spec, str):
        several = cast("Sequence[JudgeSpec]", spec)
        return Panel(judges=[make_judge(one, rubric, mode) for one in several])
    if isinstance(spec, Judge):
        return spec
    if isinstance(spec, str | JudgeModel):
        return _ask_model(make_model(spec), rubric, mode)
    if callable(spec):
        return FunctionJudge(spec)
    raise ConfigError(
        f"judge is {spec!r:.200}",
        "Give a model string ('openai/gpt-4.1'), ruler.OpenAIServer(…), a judge such as "
        "ruler.Pairwise(…), or a function from trajectories to scores.",
    )


def make_model(spec: str | JudgeModel) -> JudgeModel:
    """A model by its LiteLLM string, or itself."""
    return LiteLLMModel(model=spec) if isinstance(spec, str) else spec


def _ask_model(model: JudgeModel, rubric: Rubric, mode: Mode) -> Judge:
    if mode == "absolute":
        return Absolute(model=model, criteria=_criteria(rubric))
    if not (isinstance(rubric, str) or callable(rubric)):
        raise ConfigError(
            f"mode is {mode!r} and the rubric a list of criteria",
            "Criteria need mode='absolute'; otherwise give the rubric as text.",
        )
    if mode == "pairwise":
        return Pairwise(model=model, rubric=rubric)
    if mode == "relative":
        return Relative(model=model, rubric=rubric)
    raise ConfigError(f"mode is {mode!r}", "Choose 'relative', 'pairwise' or 'absolute'.")


def _criteria(rubric: Rubric) -> Criteria:
    if isinstance(rubric, str):
        return [Criterion(name="overall", description=rubric)]
    if callable(rubric):
        return lambda trajectories: [Criterion(name="overall", description=rubric(trajectories))]
    return rubric
