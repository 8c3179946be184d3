from __future__ import annotations

import os
import signal
import subprocess
import sys
import textwrap
import threading
from collections.abc import Callable, Generator
from contextlib import contextmanager, suppress
from pathlib import Path

import pytest

from art_core.errors import RunLockedError
from art_core.runs import RunDirectory, RunReader

MakeRun = Callable[..., RunDirectory]

HOLD = """
    import os, sys, time
    from pathlib import Path
    from art_core.runs import RunDirectory
    run = RunDirectory.open(Path(sys.argv[1]), project="shop", model="bot", base_model="tiny",
                            base_digest="d1")
    if sys.argv[2] == "plain" or os.fork() == 0:
        print("open", flush=True)
    time.sleep(60)
"""


@contextmanager
def holder(root: Path, *, fork: bool = False) -> Generator[subprocess.Popen[str]]:
    """Another process that has the run open; killed at the end."""
    process = subprocess.Popen(
        [sys.executable, "-c", textwrap.dedent(HOLD), str(root), "fork" if fork else "plain"],
        stdout=subprocess.PIPE,
        text=True,
        start_new_session=True,
    )
    assert process.stdout is not None
    try:
        assert process.stdout.readline() == "open\n"
        yield process
    finally:
        with suppress(ProcessLookupError):
            os.killpg(process.pid, signal.SIGKILL)
        process.stdout.close()
        process.wait()


def test_a_run_that_another_process_has_open_is_refused_until_it_is_gone(
    make_run: MakeRun, tmp_path: Path
) -> None:
    with holder(tmp_path / ".art") as process:
        with pytest.raises(RunLockedError, match=f"in use by process {process.pid} on "):
            make_run()
        assert RunReader(tmp_path / ".art" / "shop" / "bot").active
        os.kill(process.pid, signal.SIGKILL)
        process.wait()
        assert not RunReader(tmp_path / ".art" / "shop" / "bot").active
        make_run()


def test_a_forked_child_that_outlives_its_parent_does_not_keep_the_lock(
    make_run: MakeRun, tmp_path: Path
) -> None:
    with holder(tmp_path / ".art", fork=True) as process:
        os.kill(process.pid, signal.SIGKILL)
        process.wait()
        make_run()


def test_a_second_opener_in_the_same_process_is_refused(make_run: MakeRun) -> None:
    run = make_run()
    with pytest.raises(RunLockedError):
        make_run()
    with pytest.raises(RunLockedError):
        make_run(fresh=True)
    run.close()
    make_run()


def test_it_may_be_closed_by_another_thread(make_run: MakeRun) -> None:
    run = make_run()
    thread = threading.Thread(target=run.close)
    thread.start()
    thread.join()
    make_run()
