"""Seconds that ``import art_core`` takes over a bare interpreter.

python -m benchmarks.imports [--json]
"""

from __future__ import annotations

import statistics
import subprocess
import sys
import time

from benchmarks.report import report

RUNS = 11


def seconds(code: str) -> float:
    started = time.perf_counter()
    subprocess.run([sys.executable, "-c", code], check=True)
    return time.perf_counter() - started


def main() -> None:
    bare: list[float] = []
    imported: list[float] = []
    for _ in range(RUNS):
        bare.append(seconds("pass"))
        imported.append(seconds("import art_core"))
    report(
        "imports",
        {"seconds": statistics.median(imported) - statistics.median(bare)},
        setup={"runs": RUNS, "bare_seconds": statistics.median(bare)},
    )


if __name__ == "__main__":
    main()
