"""SIGTERM ends a loop as Ctrl-C does: at a point from which it goes on."""

from __future__ import annotations

import asyncio
import signal
import threading
from collections.abc import Generator
from contextlib import contextmanager

EXIT_CODE = 128 + signal.SIGTERM


@contextmanager
def stop_on_sigterm() -> Generator[None]:
    """Cancel the running task on SIGTERM, and then exit the process.

    Does nothing outside of the main thread, where signals can't be handled, and where
    the program handles SIGTERM itself.

    Raises:
        SystemExit: SIGTERM came, and the task has ended.
    """
    task, loop = asyncio.current_task(), asyncio.get_running_loop()
    unhandled = signal.getsignal(signal.SIGTERM) is signal.SIG_DFL
    if task is None or not unhandled or threading.current_thread() is not threading.main_thread():
        yield
        return
    came = False

    def stop() -> None:
        nonlocal came
        came = True
        task.cancel()

    loop.add_signal_handler(signal.SIGTERM, stop)
    try:
        yield
    except asyncio.CancelledError:
        if came:
            raise SystemExit(EXIT_CODE) from None
        raise
    finally:
        loop.remove_signal_handler(signal.SIGTERM)
