"""`setting(...)`: a dataclass field that knows its valid range and its help text, and the check of a whole object."""

from __future__ import annotations

import dataclasses
import math
from collections.abc import Callable
from typing import Any

import numpy as np

from jaxrl_fast.errors import ConfigError, check_choice, check_float, check_int, is_number


def setting(
    default: Any,
    help: str = "",
    *,
    low: float | None = None,
    high: float | None = None,
    open_low: bool = False,
    open_high: bool = False,
    choices: tuple | None = None,
    static: bool | None = None,
    convert: Callable[[str, Any], Any] | None = None,
    kw_only: bool = False,
) -> Any:
    """Declare a field with its default, its help and its range.

    `low <= value <= high` (`<` with `open_low`, `open_high`), or one of `choices`.

    convert: `convert(name, value)` returns the value that is kept, before any other check; what is callable then is no
    number to be checked. It must take what it returns.

    An int whose default is positive, without `low`, is a size: at least 1. A plain dataclass field has no bound.
    """
    metadata: dict[str, Any] = {"help": help, "low": low, "high": high, "choices": choices}
    metadata |= {"open_low": open_low, "open_high": open_high, "convert": convert}
    if static is not None:
        metadata["static"] = static
    return dataclasses.field(default=default, metadata=metadata, kw_only=kw_only)


def type_name(field: dataclasses.Field) -> str:
    """A field's annotation as it is written: "int", "tuple[int, ...]"; also without `from __future__ import annotations`."""
    kind = field.type
    text = kind if isinstance(kind, str) else kind.__name__ if isinstance(kind, type) else str(kind)
    text = text.removeprefix("typing.").replace("Tuple[", "tuple[")
    return text if set(text) & set("[|") else text.rpartition(".")[2]  # "jax.Array" is "Array"


def _is_size(field: dataclasses.Field) -> bool:
    """Whether it was made by `setting` with a positive default, or a tuple of them."""
    values = field.default if isinstance(field.default, tuple) else (field.default,)
    return "low" in field.metadata and all(isinstance(v, int) and v > 0 for v in values)


def check_settings(obj: Any, prefix: str = "") -> None:
    """Check every field of a frozen dataclass made of `setting`s; call it in `__post_init__`.

    A float field also takes a tracer or a batch of values, for a sweep. Ints given for float fields become floats.
    """
    for f in dataclasses.fields(obj):
        value, meta = getattr(obj, f.name), f.metadata
        kind, name = type_name(f), prefix + f.name
        low, high = meta.get("low"), meta.get("high")
        if meta.get("convert") is not None:
            value = meta["convert"](name, value)
            object.__setattr__(obj, f.name, value)
            if callable(value):
                continue
        if meta.get("choices") is not None:
            check_choice(name, value, meta["choices"])
        elif kind == "float":
            bounds = -math.inf if low is None else low, math.inf if high is None else high
            check_float(name, value, *bounds, meta.get("open_low", False), meta.get("open_high", False))
            if is_number(value):
                object.__setattr__(obj, f.name, float(value))
        elif kind == "int":
            if low is None:
                low = 1 if _is_size(f) else -(2**31)
            check_int(name, value, int(low), int(2**31 - 1 if high is None else high))
            object.__setattr__(obj, f.name, int(value))
        elif kind == "bool":
            if not isinstance(value, (bool, np.bool_)):
                raise ConfigError(name, value, "True or False")
            object.__setattr__(obj, f.name, bool(value))
        elif kind.startswith("tuple[int"):
            values = tuple(value) if isinstance(value, (tuple, list)) else None
            size = _is_size(f)
            if values is None or not all(type(v) is int and (v > 0 or not size) for v in values):
                raise ConfigError(name, value, f"a tuple of {'positive ' if size else ''}integers")
            object.__setattr__(obj, f.name, values)
