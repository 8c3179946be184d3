"""Forks a run and says where the new one is."""

from __future__ import annotations

from pathlib import Path

from rich.console import Console
from rich.markup import escape

from art_core.cli.run_view import print_json
from art_core.errors import ConfigError
from art_core.runs import fork_run, open_run_readonly


def print_fork(root: Path, source: str, *, name: str, project: str | None, as_json: bool) -> None:
    """Fork ``RUN@STEP`` or the latest step of ``RUN``.

    Raises:
        ConfigError: the step isn't a number.
        RunError: see `fork_run`.
    """
    run_name, at, text = source.rpartition("@")
    if at and not text.isdecimal():
        raise ConfigError(f"the step of {source!r} is {text!r}", "Write RUN@STEP: shop/bot@12.")
    origin = open_run_readonly(run_name if at else source, root)
    step = int(text) if at else origin.step
    fork = fork_run(origin, step, root=root, project=project or origin.identity.project, model=name)
    if as_json:
        print_json({"path": str(fork.path), "run_id": fork.identity.run_id, "step": step})
        return
    Console().print(
        f"{escape(str(fork.path))} begins at step {step} of {escape(str(origin.path))}. "
        f"Train it as TrainableModel(name={name!r}), with whatever settings.",
        highlight=False,
        soft_wrap=True,
    )
