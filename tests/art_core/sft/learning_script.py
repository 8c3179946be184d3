"""Learns from a few examples, to be killed: ``python learning_script.py ROOT BASE [POINT]``.

Run again without POINT it goes on to the end and prints what became of it as JSON.
"""

from __future__ import annotations

import asyncio
import hashlib
import json
import os
import signal
import sys
from pathlib import Path
from typing import Any

import art_core as art
from art_core.config import SftConfig
from art_core.rollouts.backend import SftProgress
from art_core.runs.checkpoints import CheckpointStore
from art_core.sft.run import PROGRESS_FOLDER, SftRun

CONFIG = SftConfig(epochs=3, batch_size=4, save_every=2, learning_rate=5e-3)


def example(number: int) -> dict[str, Any]:
    return {
        "messages": [
            {"role": "user", "content": f"Say {number}."},
            {"role": "assistant", "content": f"Here it is: {number}"},
        ]
    }


def die_at(point: str) -> None:
    """Of the second publication of progress, or the first of a whole step."""
    publish, update = CheckpointStore.publish, SftRun.update

    def dying_publish(store: CheckpointStore, step: int, write: Any, **options: Any) -> Any:
        progress = store.path.name == PROGRESS_FOLDER and step == 4
        if progress and point == "before the progress is saved":
            os.kill(os.getpid(), signal.SIGKILL)
        result = publish(store, step, write, **options)
        whole = store.path.name != PROGRESS_FOLDER and point == "right after the checkpoint"
        if whole or (progress and point == "after the progress is saved"):
            os.kill(os.getpid(), signal.SIGKILL)
        return result

    def dying_update(run: SftRun) -> Any:
        if run.done == 3 and point == "in an update":
            os.kill(os.getpid(), signal.SIGTERM)
        return update(run)

    CheckpointStore.publish = dying_publish  # type: ignore[method-assign]
    SftRun.update = dying_update  # type: ignore[method-assign]


async def main(root: Path, base: Path) -> None:
    done: list[SftProgress] = []
    async with art.LocalBackend(root, dtype="float32") as backend:
        model = art.TrainableModel(name="bot", project="p", base_model=str(base))
        await model.register(backend)
        if await model.get_step() == 0:
            await backend.train_sft(
                model,
                [example(number) for number in range(8)],
                CONFIG,
                validation=[example(100)],
                on_progress=done.append,
            )
        run = backend.run_directory(model)
        adapter = run.checkpoints.get(1).path / "adapter_model.safetensors"
        (row,) = run.metrics.read()
        result = {
            "step": await model.get_step(),
            "updates": len(done),
            "adapter": hashlib.sha256(adapter.read_bytes()).hexdigest(),
            "metrics": row.metrics,
        }
    print(json.dumps(result))


if __name__ == "__main__":
    if len(sys.argv) > 3:
        die_at(sys.argv[3])
    asyncio.run(main(Path(sys.argv[1]), Path(sys.argv[2])))
