"""GRPOTrainer: steps, checkpoints, bad input."""
# pyright: reportUnknownMemberType=false, reportUnknownVariableType=false
# pyright: reportUnknownArgumentType=false, reportPrivateUsage=false

from __future__ import annotations

import json
import logging
import warnings
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any

import peft
import pytest
import torch
from openai.types.chat.chat_completion import Choice
from torch import Tensor
from transformers import AutoModelForCausalLM

from art_core.config import LoraConfig, StepConfig
from art_core.errors import (
    ConfigError,
    NonFiniteError,
    RewardError,
    RunDamagedError,
    TrajectoryError,
)
from art_core.grpo import GRPOTrainer, StepMetrics
from art_core.grpo.optimizer import learning_rate
from art_core.trajectories import Trajectory, TrajectoryGroup, TrajectoryStatus

Make = Callable[..., Any]


@pytest.fixture
def groups(history: Make, group: Make) -> list[TrajectoryGroup]:
    prompt = [7, 3, 9, 4]
    return [
        group(
            (1.0, [history([*prompt, 1, 2, 3, 50, 1], [4, 5, 8])]),
            (0.0, [history([*prompt, 1, 5, 3, 50, 2], [4, 5, 8])]),
            (0.0, [history([*prompt, 1, 5], [4, 5]), history([*prompt, 60, 8, 8], [5, 6])]),
            scenario_id="easy",
        ),
        group((1.0, [history([5, 6, 7], [1, 2])]), (1.0, [history([5, 6, 8], [1, 2])])),
    ]


def weights(trainer: GRPOTrainer) -> dict[str, Tensor]:
    return {n: p.detach().clone() for n, p in trainer._optimizer.parameters.items()}


def same(a: dict[str, Tensor], b: dict[str, Tensor]) -> bool:
    return a.keys() == b.keys() and all(torch.equal(a[name], b[name]) for name in a)


@pytest.mark.parametrize("setting", [{}, {"dropout": 0.3}, {"dora": True, "rslora": True}])
@pytest.mark.parametrize("updates", [1, 2])
def test_a_resumed_training_equals_an_undisturbed_one_to_the_bit(
    setting: dict[str, Any],
    updates: int,
    tiny_model: Make,
    groups: list[TrajectoryGroup],
    tmp_path: Path,
) -> None:
    config = StepConfig(
        learning_rate=1e-2,
        weight_decay=0.1,
        schedule="cosine",
        warmup_updates=1,
        schedule_updates=20,
        updates_per_batch=updates,
        kl_coefficient=0.1,
    )

    def new_trainer(seed: int) -> GRPOTrainer:
        return GRPOTrainer(
            tiny_model("llama"), lora=LoraConfig(**setting), config=config, seed=seed
        )

    undisturbed = new_trainer(seed=3)
    for _ in range(4):
        undisturbed.step(groups)
    first = new_trainer(seed=3)
    first.step(groups)
    first.step(groups)
    first.save(tmp_path)
    resumed = new_trainer(seed=4)  # the seed is part of the checkpoint
    resumed.load(tmp_path)
    assert resumed.step_index == 2
    resumed.step(groups)
    resumed.step(groups)
    assert same(weights(resumed), weights(undisturbed))
    assert same(resumed._optimizer.tensors(), undisturbed._optimizer.tensors())


def test_the_saved_adapter_is_pefts(
    tiny_model: Make, groups: list[TrajectoryGroup], tmp_path: Path
) -> None:
    trainer = GRPOTrainer(
        tiny_model("llama"),
        config=StepConfig(learning_rate=1e-2),
        base_name="tiny",
        base_digest="sha256:abc",
    )
    trainer.step(groups)
    trainer.save(tmp_path)
    names = {path.name for path in tmp_path.iterdir()}
    assert names == {
        "adapter_model.safetensors",
        "adapter_config.json",
        "optimizer.safetensors",
        "trainer.json",
    }
    config = json.loads((tmp_path / "adapter_config.json").read_text())
    assert (config["base_model_name_or_path"], config["revision"]) == ("tiny", "sha256:abc")
    with warnings.catch_warnings():  # PEFT reads a property that transformers has renamed
        warnings.simplefilter("ignore", FutureWarning)
        loaded = peft.PeftModel.from_pretrained(tiny_model("llama"), str(tmp_path))
    tokens = torch.tensor([[7, 3, 9, 4, 1, 2]])
    base = tiny_model("llama")(tokens).logits
    expected = loaded(tokens).logits
    assert not torch.allclose(expected, base, atol=1e-4)
    model: Any = trainer._policy.model
    model.set_attn_implementation("sdpa")
    torch.testing.assert_close(model(tokens).logits, expected)


