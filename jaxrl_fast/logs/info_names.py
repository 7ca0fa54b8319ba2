"""Names of the numbers in a host environment's info, before the log renames them.

Without JAX: the processes of host environments import it.
"""

from __future__ import annotations

from typing import Any

INSIDE, NO_STRING = "\0", "\1"


def of_key(key: Any) -> str:
    """Return the name of an info's key; a key that is no string gets a mark."""
    return key if isinstance(key, str) else f"{key}{NO_STRING}"


def within(name: str, inner: str) -> str:
    """Return the name of `inner` in a nested dict called `name`."""
    return f"{name}{INSIDE}{inner}"
