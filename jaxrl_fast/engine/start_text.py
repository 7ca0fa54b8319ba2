"""The text of a run's `start_from` in config.json."""

from __future__ import annotations

import os
from pathlib import Path
from typing import Any

from jaxrl_fast.errors import ConfigError

IN_MEMORY = "<parameters in memory"  # how it begins for a start that is no directory


def start_text(source: Any) -> Any:
    """Return words for a start in memory, with its run's path; others as they are."""
    if isinstance(source, (str, Path, type(None))):
        return source
    path = getattr(source, "path", None)
    of = f" of {os.path.abspath(path)}" if isinstance(path, Path) else ""
    return f"{IN_MEMORY}{of}>"


def check_start(name: str, value: Any) -> str:
    """Return the absolute path of a start, or its words. Raises ConfigError for other values."""
    if not isinstance(value, (str, Path)):
        raise ConfigError(name, value, "a run directory, or None")
    return value if str(value).startswith(IN_MEMORY) else os.path.abspath(value)