def test_full_fine_tuning_saves_a_whole_model(
    tiny_model: Make, groups: list[TrajectoryGroup], tmp_path: Path
) -> None:
    base = tiny_model("llama")
    before = {n: p.clone() for n, p in base.named_parameters()}
    storage = {p.data_ptr() for p in base.parameters()}
    trainer = GRPOTrainer(base, lora=None, config=StepConfig(learning_rate=1e-2))
    assert storage.isdisjoint(p.data_ptr() for p in trainer._optimizer.parameters.values())
    trainer.step(groups)
    trainer.save(tmp_path)
    after = dict(AutoModelForCausalLM.from_pretrained(tmp_path).named_parameters())
    assert all(torch.equal(after[n], p) for n, p in trainer._optimizer.parameters.items())
    assert not any(torch.equal(after[n], before[n]) for n in before)
    again = GRPOTrainer(tiny_model("llama"), lora=None)
    again.load(tmp_path)
    assert same(weights(again), weights(trainer))
    with pytest.raises(ConfigError, match="every weight is trained"):
        trainer.step(groups, StepConfig(kl_coefficient=0.1))


def test_metrics(tiny_model: Make, groups: list[TrajectoryGroup]) -> None:
    trainer = GRPOTrainer(tiny_model("llama"), config=StepConfig(learning_rate=1e-2))
    metrics = trainer.step(groups)
    assert isinstance(metrics, StepMetrics)
    flat = metrics.flat()
    assert all(type(value) is float for value in flat.values())
    assert flat["step"] == trainer.step_index == 1
    assert flat["applied"] == 1
    assert flat["reward_mean"] == pytest.approx(3 / 5)
    assert flat["reward/easy"] == pytest.approx(1 / 3)
    assert flat["groups_without_spread"] == 0.5
    assert flat["tokens_trained"] == 10
    assert flat["tokens_in_rows"] == 8 + 8 + 5 + 6
    # the prompt once; 1 2 3 50 | 5 3 50 | 60 8
    assert flat["tokens_computed"] == 4 + 1 + 3 + 3 + 2
    assert flat["ratio_p50"] == 1
    assert flat["sampler_gap_max"] >= flat["sampler_gap_mean"] > 0
    assert flat["entropy"] > 0
    assert flat["grad_norm"] > 0


def test_groups_without_spread_change_nothing(tiny_model: Make, history: Make, group: Make) -> None:
    trainer = GRPOTrainer(tiny_model("llama"), config=StepConfig(weight_decay=0.5))
    before = weights(trainer)
    flat: Any = group((1.0, [history([1, 2], [1])]), (1.0, [history([1, 3], [1])]))
    alone: Any = group((1.0, [history([1, 2], [1])]))
    empty: Any = TrajectoryGroup([])
    metrics = trainer.step([flat, alone, empty])
    assert not metrics.applied
    assert metrics.groups_without_spread == 1
    assert metrics.step == trainer.step_index == 1
    assert same(before, weights(trainer))


def test_failed_trajectories_have_no_part(tiny_model: Make, history: Make, group: Make) -> None:
    good = [(1.0, [history([1, 2], [1])]), (0.0, [history([1, 3], [1])])]
    failed = Trajectory(
        histories=[history([1, 4], [1])], status=TrajectoryStatus.FAILED, error="boom"
    )
    with_failed = group(*good)
    with_failed.trajectories.append(failed)
    results: list[dict[str, Tensor]] = []
    for groups in ([group(*good)], [with_failed]):
        trainer = GRPOTrainer(tiny_model("llama"), config=StepConfig(learning_rate=1e-2))
        trainer.step(groups)
        results.append(weights(trainer))
    assert same(*results)


@pytest.mark.parametrize("aggregation", ["rollout_mean", "token_mean", "constant"])
@pytest.mark.parametrize("objective", ["cispo", "grpo", "gspo", "reinforce"])
def test_a_rollouts_weight_does_not_depend_on_its_split_into_histories(
    aggregation: Any, objective: Any, tiny_model: Make, history: Make, group: Make
) -> None:
    tokens = [7, 3, 1, 2, 50, 51, 4, 5]
    other = (0.0, [history([7, 3, 9], [2])])
    whole = group((1.0, [history(tokens, [2, 3, 6, 7], [-1.0, -2.0, -3.0, -4.0])]), other)
    first, second = history(tokens[:4], [2, 3], [-1.0, -2.0]), history(tokens, [6, 7], [-3.0, -4.0])
    split = group((1.0, [first, second]), other)
    norms: list[float] = []
    for groups in ([whole], [split]):
        trainer = GRPOTrainer(tiny_model("llama"))
        config = StepConfig(aggregation=aggregation, objective=objective)
        norms.append(trainer.step(groups, config).grad_norm)
    assert norms[0] == pytest.approx(norms[1], rel=1e-5)


