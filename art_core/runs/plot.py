# pyright: reportUnknownMemberType=false
"""The picture of a run: reward over training steps."""

from __future__ import annotations

from collections.abc import Sequence
from io import BytesIO
from math import isfinite
from pathlib import Path
from typing import TYPE_CHECKING

from art_core.errors import MissingExtraError
from art_core.runs.files import write_whole
from art_core.runs.metrics import TRAIN_SPLIT, VALIDATION_SPLIT, MetricsRow

if TYPE_CHECKING:
    from matplotlib.axes import Axes

_TRAIN_COLOUR = "#3b6fb6"
_VALIDATION_COLOUR = "#d1495b"
_INK = "#333333"
_GRID = "#e6e6e6"


def plot_rewards(rows: Sequence[MetricsRow], path: Path, *, title: str) -> None:
    """Draw the reward curve into a PNG file.

    The line is the mean reward of the training rollouts, the band around it the mean
    standard deviation inside their groups, the dots the held-out split. Rollouts that
    step ``s`` was trained on were sampled by the policy of step ``s - 1``, and are drawn there.

    Raises:
        MissingExtraError: matplotlib isn't installed.
        StorageError: the file couldn't be written.
    """
    try:
        # The canvas is used directly: pyplot would keep the figure in a global registry.
        from matplotlib.backends.backend_agg import FigureCanvasAgg
        from matplotlib.figure import Figure
        from matplotlib.ticker import MaxNLocator
    except ImportError as error:
        raise MissingExtraError(
            "the reward curve needs matplotlib", 'Install it: pip install "art-core[train]".'
        ) from error
    figure = Figure(figsize=(8, 4.5), dpi=150, layout="constrained")
    canvas = FigureCanvasAgg(figure)
    axes = figure.add_subplot()
    _draw_training(axes, rows)
    _draw_validation(axes, rows)
    axes.set_title(title, loc="left", color=_INK, fontweight="bold", pad=12)
    axes.set_xlabel("training steps taken", color=_INK)
    axes.set_ylabel("reward", color=_INK)
    axes.xaxis.set_major_locator(MaxNLocator(integer=True))
    axes.grid(axis="y", color=_GRID)
    axes.set_axisbelow(True)
    axes.margins(x=0.04, y=0.12)
    axes.spines[["top", "right"]].set_visible(False)
    axes.spines[["left", "bottom"]].set_color("#999999")
    axes.tick_params(colors=_INK)
    if axes.get_legend_handles_labels()[0]:
        axes.legend(frameon=False, loc="best", labelcolor=_INK)
    png = BytesIO()
    canvas.print_png(png)
    write_whole(path, [png.getvalue()])


def _draw_training(axes: Axes, rows: Sequence[MetricsRow]) -> None:
    points = [
        (row.step - 1, reward, row.metrics.get("reward_spread", 0.0))
        for row in rows
        if row.split == TRAIN_SPLIT and isfinite(reward := row.metrics.get("reward", float("nan")))
    ]
    if not points:
        return
    steps, rewards, spreads = zip(*points, strict=True)
    below = [reward - spread for reward, spread in zip(rewards, spreads, strict=True)]
    above = [reward + spread for reward, spread in zip(rewards, spreads, strict=True)]
    axes.fill_between(steps, below, above, color=_TRAIN_COLOUR, alpha=0.12, linewidth=0)
    axes.plot(
        steps,
        rewards,
        color=_TRAIN_COLOUR,
        linewidth=1.8,
        marker="o",
        markersize=2.5,
        label="training rollouts (± spread inside groups)",
    )


def _draw_validation(axes: Axes, rows: Sequence[MetricsRow]) -> None:
    points = [
        (row.step, reward)
        for row in rows
        if row.split == VALIDATION_SPLIT
        and isfinite(reward := row.metrics.get("reward", float("nan")))
    ]
    if not points:
        return
    from matplotlib.patheffects import withStroke

    steps, rewards = zip(*points, strict=True)
    axes.plot(
        steps,
        rewards,
        color=_VALIDATION_COLOUR,
        linewidth=1.8,
        linestyle=(0, (4, 2)),
        marker="o",
        markersize=7,
        markeredgecolor="white",
        label="held-out scenarios",
        zorder=3,
    )
    for step, reward in (points[0], points[-1]) if len(points) > 1 else points:
        axes.annotate(
            f"{reward:.2f}",
            (step, reward),
            xytext=(0, 9),
            textcoords="offset points",
            ha="center",
            color=_VALIDATION_COLOUR,
            fontweight="bold",
            path_effects=[withStroke(linewidth=3, foreground="white")],
            zorder=4,
        )
