"""A setting's value as JSON and back: numbers, dtypes, dataclasses, networks, functions."""

from __future__ import annotations

import contextlib
import dataclasses
import functools
import math
import sys
from collections.abc import Iterator
from typing import Any

import jax
import numpy as np

from jaxrl_fast import imports
from jaxrl_fast.algorithms.base import Algorithm
from jaxrl_fast.algorithms.build import NAMED, function_of
from jaxrl_fast.envs.base import Environment
from jaxrl_fast.errors import ConfigError, UserError, brief
from jaxrl_fast.networks import Foreign, as_network
from jaxrl_fast.networks.foreign import Held
from jaxrl_fast.ops.optimizer_settings import Schedule


def encode(value: Any, name: str = "settings") -> Any:
    """Return `value` as JSON; `name` is its name in errors."""
    if isinstance(value, Schedule):
        return encode(value.source, name)
    if isinstance(value, Foreign):
        return {"network": _network_path(value.source, name)}
    # a flax module or another frozen dataclass
    if dataclasses.is_dataclass(value) and not isinstance(value, type):
        fields = {
            f.name: encode(getattr(value, f.name), f"{name}.{f.name}")
            for f in dataclasses.fields(value)
            if f.init and not comes_with_its_class(value, f)
        }
        return {"class": class_path(type(value), name), "fields": fields}
    if isinstance(value, (tuple, list)):
        return [encode(v, name) for v in value]
    if callable(value):
        return {"import": _import_path(value, name)}
    if isinstance(value, np.dtype) and _dtype(value.name, name) == value:
        return {"dtype": value.name}
    if isinstance(value, float) and not math.isfinite(value):
        return {"float": repr(value)}
    if isinstance(value, (str, bool, int, float, type(None))):
        return value
    if hasattr(value, "item") and getattr(value, "ndim", 1) == 0:
        return encode(value.item(), name)
    raise ConfigError(name, value, "a value that can be written to config.json (number, string, "
                                   "tuple, dtype, dataclass)")


def comes_with_its_class(value: Any, field: dataclasses.Field) -> bool:
    """Return whether to leave a field out: flax's own two, or a default function or dtype."""
    from flax import linen  # slow to import

    own = isinstance(value, linen.Module) and field.name in ("parent", "name")
    return own or (callable(field.default) and getattr(value, field.name) is field.default)


def path_of(cls: type) -> str:
    return f"{cls.__module__}:{cls.__qualname__}"


def class_path(cls: type, name: str) -> str:
    """Return `path_of` a class. Raises ConfigError for a class that a load cannot find."""
    if "<locals>" in cls.__qualname__:
        raise ConfigError(name, cls.__qualname__,
                          "a class of a module; one inside a function is not found by a load")
    return path_of(cls)


def _import_path(value: Any, name: str) -> str:
    attribute = getattr(value, "__qualname__", "")
    public = ("jax.nn", "jax.numpy", "optax", "optax.contrib")  # first; other modules move
    for module in (*public, getattr(value, "__module__", None)):
        found = functools.reduce(lambda x, part: getattr(x, part, None),
                                 attribute.split("."), sys.modules.get(module))
        if found is value:
            return f"{module}:{attribute}"
    raise ConfigError(name, value, "a function or class that its module knows by name; no lambda, "
                                   "none in a function")


def _network_path(source: Any, name: str) -> str:
    """Return "module:name" of a network, or of its maker."""
    found = source.value if isinstance(source, Held) else source
    if hasattr(found, "__qualname__"):
        return _import_path(found, name)
    for module, content in list(sys.modules.items()):
        attribute = next((key for key, value in list(vars(content).items()) if value is found),
                         None) if content else None
        if attribute is not None and (module == "__main__" or imports.is_users(module)):
            return f"{module}:{attribute}"
    raise ConfigError(
        name, f"<{type(found).__name__}>",
        "a class or a function of a module, or an object that a module of yours holds by "
        "name, such as nets.net: config.json cannot hold arrays. Without `out` any object can be "
        "trained",
    )  # fmt: skip


def decode(value: Any, name: str = "settings") -> Any:
    """Return the value that `encode` wrote. Raises ConfigError for a forbidden name."""
    if isinstance(value, list):
        return tuple(decode(v, name) for v in value)
    if not isinstance(value, dict):
        return value
    if "class" in value:
        cls = _setting_class(value["class"], name)
        found = cls(**{k: decode(v, f"{name}.{k}") for k, v in value["fields"].items()})
        imports.check_known(getattr(found, "imports", ()), name)
        return found
    if "import" in value:
        return function_of(value["import"], name)
    if "network" in value:
        return as_network(name, function_of(value["network"], name))
    if "float" in value:
        return float(value["float"])
    if "dtype" in value:
        return _dtype(value["dtype"], name)
    return value


def _dtype(text: Any, name: str) -> np.dtype:
    """Return the numeric dtype with NumPy's or JAX's name `text`. Raises ConfigError."""
    try:
        found = np.dtype(text) if isinstance(text, str) else None
    except TypeError:
        found = None
    if found is None or found.name != text or not (found.kind == "b"
                                                   or jax.dtypes.issubdtype(found, np.number)):
        raise ConfigError(name, text,
                          "the name of a dtype of numbers, such as 'float32' or 'uint8'")
    return found


def decode_settings(settings: dict[str, Any], prefix: str) -> dict[str, Any]:
    found = {}
    for key, value in settings.items():
        with reading(f"{prefix}.{key}", value):
            found[key] = decode(value, f"{prefix}.{key}")
    return found


@contextlib.contextmanager
def reading(name: str, value: Any) -> Iterator[None]:
    """Raise ConfigError for any error about a value from a file."""
    try:
        yield
    except UserError:
        raise
    except Exception as error:
        raise ConfigError(name, value, "a value that a run has written; reading it failed: "
                                       f"{brief(error)}") from error


def _setting_class(path: str, name: str) -> type:
    """Return the dataclass "module:name": ours, an environment, a network, or the user's."""
    from flax import linen

    found, home = imports.look_up(path, name)
    parts = ("envs", "memory", "networks", "ops.optimizer_settings", "spaces", "types")
    ours = any(home.startswith(f"{imports.PACKAGE}.{part}") for part in parts)
    kinds = (Algorithm, Environment, linen.Module)
    if not (isinstance(found, type) and dataclasses.is_dataclass(found)):
        raise ConfigError(name, path, "a dataclass")
    if not (ours or issubclass(found, kinds) or imports.is_users(home)):
        kinds = f"an environment, a flax.linen.Module, or of a module of yours, which {NAMED}"
        raise ConfigError(name, path, f"a class of settings ({kinds})")
    return found
