"""What a user can set about training, in one place; plain data, no heavy imports."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated, Any, Literal, Self

from pydantic import BaseModel, ConfigDict, Field, ValidationError, model_validator

from art_core.errors import ConfigError

PositiveFloat = Annotated[float, Field(gt=0, allow_inf_nan=False)]
NonNegativeFloat = Annotated[float, Field(ge=0, allow_inf_nan=False)]
PositiveInt = Annotated[int, Field(ge=1)]

ObjectiveName = Literal["cispo", "grpo", "gspo", "reinforce"]
AdvantageName = Literal["group_std", "group_mean", "leave_one_out"]
AggregationName = Literal["rollout_mean", "token_mean", "constant"]
CorrectionName = Literal["none", "truncate", "mask"]
ScheduleName = Literal["constant", "linear", "cosine"]


class Checked(BaseModel):
    """What a user fills in: what is wrong with it is a ConfigError.

    Raises:
        ConfigError: a field is unknown, or a value can't be used; names each.
    """

    model_config = ConfigDict(extra="forbid")

    def __init__(self, **fields: Any) -> None:
        try:
            super().__init__(**fields)
        except ValidationError as error:
            raise ConfigError(f"{type(self).__name__}: {_problems(error)}") from error


class Config(Checked):
    """A frozen configuration."""

    model_config = ConfigDict(frozen=True)


class LoraConfig(Config):
    """The adapter that is trained (LoRA, arXiv 2106.09685), as PEFT builds it."""

    rank: PositiveInt = 8
    alpha: PositiveFloat = 16.0
    dropout: Annotated[float, Field(ge=0, lt=1)] = 0.0
    target_modules: tuple[str, ...] | Literal["all-linear"] = "all-linear"
    """Names of linear layers; ``all-linear``: every one but the output head."""
    rslora: bool = False
    """Scale by ``alpha / sqrt(rank)`` instead of ``alpha / rank`` (arXiv 2312.03732)."""
    dora: bool = False
    """Train magnitude and direction apart (DoRA, arXiv 2402.09353); slower."""


class StepConfig(Config):
    """One training step: the objective and the optimizer. The math is in ``docs/grpo.md``."""

    learning_rate: PositiveFloat = 5e-5
    objective: ObjectiveName = "cispo"
    advantage: AdvantageName = "group_std"
    aggregation: AggregationName = "token_mean"
    clip_low: NonNegativeFloat | None = None
    """Bounds the ratio current/old by ``1 - clip_low`` below; None: the objective's own."""
    clip_high: NonNegativeFloat | None = None
    """… and by ``1 + clip_high`` above; None: the objective's own."""
    constant_length: PositiveInt = 1024
    """Tokens per rollout that the aggregation ``constant`` divides by (Dr. GRPO)."""
    correction: CorrectionName = "truncate"
    """What becomes of the importance weight old/sampler: ``truncate`` (TIS) bounds it by
    ``correction_high``, ``mask`` (IcePop) drops tokens outside
    [``correction_low``, ``correction_high``], ``none`` leaves it out."""
    correction_low: NonNegativeFloat = 0.5
    correction_high: PositiveFloat = 2.0
    kl_coefficient: NonNegativeFloat = 0.0
    """Weight of the KL divergence to the reference as a loss term; 0: not computed."""
    kl_adapter: Path | None = None
    """A PEFT adapter folder to be the reference; None: the base model."""
    updates_per_batch: PositiveInt = 1
    """Optimizer updates made on each batch."""
    max_grad_norm: PositiveFloat = 1.0
    weight_decay: NonNegativeFloat = 0.0
    schedule: ScheduleName = "constant"
    """How the learning rate goes from its peak after ``warmup_updates`` to 0 at
    ``schedule_updates``; ``constant``: it stays."""
    warmup_updates: Annotated[int, Field(ge=0)] = 0
    schedule_updates: PositiveInt | None = None
    """Optimizer updates until the learning rate is 0; needed by ``linear`` and ``cosine``."""
    max_tokens_per_pass: PositiveInt | None = None
    """Distinct tokens in one forward pass; None: what the memory holds."""
    gradient_checkpointing: bool | None = None
    """Recompute activations layer by layer in the backward pass; None: where one rollout
    alone wouldn't fit in memory otherwise."""
    on_nonfinite: Literal["raise", "skip"] = "raise"
    """After a loss or gradient that isn't finite (the step is never applied): stop, or go on."""

    @model_validator(mode="after")
    def _consistent(self) -> Self:
        if self.schedule != "constant" and (
            self.schedule_updates is None or self.schedule_updates <= self.warmup_updates
        ):
            raise ValueError(
                f"schedule is {self.schedule!r} and schedule_updates is {self.schedule_updates}: "
                f"it must be a number above warmup_updates ({self.warmup_updates})"
            )
        if self.correction_low > self.correction_high:
            raise ValueError(
                f"correction_low is {self.correction_low}, above correction_high "
                f"({self.correction_high})"
            )
        return self


