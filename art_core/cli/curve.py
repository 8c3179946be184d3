"""A reward curve made of characters."""

from __future__ import annotations

from collections.abc import Sequence
from math import isfinite

from rich.text import Text

Point = tuple[float, float]
"""A step and a value."""

HEIGHT = 10
TRAINING, HELD_OUT = "·", "●"


def draw_curve(training: Sequence[Point], held_out: Sequence[Point], *, width: int = 60) -> Text:
    """Both series over the steps, on one scale; points that aren't finite are left out."""
    series = (
        (TRAINING, "blue", [p for p in training if isfinite(p[1])]),
        (HELD_OUT, "bold red", [p for p in held_out if isfinite(p[1])]),
    )
    points = [point for _, _, some in series for point in some]
    if not points:
        return Text("no rewards yet", style="dim")
    first, last = min(step for step, _ in points), max(step for step, _ in points)
    low, high = min(value for _, value in points), max(value for _, value in points)
    cells: dict[tuple[int, int], tuple[str, str]] = {}
    for mark, style, some in series:  # held-out last: it's drawn over training
        for step, value in some:
            column = round((step - first) / (last - first or 1) * (width - 1))
            row = round((high - value) / (high - low or 1) * (HEIGHT - 1))
            cells[row, column] = (mark, style)
    picture = Text()
    for row in range(HEIGHT):
        value = high - (high - low) * row / (HEIGHT - 1)
        picture.append(f"{value:8.3f} ┤" if row in (0, HEIGHT - 1) else f"{'':8} │", style="dim")
        for column in range(width):
            mark, style = cells.get((row, column), (" ", ""))
            picture.append(mark, style=style)
        picture.append("\n")
    picture.append(f"{'':8} └{'─' * width}\n", style="dim")
    picture.append(f"{'':10}{first:<{width // 2}g}{last:>{width - width // 2}g}\n", style="dim")
    picture.append(f"{'':10}{TRAINING} training  ", style="blue")
    picture.append(f"{HELD_OUT} held out", style="bold red")
    return picture
