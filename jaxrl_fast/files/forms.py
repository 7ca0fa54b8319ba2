"""JSON of a run: a reader with errors that name file and key, and plain values for writers.

A form is a type or several (`int` takes no bool, `float` takes integers too), [form] for a list, or
a dict with the form of each key; "key?" may be missing, and further keys have the form "*" if
given. `ANY` takes everything.
"""

from __future__ import annotations

import errno
import json
import math
import os
import stat
from pathlib import Path
from typing import Any

import numpy as np

from jaxrl_fast.errors import ConfigError, brief

LARGEST = 1 << 28  # bytes of a JSON file
ANY = object
NUMBER = (int, float)
SCORES = [(int, float, type(None))]  # one a member; null for a lost one
LOST = [{"member": int, "env_steps": int, "reason": str}]
RESULT = {
    "algorithm": str, "environment": str, "env_steps": int, "eval_return": SCORES,
    "lost?": ([*LOST], type(None)), "best_eval_return?": SCORES[0], "steps_per_second?": SCORES[0],
    "eval_episodes?": (int, type(None)), "seconds?": ({"*": SCORES[0]}, type(None)),
    "wall_seconds?": SCORES[0],
}  # fmt: skip
CONFIG = {
    "format": ANY, "algorithm": {"name": str, "settings": dict, "class?": str},
    "environment": {"name": str, "settings?": dict, "object?": dict}, "imports?": [str],
    "run": {"total_steps": int, "seed?": int, "seeds?": int}, "device?": str, "versions?": dict,
}  # fmt: skip
SWEEP = {
    "format": ANY, "base": CONFIG | {"run": {"total_steps": int, "seed": int, "seeds": int}},
    "configurations": [dict], "parts": [{"configurations": [int], "seed": int, "seeds": int}],
    "optuna?": {"trials": int, "members": int}, "sample?": dict,
}  # fmt: skip


def read_json(file: Path, argument: str, what: str, form: Any, remedy: str = "") -> Any:
    """Return the content of a JSON file; raises ConfigError unless it is `what`."""
    after = f". {remedy}" if remedy else ""
    try:
        content = json.loads(_content(file), parse_constant=_refused, parse_float=_finite)
    except OSError as error:
        raise ConfigError(argument, str(file),
                          f"{what} that can be read: {error.strerror}{after}") from error
    except (ValueError, RecursionError) as error:
        raise ConfigError(argument, str(file),
                          f"{what}; this file is damaged ({brief(error)}){after}") from error
    wrong = misfit(content, form)
    if wrong:
        raise ConfigError(argument, str(file), f"{what}; in this file {wrong}{after}")
    return content


def _refused(text: str) -> float:
    raise ValueError(f"{text} is no number of JSON")


def _finite(text: str) -> float:
    return float(text) if math.isfinite(float(text)) else _refused(text)


def _content(file: Path) -> bytes:
    """Return a file's bytes; raises OSError for a pipe, a device or a huge file."""
    found = os.stat(file)
    if not (stat.S_ISREG(found.st_mode) or stat.S_ISDIR(found.st_mode)):
        raise OSError(errno.EINVAL, "it is no regular file")
    if found.st_size > LARGEST:
        raise OSError(errno.EFBIG,
                      f"it has {found.st_size:,} bytes, {LARGEST:,} at most can be right")
    return file.read_bytes()


def misfit(value: Any, form: Any, name: str = "it") -> str | None:
    """Return where `value` first differs from `form`, in words, or None."""
    if isinstance(form, tuple):
        found = [misfit(value, one, name) for one in form]
        return None if None in found else found[0]
    if isinstance(form, list):
        if not isinstance(value, list):
            return f"{name} is {_kind(value)}, not a list"
        return next((w for i, x in enumerate(value) if (w := misfit(x, form[0], f"{name}[{i}]"))),
                    None)
    if isinstance(form, dict):
        if not isinstance(value, dict):
            return f"{name} is {_kind(value)}, not an object"
        unknown = [key for key in value if key not in form and f"{key}?" not in form]
        others = {key: form["*"] for key in unknown if "*" in form}
        for key, inner in ({k: x for k, x in form.items() if k != "*"} | others).items():
            key, optional = key.removesuffix("?"), key.endswith("?")
            if key not in value and not optional:
                return f"{key} is missing" if name == "it" else f"{name}.{key} is missing"
            place = key if name == "it" else f"{name}.{key}"
            wrong = misfit(value[key], inner, place) if key in value else None
            if wrong:
                return wrong
        return None
    fits = isinstance(value, form) and not (isinstance(value, bool) and form in (int, float))
    if form in (int, float) and type(value) is int and abs(value) >= 2**64:
        return f"{name} is an integer of more than 64 bits"
    if fits or (form is float and type(value) is int):
        return None
    return f"{name} is {_kind(value)}, not {_NAMES.get(form, form.__name__)}"


_NAMES: dict[type, str] = {
    str: "a text", int: "an integer", float: "a number", dict: "an object", list: "a list",
    type(None): "null", bool: "true or false",
}  # fmt: skip


def _kind(value: Any) -> str:
    return _NAMES.get(type(value), type(value).__name__)


def to_json(value: Any) -> Any:
    """Convert NumPy numbers and arrays to plain JSON values, non-finite floats to None."""
    if isinstance(value, dict):
        return {str(k): to_json(v) for k, v in value.items()}
    if isinstance(value, (list, tuple)):
        return [to_json(v) for v in value]
    if isinstance(value, np.ndarray):
        return to_json(value.tolist())
    if isinstance(value, np.generic):
        return to_json(value.item())
    if isinstance(value, float) and not np.isfinite(value):
        return None
    return value