class SftConfig(Config):
    """Supervised fine-tuning: learning from examples."""

    epochs: PositiveInt = 3
    """How often each example is seen."""
    batch_size: PositiveInt = 16
    """Examples per optimizer update. Their trained tokens all weigh the same."""
    learning_rate: PositiveFloat = 2e-4
    schedule: ScheduleName = "cosine"
    """How the learning rate goes from its peak, after the warm-up, to 0 at the end."""
    warmup_share: Annotated[float, Field(ge=0, lt=1)] = 0.05
    """Share of the updates in which the learning rate rises."""
    max_grad_norm: PositiveFloat = 1.0
    weight_decay: NonNegativeFloat = 0.0
    max_length: PositiveInt | None = None
    """Tokens above which an example is over-long; None: what the model can read."""
    bad_examples: Literal["refuse", "skip"] = "refuse"
    """What becomes of examples that are malformed, or that nothing can be learned from."""
    long_examples: Literal["refuse", "skip"] = "refuse"
    """… and of those that are over-long. None is ever cut."""
    seed: int = 0
    """Of the order of the examples."""
    save_every: PositiveInt = 20
    """Updates after which the progress is saved; a run that was killed goes on from there."""
    max_tokens_per_pass: PositiveInt | None = None
    """Distinct tokens in one forward pass; None: what the memory holds."""


class WarmStart(Config):
    """Examples to learn from before the first rollout."""

    examples: Path
    """A ``.jsonl`` file of conversations."""
    validation: Path | None = None
    """Another one, to measure the loss on."""
    sft: SftConfig = SftConfig()


class TrainConfig(StepConfig):
    """A whole run of `art_core.train`."""

    steps: PositiveInt = 50
    """Training steps that the run has when it is over, those of earlier starts included."""
    warm_start: WarmStart | None = None
    """Examples to learn from first. All of this counts as step 1."""
    groups_per_step: PositiveInt = 8
    rollouts_per_group: PositiveInt = 8
    """Rollouts of one scenario, compared with each other; at least 2."""
    seed: int = 0
    """Of the order of scenarios, and of each rollout's own seed (from step, scenario, rollout
    and attempt). The same seed is the same run where the backend is deterministic."""
    extra_groups: Annotated[int, Field(ge=0)] = 0
    """Up to so many groups more are gathered in a step to replace those whose rewards are
    all equal (dynamic sampling, DAPO, arXiv 2503.14476)."""

    eval_every: PositiveInt = 5
    """Steps between evaluations on the held-out scenarios; the first is before step 1,
    the last after the last step."""
    eval_rollouts: PositiveInt = 1
    """Rollouts of each held-out scenario."""

    concurrency: PositiveInt = 64
    """Most rollouts at once."""
    rollout_timeout: PositiveFloat | None = 600.0
    """Seconds after which a rollout is stopped and counted as failed; None: never."""
    retries: Annotated[int, Field(ge=0)] = 0
    """How often a rollout that failed is played again."""
    max_exceptions: Annotated[int | float, Field(ge=0, allow_inf_nan=False)] = 0.25
    """Failed rollouts of a step that are put up with before the run stops: a number of
    them (int), or a share (float up to 1.0)."""
    keep_checkpoints: PositiveInt = 3
    """The latest checkpoints kept, besides the best by held-out reward."""

    @model_validator(mode="after")
    def _comparable(self) -> Self:
        if self.rollouts_per_group < 2:
            raise ValueError(
                f"rollouts_per_group is {self.rollouts_per_group}: a rollout is compared with the "
                "others of its group, so it must be at least 2"
            )
        return self


class CaptureConfig(Config):
    """Which of the agent's own HTTP calls inside a rollout go to the policy instead.

    Calls to the gateway itself always do. Others must be to one of these hosts and,
    if ``models`` is given, ask for one of these models; all else passes untouched.
    """

    hosts: tuple[str, ...] = ("api.openai.com",)
    """``name`` or ``name:port``, without scheme and path."""
    models: tuple[str, ...] | None = None
    """Model names that the agent asks for; None: any."""

    @model_validator(mode="after")
    def _only_hosts(self) -> Self:
        for host in self.hosts:
            if not host or "/" in host or host != host.strip():
                raise ValueError(
                    f"hosts has {host!r}: write only the host's name, 'api.openai.com' or "
                    "'localhost:8000'"
                )
        return self


def _problems(error: ValidationError) -> str:
    """What pydantic found, a clause for each field."""
    return "; ".join(
        f"{'.'.join(str(part) for part in found['loc'])} is {found['input']!r:.100}: {found['msg']}"
        if found["loc"]
        else found["msg"].removeprefix("Value error, ")
        for found in error.errors()
    )
