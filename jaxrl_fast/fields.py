"""`setting(...)`: a dataclass field that knows its valid range and its help text, and the check of a whole object."""

from __future__ import annotations

import dataclasses
import math
from typing import Any

import numpy as np

from jaxrl_fast.errors import ConfigError, check_choice, check_float, check_int


def setting(
    default: Any,
    help: str = "",
    *,
    low: float | None = None,
    high: float | None = None,
    open_low: bool = False,
    choices: tuple | None = None,
    static: bool | None = None,
) -> Any:
    """A field with its range: `low <= value <= high` (`low < value` with `open_low`), or one of `choices`."""
    metadata: dict[str, Any] = {"help": help, "low": low, "high": high, "open_low": open_low, "choices": choices}
    if static is not None:
        metadata["static"] = static
    return dataclasses.field(default=default, metadata=metadata)


def check_settings(obj: Any, prefix: str = "") -> None:
    """Check every field of a frozen dataclass made of `setting`s; call it in `__post_init__`.

    A float field also takes a tracer or a batch of values, for a sweep. Ints given for float fields become floats.
    """
    for f in dataclasses.fields(obj):
        value, meta = getattr(obj, f.name), f.metadata
        kind = f.type if isinstance(f.type, str) else getattr(f.type, "__name__", "")
        name = prefix + f.name
        low, high = meta.get("low"), meta.get("high")
        if meta.get("choices") is not None:
            check_choice(name, value, meta["choices"])
        elif kind == "float":
            if isinstance(value, (str, bool)) or value is None:
                raise ConfigError(name, value, "a number")
            if isinstance(value, (int, float, np.integer, np.floating)):
                check_float(
                    name, value, -math.inf if low is None else low, math.inf if high is None else high,
                    meta.get("open_low", False),
                )  # fmt: skip
                object.__setattr__(obj, f.name, float(value))
        elif kind == "int":
            check_int(name, value, int(1 if low is None else low), int(2**31 - 1 if high is None else high))
            object.__setattr__(obj, f.name, int(value))
        elif kind == "bool":
            if not isinstance(value, (bool, np.bool_)):
                raise ConfigError(name, value, "True or False")
            object.__setattr__(obj, f.name, bool(value))
        elif kind.startswith("tuple[int"):
            values = tuple(value) if isinstance(value, (tuple, list)) else None
            if values is None or not all(isinstance(v, int) and not isinstance(v, bool) and v > 0 for v in values):
                raise ConfigError(name, value, "a tuple of positive integers")
            object.__setattr__(obj, f.name, values)