def test_a_sequence_ratio_does_not_depend_on_the_passes(
    tiny_model: Make, history: Make, group: Make
) -> None:
    """GSPO needs all of a rollout's tokens, wherever they were computed."""
    groups = [
        group(
            (1.0, [history([7, 3, 1, 2], [2, 3]), history([9, 9, 4, 5], [2, 3])]),
            (0.0, [history([7, 3, 2, 2], [2, 3]), history([9, 9, 5, 5], [2, 3])]),
        )
    ]
    results: list[dict[str, Tensor]] = []
    passes: list[int] = []
    for max_tokens in (None, 3):
        trainer = GRPOTrainer(tiny_model("llama"))
        config = StepConfig(
            objective="gspo",
            clip_low=0.5,
            clip_high=0.5,
            updates_per_batch=3,
            learning_rate=1e-3,
            max_tokens_per_pass=max_tokens,
        )
        metrics = trainer.step(groups, config)
        assert metrics.ratio_p99 != 1
        passes.append(metrics.passes)
        results.append(weights(trainer))
    assert passes == [1, 4]
    for name, expected in results[0].items():
        torch.testing.assert_close(results[1][name], expected, rtol=1e-3, atol=1e-5)


def test_kl_to_the_base_and_to_an_adapter(
    tiny_model: Make, groups: list[TrajectoryGroup], tmp_path: Path
) -> None:
    config = StepConfig(learning_rate=1e-2, kl_coefficient=0.1)
    trainer = GRPOTrainer(tiny_model("llama"), config=config)
    assert trainer.step(groups).kl == 0  # B is still 0: the policy is the base
    trainer.save(tmp_path)
    to_itself = config.model_copy(update={"kl_adapter": tmp_path})
    assert trainer.step(groups, to_itself).kl == pytest.approx(0, abs=1e-9)
    to_first, to_base = trainer.step(groups, to_itself).kl, trainer.step(groups).kl
    assert 0 < to_first < to_base
    trainer.save(tmp_path)
    names = {n.split(".")[-2] for n in peft.load_peft_weights(str(tmp_path))}
    assert names == {"lora_A", "lora_B"}  # the reference isn't saved along
    missing = config.model_copy(update={"kl_adapter": tmp_path / "nowhere"})
    with pytest.raises(ConfigError, match=r"kl_adapter is .*nowhere"):
        trainer.step(groups, missing)


def test_several_updates_per_batch_move_the_ratio(
    tiny_model: Make, groups: list[TrajectoryGroup]
) -> None:
    trainer = GRPOTrainer(tiny_model("llama"))
    config = StepConfig(objective="grpo", updates_per_batch=4, learning_rate=5e-2)
    metrics = trainer.step(groups, config)
    assert trainer._optimizer.updates == 4
    assert metrics.ratio_p01 < 1 < metrics.ratio_p99
    assert metrics.clip_share > 0


def exploding(history: Make, group: Make) -> list[TrajectoryGroup]:
    """Advantages beyond fp32 in one group, ordinary ones in the other."""
    bad = group((3e38, [history([1, 2], [1])]), (-3e38, [history([1, 3], [1])]))
    for index, trajectory in enumerate(bad):
        trajectory.rollout_id = f"bad-{index}"
    good = group((1.0, [history([4, 2], [1])]), (0.0, [history([4, 3], [1])]))
    return [good, bad]


@pytest.mark.parametrize("updates", [1, 2])
def test_a_step_that_is_not_finite_is_not_applied(
    updates: int, tiny_model: Make, history: Make, group: Make, tmp_path: Path
) -> None:
    folder = tmp_path / "quarantine"
    trainer = GRPOTrainer(tiny_model("llama"), quarantine=folder)
    before = weights(trainer)
    config = StepConfig(advantage="group_mean", updates_per_batch=updates)
    with pytest.raises(NonFiniteError, match=r"step 1 isn't finite: rollouts bad-0, bad-1"):
        trainer.step(exploding(history, group), config)
    assert trainer.step_index == 0
    assert same(before, weights(trainer))
    lines = (folder / "nonfinite-step-1.jsonl").read_text().splitlines()
    saved = [Trajectory.model_validate_json(line) for line in lines]
    assert [t.rollout_id for t in saved] == ["bad-0", "bad-1"]


def test_a_step_that_is_not_finite_may_be_skipped(
    tiny_model: Make, history: Make, group: Make, caplog: pytest.LogCaptureFixture
) -> None:
    trainer = GRPOTrainer(tiny_model("llama"))
    before = weights(trainer)
    config = StepConfig(advantage="group_mean", on_nonfinite="skip")
    with caplog.at_level(logging.WARNING, "art_core.grpo.trainer"):
        metrics = trainer.step(exploding(history, group), config)
    assert "rollouts bad-0, bad-1; the step is skipped" in caplog.text
    assert not metrics.applied
    assert same(before, weights(trainer))
    assert trainer.step(exploding(history, group)[:1]).applied


