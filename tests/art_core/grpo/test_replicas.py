"""Two processes give the gradient, and the weights, of one."""
# pyright: reportUnknownMemberType=false, reportUnknownVariableType=false
# pyright: reportUnknownArgumentType=false, reportPrivateUsage=false
# pyright: reportPrivateImportUsage=false

from __future__ import annotations

import os
import socket
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
import torch
from accelerate import Accelerator
from safetensors.torch import load_file, save_file
from transformers import LlamaConfig, LlamaForCausalLM, PreTrainedModel

from art_core.config import StepConfig
from art_core.grpo import GRPOTrainer
from art_core.trajectories import TrajectoryGroup

Make = Callable[..., Any]


def model_of(seed: int) -> PreTrainedModel:
    torch.manual_seed(seed)
    sizes: dict[str, Any] = {"vocab_size": 97, "hidden_size": 32, "intermediate_size": 48}
    config = LlamaConfig(**sizes, num_hidden_layers=2, num_attention_heads=4, num_key_value_heads=2)
    return LlamaForCausalLM(config).requires_grad_(False).eval()


def train(groups: list[TrajectoryGroup], objective: Any, accelerator: Accelerator | None) -> Any:
    trainer = GRPOTrainer(model_of(0), accelerator=accelerator)
    config = StepConfig(learning_rate=1e-3, objective=objective, clip_low=0.2, clip_high=0.2,
                        max_tokens_per_pass=8, kl_coefficient=0.1)  # fmt: skip
    metrics = [trainer.step(groups, config) for _ in range(2)]
    return metrics, {n: p.detach().clone() for n, p in trainer._optimizer.parameters.items()}


def replica(rank: int, port: int, folder: str, objective: str) -> None:
    os.environ |= {
        "RANK": str(rank), "LOCAL_RANK": str(rank), "WORLD_SIZE": "2",
        "MASTER_ADDR": "127.0.0.1", "MASTER_PORT": str(port), "ACCELERATE_USE_CPU": "true",
    }  # fmt: skip
    torch.set_num_threads(1)
    accelerator = Accelerator(cpu=True)
    assert accelerator.num_processes == 2
    lines = (Path(folder) / "groups.jsonl").read_text().splitlines()
    groups = [TrajectoryGroup.model_validate_json(line) for line in lines]
    metrics, weights = train(groups, objective, accelerator)
    figures = [
        torch.tensor([m.loss, m.grad_norm, m.ratio_p99, m.entropy, m.tokens_trained, m.kl])
        for m in metrics
    ]
    save_file(weights | {"figures": torch.stack(figures)}, Path(folder) / f"{rank}.safetensors")
    torch.distributed.destroy_process_group()


@pytest.mark.parametrize("objective", ["cispo", pytest.param("gspo", marks=pytest.mark.long)])
def test_two_processes_are_one(objective: str, history: Make, group: Make, tmp_path: Path) -> None:
    groups = [
        group(
            (1.0, [history([7, 3, 1, 2, 8], [2, 3, 4]), history([9, 9, 4, 5], [2, 3])]),
            (0.0, [history([7, 3, 2, 2], [2, 3]), history([9, 9, 5, 5], [2, 3])]),
        ),
        group((1.0, [history([4, 2], [1])]), (0.0, [history([4, 3, 6, 6, 6, 6], [1, 5])])),
    ]
    text = "".join(g.model_dump_json() + "\n" for g in groups)
    (tmp_path / "groups.jsonl").write_text(text)
    with socket.socket() as free:
        free.bind(("127.0.0.1", 0))
        port = free.getsockname()[1]
    spawn: Any = torch.multiprocessing.spawn
    spawn(replica, args=(port, str(tmp_path), objective), nprocs=2)
    metrics, expected = train(groups, objective, None)
    figures = torch.tensor(
        [[m.loss, m.grad_norm, m.ratio_p99, m.entropy, m.tokens_trained, m.kl] for m in metrics]
    )
    for rank in (0, 1):
        result = load_file(tmp_path / f"{rank}.safetensors")
        torch.testing.assert_close(result.pop("figures"), figures, rtol=1e-4, atol=1e-6)
        assert result.keys() == expected.keys()
        for name, weights in expected.items():
            torch.testing.assert_close(result[name], weights, rtol=1e-4, atol=1e-6)
