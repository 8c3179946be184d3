"""Runs a command, and ends it and all its processes when whoever started this is gone.

Started as a script, with nothing but the standard library: ``python guard.py COMMAND…``,
as the leader of a process group of its own, its standard input a pipe whose other end the
starter holds open. A server whose starter was killed would otherwise go on, its memory
taken and its port in use.
"""

from __future__ import annotations

import os
import signal
import subprocess
import sys
import threading


def _end_with_starter() -> None:
    while os.read(0, 1024):
        pass
    os.killpg(os.getpgrp(), signal.SIGKILL)


def _ignore(number: int, frame: object) -> None:
    del number, frame


def _main() -> None:
    # It ends when the command does; a handler (unlike SIG_IGN) isn't inherited.
    signal.signal(signal.SIGTERM, _ignore)
    child = subprocess.Popen(sys.argv[1:], stdin=subprocess.DEVNULL)
    threading.Thread(target=_end_with_starter, daemon=True).start()
    code = child.wait()
    sys.exit(code if code >= 0 else 128 - code)


if __name__ == "__main__":
    _main()