def test_a_gradient_that_only_overflows_on_its_way_down_is_traced_too(
    tiny_model: Make, history: Make, group: Make
) -> None:
    """The losses are finite; one rollout's gradient isn't."""
    trainer = GRPOTrainer(tiny_model("llama"))
    groups = [group((1.0, [history([1, 2], [1])]), (0.0, [history([1, 90], [1])]))]
    groups[0].trajectories[0].rollout_id = "the-one"
    original = trainer._policy.logprobs

    def explode(packed: Any) -> Any:
        current, entropy = original(packed)
        chosen = torch.as_tensor(packed.term_rollout) == 0
        if current.requires_grad and chosen.any():
            factor = torch.where(chosen, float("inf"), 1.0)
            current.register_hook(lambda grad: grad * factor)  # pyright: ignore
        return current, entropy

    trainer._policy.logprobs = explode
    with pytest.raises(NonFiniteError, match="rollouts the-one"):
        trainer.step(groups)


def take_the_reward(trajectory: Trajectory) -> None:
    trajectory.reward = None


def train_the_first_token(trajectory: Trajectory) -> None:
    history = trajectory.histories[0]
    history.loss_mask[0], history.logprobs[0], history.policy_versions[0] = True, -1.0, 0


def lose_a_logprob(trajectory: Trajectory) -> None:
    trajectory.histories[0].logprobs[4] = float("nan")


@pytest.mark.parametrize(
    ("spoil", "error", "said"),
    [
        (take_the_reward, RewardError, "has no reward"),
        (train_the_first_token, TrajectoryError, "position 0"),
        (lose_a_logprob, TrajectoryError, "logprobs is nan at position 4"),
    ],
)
def test_bad_trajectories(
    spoil: Callable[[Trajectory], None],
    error: type[Exception],
    said: str,
    tiny_model: Make,
    groups: list[TrajectoryGroup],
) -> None:
    trainer = GRPOTrainer(tiny_model("llama"))
    spoil(groups[0].trajectories[0])
    with pytest.raises(error, match=said):
        trainer.step(groups)
    assert trainer.step_index == 0


def test_choices_without_their_records_are_refused(tiny_model: Make) -> None:
    choice = Choice.model_validate(
        {"index": 0, "finish_reason": "stop", "message": {"role": "assistant", "content": "hi"}}
    )
    rollouts = [Trajectory(messages_and_choices=[choice], reward=r) for r in (0.0, 1.0)]
    with pytest.raises(TrajectoryError, match="holds Choices but no histories"):
        GRPOTrainer(tiny_model("llama")).step([TrajectoryGroup(rollouts)])


def test_targets_that_name_nothing_are_refused(tiny_model: Make) -> None:
    with pytest.raises(ConfigError, match=r"lora\.target_modules"):
        GRPOTrainer(tiny_model("llama"), lora=LoraConfig(target_modules=("no_such_layer",)))


@pytest.mark.parametrize("missing", ["trainer.json", "optimizer.safetensors"])
def test_a_checkpoint_that_lacks_a_file_is_refused(
    missing: str, tiny_model: Make, groups: list[TrajectoryGroup], tmp_path: Path
) -> None:
    trainer = GRPOTrainer(tiny_model("llama"))
    trainer.step(groups)
    trainer.save(tmp_path)
    (tmp_path / missing).unlink()
    with pytest.raises(RunDamagedError, match="isn't a whole checkpoint"):
        trainer.load(tmp_path)


def test_a_checkpoint_of_another_adapter_is_refused(
    tiny_model: Make, groups: list[TrajectoryGroup], tmp_path: Path
) -> None:
    trainer = GRPOTrainer(tiny_model("llama"), lora=LoraConfig(target_modules=("q_proj",)))
    trainer.step(groups)
    trainer.save(tmp_path)
    with pytest.raises(RunDamagedError, match="isn't an adapter of this model"):
        GRPOTrainer(tiny_model("llama")).load(tmp_path)


def test_learning_rate_schedules() -> None:
    def rates(config: StepConfig, updates: Sequence[int]) -> list[float]:
        return [learning_rate(update, config) for update in updates]

    constant = StepConfig(learning_rate=1.0, warmup_updates=4)
    assert rates(constant, [0, 1, 3, 4, 99]) == [0.25, 0.5, 1, 1, 1]
    linear = StepConfig(learning_rate=1.0, schedule="linear", warmup_updates=2, schedule_updates=12)
    assert rates(linear, [0, 2, 7, 12, 50]) == pytest.approx([0.5, 1, 0.5, 0, 0])
    cosine = StepConfig(learning_rate=1.0, schedule="cosine", schedule_updates=10)
    assert rates(cosine, [0, 5, 10]) == pytest.approx([1, 0.5, 0])
