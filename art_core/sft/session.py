"""Runs a warm start beside a running event loop, and shows how far it is."""

from __future__ import annotations

import asyncio
from collections.abc import Generator
from contextlib import contextmanager

from art_core.rollouts.attempts import to_its_end
from art_core.rollouts.backend import OnSftProgress, SftProgress
from art_core.rollouts.progress import new_progress
from art_core.sft.run import SftRun


async def learn(run: SftRun, on_progress: OnSftProgress) -> dict[str, float]:
    """Make all updates that are left; returns the figures of the whole.

    If this is cancelled, the update that is under way is finished and the progress saved.
    """
    while run.done < run.updates:
        try:
            metrics = await to_its_end(asyncio.to_thread(run.update))
        except asyncio.CancelledError:
            await asyncio.to_thread(run.save)
            raise
        on_progress(SftProgress(done=run.done, total=run.updates, loss=metrics.loss))
    return await asyncio.to_thread(run.finish)


@contextmanager
def shown(name: str, on_progress: OnSftProgress | None) -> Generator[OnSftProgress]:
    """Who is told of the progress: ``on_progress``, or else a bar that is there while inside."""
    if on_progress is not None:
        yield on_progress
        return
    with new_progress() as bars:
        task = bars.add_task(f"{name}: learning from examples", total=None, figures="")

        def show(progress: SftProgress) -> None:
            bars.update(
                task,
                total=progress.total,
                completed=progress.done,
                figures=f"loss {progress.loss:.4f}",
            )

        yield show
