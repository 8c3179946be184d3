"""``art serve`` as a process of its own."""

from __future__ import annotations

import os
import re
import signal
import subprocess
import sys
import threading
import time
from pathlib import Path

_SERVE = "from art_core.cli.main import main; main()"


class ServerProcess:
    """A real server, which tests may stop, kill and start again on the same port."""

    def __init__(self, root: Path, base_model: Path, *, port: int = 0) -> None:
        self.root = root
        self._base_model = base_model
        self._port = port
        self.url = ""
        self.lines: list[str] = []

    def start(self, *, code: str = _SERVE, wait: bool = True) -> ServerProcess:
        arguments = ["serve", "--root", str(self.root), "--port", str(self._port)]
        arguments += ["--base-model", str(self._base_model), "--dtype", "float32"]
        self._process = subprocess.Popen(
            [sys.executable, "-c", code, *arguments],
            stderr=subprocess.PIPE,
            text=True,
            env={**os.environ, "COLUMNS": "400", "OMP_NUM_THREADS": "1"},
        )
        self._ready = threading.Event()
        self._reader = threading.Thread(target=self._read, daemon=True)
        self._reader.start()
        if wait:
            assert self._ready.wait(120), "\n".join(self.lines)
            assert self.url, "\n".join(self.lines)
        return self

    def _read(self) -> None:
        assert self._process.stderr is not None
        with self._process.stderr as lines:
            for line in lines:
                self.lines.append(line.rstrip())
                found = re.search(r"serving on (http://\S+)", line)
                if found:
                    self.url = found[1]
                    self._port = int(self.url.rpartition(":")[2])
                    self._ready.set()
        self._ready.set()

    def kill(self) -> None:
        """As the kernel would."""
        self._process.kill()
        self._process.wait(30)
        self._reader.join()

    def stop(self) -> int:
        """Gracefully; the exit status."""
        if self._process.poll() is None:
            self._process.send_signal(signal.SIGTERM)
        status = self._process.wait(60)
        self._reader.join()
        return status

    def wait_for(self, text: str, seconds: float = 60) -> None:
        """Until a line with ``text`` was printed."""
        until = time.monotonic() + seconds
        while not any(text in line for line in self.lines):
            assert time.monotonic() < until, "\n".join(self.lines)
            time.sleep(0.02)
