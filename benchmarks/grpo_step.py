"""A GRPO step on a prefix tree against the ways others compute it.

    python -m benchmarks.grpo_step [--json] [--shapes turns single_turn long_turns sub_agents]

SmolLM2-135M with LoRA of rank 8 on all linear layers, in the dtype that is fastest on this
machine. On the shape ``turns`` (8 rollouts of 4 turns of 40 sampled and 60 observed
tokens behind a shared prompt of 600):

- ``vs_row_per_turn``, ``vs_padded``, ``vs_trl``: their time over ours; a row per turn and a
  row per rollout with full logits, both in plain transformers and PEFT, and TRL's own loss
  path on the latter's rows. Off CUDA, TRL takes parts of its head in fp32, so where we
  compute in bfloat16 ``vs_trl`` says more about that than about trees.
- ``vs_causal``: our time over that of a plain causal step on one row of as many tokens as
  ours computes, with logits at as many places. Attention in a long row is dear:
  ``vs_causal_rows`` is the same over rows of 1,024 tokens at most.
- ``memory_vs_padded``: peak memory of the process over that of the padded step's.
- ``cpu_<figure>``: ratios of CPU seconds, which other work on the machine disturbs less.

Other shapes have the same figures as ``<shape>_<figure>``. Every variant runs in a process
of its own, in turn, ``--rounds`` times (the row per turn, by far the slowest, once);
figures are ratios of medians.
"""

from __future__ import annotations

import argparse
import json
import resource
import statistics
import subprocess
import sys
import time
from collections import defaultdict
from typing import NamedTuple

from benchmarks.grpo_shapes import SHAPES, tree_size
from benchmarks.report import Figure, report

NAMES = ("tree", "causal", "causal_rows", "trl", "padded", "row_per_turn")
ONCE = ("row_per_turn",)
MODEL = "smollm2-135m"


class Measured(NamedTuple):
    seconds: float
    cpu_seconds: float
    """Of all threads."""
    peak_bytes: float


def measure(variant: str, shape: str) -> Measured:
    """One step, here, after a tiny one."""
    from art_core.weights import resolve
    from art_core.weights.loading import load
    from benchmarks.grpo_variants import VARIANTS, warm_up

    step = VARIANTS[variant](load(resolve(MODEL)))
    group = SHAPES[shape]()
    step(warm_up())
    started, cpu_started = time.perf_counter(), time.process_time()
    step(group)
    seconds, cpu = time.perf_counter() - started, time.process_time() - cpu_started
    peak = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss
    return Measured(seconds, cpu, peak * (1 if sys.platform == "darwin" else 1024))


def measure_apart(variant: str, shape: str) -> Measured:
    """`measure` in a fresh process."""
    command = [sys.executable, "-m", "benchmarks.grpo_step", "--only", variant, "--shapes", shape]
    result = subprocess.run(command, check=True, stdout=subprocess.PIPE, text=True)
    return Measured(*json.loads(result.stdout.splitlines()[-1]))


def figures_of(runs: dict[str, list[Measured]], prefix: str) -> dict[str, Figure]:
    median = {
        name: Measured(*(statistics.median(column) for column in zip(*of, strict=True)))
        for name, of in runs.items()
    }
    tree = median["tree"]
    figures: dict[str, Figure] = {}
    for kind, field in (("", "seconds"), ("cpu_", "cpu_seconds")):
        ours = getattr(tree, field)
        for name, theirs in median.items():
            if name.startswith("causal"):
                figures[f"{prefix}{kind}vs_{name}"] = ours / getattr(theirs, field)
            elif name != "tree":
                figures[f"{prefix}{kind}vs_{name}"] = getattr(theirs, field) / ours
    figures[f"{prefix}memory_vs_padded"] = tree.peak_bytes / median["padded"].peak_bytes
    for name, of in median.items():
        figures[f"{prefix}seconds_{name}"] = of.seconds
        figures[f"{prefix}cpu_seconds_{name}"] = of.cpu_seconds
        figures[f"{prefix}gigabytes_{name}"] = of.peak_bytes / 1e9
    return figures


def main() -> None:
    parser = argparse.ArgumentParser(description=(__doc__ or "").splitlines()[0])
    parser.add_argument("--json", action="store_true", help="print one JSON object")
    parser.add_argument("--shapes", nargs="+", choices=SHAPES, default=["turns"])
    parser.add_argument("--rounds", type=int, default=2)
    parser.add_argument("--only", choices=NAMES, help="time one variant once, in this process")
    arguments = parser.parse_args()
    if arguments.only:
        print(json.dumps(measure(arguments.only, arguments.shapes[0])))
        return
    figures: dict[str, Figure] = {}
    tokens: dict[str, int] = {}
    for shape in arguments.shapes:
        runs: defaultdict[str, list[Measured]] = defaultdict(list)
        for turn in range(arguments.rounds):
            for name in NAMES if turn == 0 else (n for n in NAMES if n not in ONCE):
                runs[name].append(measure_apart(name, shape))
                print(shape, name, *runs[name][-1], file=sys.stderr, flush=True)
        figures |= figures_of(runs, "" if shape == "turns" else f"{shape}_")
        tokens[shape], _ = tree_size(SHAPES[shape]())
    report(
        "grpo_step",
        figures,
        setup={"model": MODEL, "rounds": arguments.rounds, "tokens_computed": tokens},
    )


if __name__ == "__main__":
    main()
