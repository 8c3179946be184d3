"""What a user can set about training, in one place; plain data, no heavy imports."""

from __future__ import annotations

from typing import Annotated, Literal

from pydantic import BaseModel, ConfigDict, Field

PositiveFloat = Annotated[float, Field(gt=0, allow_inf_nan=False)]
NonNegativeFloat = Annotated[float, Field(ge=0, allow_inf_nan=False)]
PositiveInt = Annotated[int, Field(ge=1)]

ObjectiveName = Literal["cispo", "grpo", "gspo", "reinforce"]
AdvantageName = Literal["group_std", "group_mean", "leave_one_out"]
AggregationName = Literal["rollout_mean", "token_mean", "constant"]


class Config(BaseModel):
    """A frozen configuration; an unknown field is an error."""

    model_config = ConfigDict(frozen=True, extra="forbid")


class LoraConfig(Config):
    """The adapter that is trained (LoRA, arXiv 2106.09685)."""

    rank: PositiveInt = 8
    alpha: PositiveFloat = 16.0
    dropout: Annotated[float, Field(ge=0, lt=1)] = 0.0
    target_modules: tuple[str, ...] | Literal["all-linear"] = "all-linear"


class StepConfig(Config):
    """One training step: the objective and the optimizer."""

    learning_rate: PositiveFloat = 5e-5
    objective: ObjectiveName = "cispo"
    advantage: AdvantageName = "group_std"
    aggregation: AggregationName = "token_mean"
    max_grad_norm: PositiveFloat = 1.0
    weight_decay: NonNegativeFloat = 0.0


class TrainConfig(StepConfig):
    """A whole run of `art_core.train`."""

    steps: PositiveInt = 50
    groups_per_step: PositiveInt = 8
    rollouts_per_group: Annotated[int, Field(ge=2)] = 8
    seed: int = 0
    deterministic: bool = False
