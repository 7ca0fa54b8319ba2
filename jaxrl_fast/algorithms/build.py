"""Build algorithms from named settings, with a user's "module:name" functions and networks."""

from __future__ import annotations

import dataclasses
import re
from collections.abc import Iterable
from typing import Any

import numpy as np

from jaxrl_fast import imports
from jaxrl_fast.algorithms.base import Algorithm
from jaxrl_fast.errors import ConfigError, nearest
from jaxrl_fast.fields import type_name
from jaxrl_fast.networks import as_network

NAMED = "an installed package is once --import (from Python: modules=) names it"


def function_of(path: str, name: str) -> Any:
    """Return the function, dtype or layer class "module:name"; of a user's module any callable."""
    from flax import linen

    found, home = imports.look_up(path, name)
    layers = isinstance(found, type) and issubclass(found, (linen.Module, np.generic))
    function = imports.is_function(home, getattr(found, "__name__", ""))
    if not callable(found) or not (layers or function):
        libraries = "jax.nn, jax.numpy, jax.lax, flax.linen or optax"
        raise ConfigError(name, path, f"a function of {libraries}, a class of layers, or of a "
                                      f"module of yours, which {NAMED}")
    return found


def algorithm_settings(algo: Algorithm) -> dict[str, Any]:
    """Return {field: value} of all settings: all fields but `spec`, which `bind` fills in."""
    return {f.name: getattr(algo, f.name) for f in dataclasses.fields(algo) if f.name != "spec"}


def build_algorithm(cls: type, settings: dict[str, Any]) -> Algorithm:
    """Build an algorithm from named settings; raises ConfigError for an unknown name.

    "module:name" for a flax module, an optimizer or a schedule is the user's own (`import_named`).
    """
    fields = {f.name: f for f in dataclasses.fields(cls) if f.name != "spec"}
    for key, value in settings.items():
        if key not in fields:
            raise ConfigError(f"algo.{key}", value,
                              f"a setting of {cls.name}{nearest(key, fields)}")
        if _names_code(fields[key], value):
            named = _user_network if "Module" in type_name(fields[key]) else function_of
            settings = settings | {key: named(value, f"algo.{key}")}
    return cls(**settings)


def _names_code(field: dataclasses.Field, value: Any) -> bool:
    """Return whether a setting is typed as "module:name": a network, an optimizer or a schedule."""
    due = "Module" in type_name(field) or field.metadata.get("convert") is not None
    return due and isinstance(value, str) and re.fullmatch(r"[^:()]+:[^:()]+", value) is not None


def _user_network(path: str, argument: str) -> Any:
    """Return the network "module:name": a class with defaults, a function's result, an object."""
    try:
        return as_network(argument, function_of(path, argument))
    except ConfigError as error:
        raise ConfigError(argument, path, error.valid) from error


def import_named(cls: type, settings: Iterable[tuple[str, Any]]) -> None:
    """Import the modules of the user's "module:name" among the (field, value) settings of `cls`."""
    fields = {f.name: f for f in dataclasses.fields(cls)}
    for key, value in settings:
        if key in fields and _names_code(fields[key], value):
            imports.import_user_module(value.partition(":")[0], f"algo.{key}")
