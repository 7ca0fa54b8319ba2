"""`setting(...)`, a dataclass field with a valid range and help text, and its checks.

A foreign class or function declares its settings by its signature: `defaults_of`.
"""

from __future__ import annotations

import ast
import dataclasses
import functools
import inspect
import itertools
import math
import sys
from collections.abc import Callable, Iterable, Mapping
from typing import Any, NamedTuple

import numpy as np

from jaxrl_fast.errors import (
    ConfigError,
    check_choice,
    check_float,
    check_int,
    expected,
    is_number,
)

WIDEST = 1_000_000  # units of a layer: their memory is refused before its plan is made


def setting(
    default: Any, help: str = "", *, low: float | None = None, high: float | None = None,
    open_low: bool = False, open_high: bool = False, choices: tuple | None = None,
    static: bool | None = None, convert: Callable[[str, Any], Any] | None = None,
    none: str = "", flag: str | None = "", metavar: str = "",
) -> Any:  # fmt: skip
    """Declare a field of a settings dataclass: its default, help, range and flag.

    In a module's file a string below the field is its help too, and editors show that one. Valid is
    `low <= value <= high` (`<` with `open_low`, `open_high`), or one of `choices`, and None in a
    field of `X | None`. An int with a positive default and without `low` is a size: at least 1. A
    plain field has no bound.

    Args:
        convert: `convert(name, value)` returns the kept value before other checks and accepts its
            own results. A callable result is no number; a valid None is not converted.
        none: The meaning of None, such as "a tenth of the run"; its flag does not read "none".
        flag: The kind of the flag, of `values.KINDS`; "": from the annotation; None: no flag.
        metavar: The value's name in `--help`; by default the choices or the kind.
    """
    metadata: dict[str, Any] = {"help": help, "low": low, "high": high,
                                "choices": choices, "none": none}
    metadata |= {"open_low": open_low, "open_high": open_high, "convert": convert,
                 "flag": flag, "metavar": metavar}
    if static is not None:
        metadata["static"] = static
    return dataclasses.field(default=default, metadata=metadata)


class About(NamedTuple):
    """Help and choices of a setting."""

    help: str
    choices: tuple[str, ...] = ()


def about(cls: Any) -> dict[str, About]:
    """Return {setting: its help and choices} of a settings class; {} for a function."""
    found = (
        dataclasses.fields(cls) if isinstance(cls, type) and dataclasses.is_dataclass(cls) else ()
    )
    return {f.name: About(help_of(cls, f.name), f.metadata.get("choices") or ()) for f in found}


def help_of(cls: type, name: str) -> str:
    """Return the help of a settings class's field: the string below it, `setting`'s, or ""."""
    texts = (_texts(base.__module__).get((base.__name__, name)) for base in cls.__mro__)
    return next(filter(None, texts), "") or cls.__dataclass_fields__[name].metadata.get("help", "")


@functools.cache
def _texts(module: str) -> dict[tuple[str, str], str]:
    """Return {(class, field): the string below it} of a module's source; {} without a source."""
    try:
        tree = ast.parse(inspect.getsource(sys.modules[module]))
    except (KeyError, OSError, TypeError, SyntaxError, ValueError):  # a prompt, in C, being edited
        return {}
    return {
        (cls.name, field.target.id): " ".join(text.value.value.split())
        for cls in ast.walk(tree) if isinstance(cls, ast.ClassDef)
        for field, text in itertools.pairwise(cls.body)
        if isinstance(field, ast.AnnAssign) and isinstance(field.target, ast.Name)
        and isinstance(text, ast.Expr) and isinstance(text.value, ast.Constant)
        and isinstance(text.value.value, str)
    }  # fmt: skip


def type_name(field: dataclasses.Field) -> str:
    """Return a field's annotation as written: "int", "tuple[int, ...]"."""
    kind = field.type
    text = kind if isinstance(kind, str) else kind.__name__ if isinstance(kind, type) else str(kind)
    text = text.removeprefix("typing.").replace("Tuple[", "tuple[")
    return text if set(text) & set("[|") else text.rpartition(".")[2]  # "jax.Array" is "Array"


def value_type(field: dataclasses.Field) -> tuple[str, bool]:
    """Return the annotation without blanks and None, and whether None is valid."""
    name = type_name(field).replace(" ", "")
    inner = name.removesuffix("|None")
    return inner, inner != name


def _is_size(field: dataclasses.Field) -> bool:
    """Return whether a `setting` has a positive integer default, or a tuple of them."""
    values = field.default if isinstance(field.default, tuple) else (field.default,)
    return "low" in field.metadata and all(isinstance(v, int) and v > 0 for v in values)


