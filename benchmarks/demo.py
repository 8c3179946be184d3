"""What ``art demo`` reaches, over three seeds.

    python -m benchmarks.demo [--json]

Each seed is a process of its own with a run directory of its own. Installing
(``make demo`` does it first) isn't part of the times.
"""

from __future__ import annotations

import json
import subprocess
import sys
import tempfile
import time
from pathlib import Path
from typing import Any

from benchmarks.report import report

SEEDS = (0, 1, 2)


def run_demo(seed: int, root: str) -> dict[str, Any]:
    """The demo's own report, and its wall time from start to end."""
    art = Path(sys.executable).with_name("art")
    started = time.perf_counter()
    result = subprocess.run(
        [art, "demo", "--seed", str(seed), "--root", root, "--json"],
        stdout=subprocess.PIPE,
        check=True,
    )
    return {**json.loads(result.stdout), "wall": time.perf_counter() - started}


def main() -> None:
    with tempfile.TemporaryDirectory(prefix="art-demo-") as root:
        runs = [run_demo(seed, root) for seed in SEEDS]
    report(
        "demo",
        {
            "seconds": [run["wall"] for run in runs],
            "training_seconds": [run["training_seconds"] for run in runs],
            "base": [run["base"]["retrieval"] for run in runs],
            "trained": [run["trained"]["retrieval"] for run in runs],
            "base_answers": [run["base"]["correct"] for run in runs],
            "trained_answers": [run["trained"]["correct"] for run in runs],
            "engine_tokens_per_second": [run["engine_tokens_per_second"] for run in runs],
            "trainer_tokens_per_second": [run["trainer_tokens_per_second"] for run in runs],
            "peak_memory_gib": [run["peak_memory_bytes"] / 2**30 for run in runs],
        },
        setup={
            "seeds": list(SEEDS),
            "steps": runs[0]["steps"],
            "held_out_questions": runs[0]["held_out_questions"],
            "copying_retrieval": runs[0]["copying"]["retrieval"],
            "copying_answers": runs[0]["copying"]["correct"],
        },
    )


if __name__ == "__main__":
    main()
