"""A vLLM server as a child process."""

from __future__ import annotations

import contextlib
import os
import signal
import socket
import subprocess
import sys
import time
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import BinaryIO

from art_core.engines.vllm import guard
from art_core.engines.vllm.command import HOST
from art_core.engines.vllm.failures import explain, last_error
from art_core.errors import EngineError, EngineStartError
from art_core.runs.files import make_folder, storage_errors

_GRACE_SECONDS = 10.0
_LOG_TAIL_BYTES = 64 << 10


class ChildServer:
    """Starts the command in a process group of its own and keeps what it prints.

    Args:
        command: makes the command line, given the port.
        environment: all of the child's environment variables.
        folder: where ``server.log`` goes, and that of the start before it
            (``server.previous.log``).
        port: 0 takes a free one at every start.
    """

    def __init__(
        self,
        command: Callable[[int], list[str]],
        environment: Mapping[str, str],
        *,
        folder: Path,
        port: int,
        start_timeout: float,
    ) -> None:
        self.start_timeout = start_timeout
        self.restarts = True
        self.log = folder / "server.log"
        self._command = command
        self._environment = dict(environment)
        self._asked_port = port
        self._port = port
        self._process: subprocess.Popen[bytes] | None = None
        self._log: BinaryIO | None = None

    @property
    def url(self) -> str:
        return f"http://{HOST}:{self._port}"

    @property
    def process_id(self) -> int | None:
        """Of the process group, while there is one."""
        return None if self._process is None else self._process.pid

    def start(self) -> None:
        """Start the process; whether it serves is for others to see.

        Raises:
            EngineStartError: something else listens on the port.
            StorageError: the log can't be written.
        """
        self.stop()
        self._port = self._asked_port or _free_port()
        if not _is_free(self._port):
            raise EngineStartError(
                f"port {self._port} is in use", "Free it, or leave port out for a free one."
            )
        make_folder(self.log.parent)
        with storage_errors("write", self.log):
            if self.log.exists():
                self.log.replace(self.log.with_name("server.previous.log"))
            # Kept open to read: another backend on this folder may move it away. Appending,
            # so that where we read from doesn't move what the server writes.
            self._log = self.log.open("a+b")
        self._process = subprocess.Popen(
            [sys.executable, "-I", guard.__file__, *self._command(self._port)],
            env=self._environment,
            stdin=subprocess.PIPE,
            stdout=self._log,
            stderr=subprocess.STDOUT,
            start_new_session=True,
        )

    def failure(self) -> EngineError | None:
        """Why the process has ended; None while it runs."""
        if self._process is None:
            return EngineStartError("the vLLM server hasn't been started")
        code = self._process.poll()
        return None if code is None else explain(self.tail(), code, self.log)

    def last_error(self) -> str:
        """What it printed last of an exception; may be empty."""
        return last_error(self.tail())

    def tail(self) -> str:
        """The end of the log."""
        if self._log is None:
            return ""
        self._log.seek(max(0, self._log.seek(0, os.SEEK_END) - _LOG_TAIL_BYTES))
        return self._log.read().decode(errors="replace")

    def stop(self) -> None:
        """End the server and all processes it has started: ask, wait, then kill."""
        process, self._process = self._process, None
        if process is None:
            return
        _signal_group(process.pid, signal.SIGTERM)
        with contextlib.suppress(subprocess.TimeoutExpired):
            process.wait(_GRACE_SECONDS)
        # Its engine outlives a server that was killed, and holds the memory.
        _signal_group(process.pid, signal.SIGKILL)
        process.wait()
        if process.stdin is not None:
            process.stdin.close()
        _wait_for_group(process.pid)
        if self._log is not None:
            self._log.close()
            self._log = None


def _signal_group(group: int, which: signal.Signals) -> None:
    with contextlib.suppress(ProcessLookupError):
        os.killpg(group, which)


def _wait_for_group(group: int) -> None:
    """Killed processes take a moment to give their memory back."""
    deadline = time.monotonic() + _GRACE_SECONDS
    while time.monotonic() < deadline:
        try:
            os.killpg(group, 0)
        except ProcessLookupError:
            return
        time.sleep(0.02)


def _free_port() -> int:
    with socket.socket() as probe:
        probe.bind((HOST, 0))
        return int(probe.getsockname()[1])


def _is_free(port: int) -> bool:
    with socket.socket() as probe:
        probe.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
        try:
            probe.bind((HOST, port))
        except OSError:
            return False
        return True