def check_settings(obj: Any, prefix: str = "") -> None:
    """Check every field of a frozen dataclass of `setting`s; call it in `__post_init__`.

    A float field also takes a tracer or a batch of values, for a sweep. Ints for float fields
    become floats.
    """
    for f in dataclasses.fields(obj):
        given = getattr(obj, f.name)
        kept = check_setting(f, given, prefix + f.name)
        if kept is not given:
            object.__setattr__(obj, f.name, kept)


def changed_settings(obj: Any) -> dict[str, Any]:
    """Return {name: value} of a dataclass's shown fields that differ from their defaults."""
    found = {f.name: (getattr(obj, f.name), f.default) for f in dataclasses.fields(obj) if f.repr}
    return {name: value for name, (value, default) in found.items() if not _same(value, default)}


def _same(value: Any, default: Any) -> bool:
    """Return whether a value is its default, of the same type; an array never is."""
    alike = type(value) is type(default) and not hasattr(value, "shape")
    return value is default or (alike and bool(value == default))


def check_setting(field: dataclasses.Field, value: Any, name: str) -> Any:
    """Return a field's value as kept; raises ConfigError, with `name`, for an invalid one."""
    meta, (kind, optional) = field.metadata, value_type(field)
    low, high = meta.get("low"), meta.get("high")
    if value is None and optional:
        return None
    if meta.get("convert") is not None:
        value = meta["convert"](name, value)
        if callable(value):
            return value
    if meta.get("choices") is not None:
        check_choice(name, value, meta["choices"])
    elif kind == "float":
        bounds = -math.inf if low is None else low, math.inf if high is None else high
        check_float(name, value, *bounds, meta.get("open_low", False), meta.get("open_high", False))
        return float(value) if is_number(value) else value
    elif kind == "int":
        if low is None:
            low = 1 if _is_size(field) else -(2**31)
        check_int(name, value, int(low), int(2**31 - 1 if high is None else high))
        return int(value)
    elif kind == "bool":
        check_bool(name, value)
        return bool(value)
    elif kind.startswith("tuple[int"):
        values = tuple(value) if isinstance(value, (tuple, list)) else None
        size = _is_size(field)
        if values is None or not all(type(v) is int and (v > 0 or not size) for v in values):
            raise ConfigError(name, value, f"a tuple of {'positive ' if size else ''}integers")
        if high is not None and max(values, default=0) > high:
            raise ConfigError(name, value, f"a tuple of integers of at most {high:,}")
        return values
    elif kind == "str" and meta and not isinstance(value, str):
        raise ConfigError(name, value, "a text")
    return value


def check_bool(name: str, value: Any) -> None:
    """Raise ConfigError unless `value` is a bool of Python's or NumPy's."""
    if not isinstance(value, (bool, np.bool_)):
        raise ConfigError(name, value, "True or False")


def check_like(name: str, value: Any, default: Any, low: int = -(2**31)) -> None:
    """Raise ConfigError for another kind than a default's: a bool, an integer or a number.

    low: the least integer. Values with another default pass.
    """
    if isinstance(default, bool):
        check_bool(name, value)
    elif isinstance(default, int):
        check_int(name, value, low)
    elif isinstance(default, float):
        check_float(name, value)


def parameters(function: Callable[..., Any]) -> Mapping[str, inspect.Parameter]:
    """Return the parameters by name; none for objects without a signature (C code)."""
    try:
        return inspect.signature(function).parameters
    except (TypeError, ValueError):
        return {}


def defaults_of(function: Callable[..., Any]) -> dict[str, Any]:
    """Return {name: default} of the parameters that have one, lists as tuples."""
    return {
        name: tuple(p.default) if isinstance(p.default, list) else p.default
        for name, p in parameters(function).items()
        if p.default is not inspect.Parameter.empty
    }


def offered(names: Iterable[str]) -> list[str]:
    """Return the settings among names: not `spec` and `name`, which say what an object is."""
    return [name for name in names if name not in ("spec", "name")]


def takes_any(function: Callable[..., Any]) -> bool:
    """Return whether the function has `**keywords`."""
    return any(p.kind is inspect.Parameter.VAR_KEYWORD for p in parameters(function).values())


def takes(function: Callable[..., Any], name: str) -> bool:
    """Return whether `function(**{name: ...})` is accepted."""
    return name in parameters(function) or takes_any(function)


def refuse_removed(cls: type) -> None:
    """Raise ConfigError for a method or switch of `cls` that only older versions read.

    Bases list them as `removed`, {name: what to override instead}; `__init_subclass__` calls this.
    """
    removed = (vars(base).get("removed", {}) for base in cls.__mro__)
    for name, instead in {k: v for names in removed for k, v in names.items()}.items():
        found = inspect.getattr_static(cls, name, None)
        if callable(found) or isinstance(found, (property, functools.cached_property, bool)):
            wanted = f"left out: {instead}. {cls.__mro__[1].__name__} does not read it"
            raise expected(f"{cls.__name__}.{name}", wanted,
                           repr(found) if isinstance(found, bool) else "a method")
