"""A folder that tools may change, the same at the beginning of each rollout."""

from __future__ import annotations

import shutil
import tempfile
from pathlib import Path

from art_core.errors import ConfigError, StorageError


class Sandbox:
    """A copy of a template folder, in a temporary place of its own."""

    def __init__(self, template: Path) -> None:
        if not template.is_dir():
            raise ConfigError(
                f"sandbox is {str(template)!r}, which is no folder", "Give a folder to copy."
            )
        self._template = template
        try:
            self._home = Path(tempfile.mkdtemp(prefix="art-mcp-"))
        except OSError as error:
            raise StorageError(f"no sandbox can be made: {error}", "Make room.") from error
        self.path = self._home / template.resolve().name

    def reset(self) -> None:
        """Make it what the template is; links are copied as links.

        Raises:
            StorageError: it can't be written.
        """
        try:
            if self.path.exists():
                for entry in self.path.iterdir():
                    if entry.is_dir() and not entry.is_symlink():
                        shutil.rmtree(entry)
                    else:
                        entry.unlink()
            shutil.copytree(self._template, self.path, symlinks=True, dirs_exist_ok=True)
        except (OSError, shutil.Error) as error:
            raise StorageError(
                f"the sandbox {self.path} can't be reset: {error}", "Make room, or free the files."
            ) from error

    def remove(self) -> None:
        shutil.rmtree(self._home, ignore_errors=True)
