"""Names that become file names: checked, so that none can lead out of the run directory."""

from __future__ import annotations

import re

from art_core.errors import ConfigError

_NAME = re.compile(r"[A-Za-z0-9][A-Za-z0-9._-]{0,127}")


def check_name(field: str, value: object) -> str:
    """``value`` if it can safely name a file or folder.

    Raises:
        ConfigError: it isn't 1 to 128 letters, digits, dots, dashes and underscores
            beginning with a letter or digit.
    """
    if isinstance(value, str) and _NAME.fullmatch(value):
        return value
    raise ConfigError(
        f"{field} is {value!r:.200}",
        "It names files on disk: use 1 to 128 letters, digits, dots, dashes and underscores, "
        "a letter or digit first.",
    )


def step_name(step: int) -> str:
    """The file or folder name of a step; names sort as steps do."""
    return f"{step:05d}"
