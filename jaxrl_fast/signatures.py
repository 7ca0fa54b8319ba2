"""Signatures of classes and functions: parameters, and defaults, which are settings."""

from __future__ import annotations

import inspect
from collections.abc import Callable, Mapping
from typing import Any


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


def takes_any(function: Callable[..., Any]) -> bool:
    """Return whether the function has `**keywords`."""
    return any(p.kind is inspect.Parameter.VAR_KEYWORD for p in parameters(function).values())


def takes(function: Callable[..., Any], name: str) -> bool:
    """Return whether `function(**{name: ...})` is accepted."""
    return name in parameters(function) or takes_any(function)
