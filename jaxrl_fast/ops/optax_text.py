"""Functions of optax as the text of a call, and back.

A text such as "adamw(weight_decay=1e-4)" or "cosine_decay_schedule(1e-3, 10_000)" names functions
of optax with literals or further calls as arguments. Nothing else in it runs.
"""

from __future__ import annotations

import ast
import functools
import inspect
from collections.abc import Callable
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
import optax

from jaxrl_fast import fields
from jaxrl_fast.errors import nearest


def _function(node: ast.expr) -> Callable:
    """Return the optax function of a name, with or without "optax." or "contrib."."""
    name = ast.unparse(node).rpartition(".")[2]
    for module in (optax, optax.contrib):
        found = getattr(module, name, None)
        if inspect.isfunction(found) and (is_optimizer(found) or _is_schedule_maker(found)):
            return found
    raise ValueError(f"optax has no optimizer or schedule {name!r}{nearest(name, names())}")


@functools.cache
def names() -> list[str]:
    """Return the names of optax's optimizers and schedules."""
    found = [v for module in (optax, optax.contrib) for v in vars(module).values()
             if inspect.isfunction(v)]
    return [f.__name__ for f in found if is_optimizer(f) or _is_schedule_maker(f)]


def first_parameter(function: Callable) -> str:
    return next(iter(fields.parameters(function)), "")


def is_optimizer(function: Callable) -> bool:
    return first_parameter(function).endswith("learning_rate")


def _is_schedule_maker(function: Callable) -> bool:
    return function.__module__.startswith("optax.schedules") and not inspect.isclass(function)


def _value(node: ast.expr) -> Any:
    """Return the value of an expression of literals and calls."""
    if isinstance(node, ast.Call):
        if any(keyword.arg is None for keyword in node.keywords):
            raise ValueError("** is not read here")
        return _function(node.func)(*map(_value, node.args),
                                    **{k.arg: _value(k.value) for k in node.keywords})
    if isinstance(node, (ast.List, ast.Tuple)):
        return [_value(x) for x in node.elts]
    if isinstance(node, ast.Dict):
        return {_value(k): _value(v) for k, v in zip(node.keys, node.values, strict=True)}
    return ast.literal_eval(node)


@functools.lru_cache(256)
def optimizer(text: str) -> Callable:
    """Return optax's function for a name or call. Raises ValueError for other text."""
    node = ast.parse(text.strip(), mode="eval").body
    if not isinstance(node, ast.Call):
        return _function(node)
    if node.args:
        raise ValueError("its arguments must be named: the first place is the learning rate's")
    return functools.partial(_function(node.func),
                             **{k.arg: _value(k.value) for k in node.keywords if k.arg})


@functools.lru_cache(256)
def schedule(text: str) -> Callable:
    """Return the schedule that a call of optax makes. Raises ValueError for other text."""
    node = ast.parse(text.strip(), mode="eval").body
    if not isinstance(node, ast.Call) or not _is_schedule_maker(_function(node.func)):
        raise ValueError("it is no call of a schedule of optax")
    return _value(node)


def _literal(value: Any) -> str:
    """Return the text of a value. Raises ValueError if it has none."""
    if isinstance(value, (tuple, list)):
        return f"[{', '.join(map(_literal, value))}]"
    if isinstance(value, dict):
        return "{" + ", ".join(f"{_literal(k)}: {_literal(v)}" for k, v in value.items()) + "}"
    known = isinstance(value, (np.ndarray, np.generic, jax.Array))
    if known and value.ndim == 0 and not isinstance(value, jax.core.Tracer):
        value = value.item()
    if value is None or isinstance(value, (bool, int, float, str)):
        ast.literal_eval(repr(value))  # inf and nan have no literal
        return repr(value)
    if isinstance(value, (type, np.dtype)):
        return repr(np.dtype(value).name)
    return text_of_schedule(value)


def _same(value: Any, default: Any) -> bool:
    return value is default or (isinstance(value, (int, float)) and type(value) is type(default)
                                and value == default)


def text_of_call(name: str, keywords: dict[str, Any]) -> str:
    """Return `name(key=value, ...)`. Raises ValueError for a value without a text."""
    return f"{name}({', '.join(f'{k}={_literal(v)}' for k, v in keywords.items())})"


def text_of_schedule(made: Any) -> str:
    """Return optax's call behind a schedule, from its closure. Raises ValueError if unclear."""
    if not inspect.isfunction(made) or not made.__module__.startswith("optax.schedules"):
        raise ValueError("it is not a schedule of optax")
    held = dict(inspect.getclosurevars(made).nonlocals)
    maker = made.__qualname__.partition(".<locals>")[0]
    if made.__name__ == "<lambda>" and len(held) == 1:
        maker, held = "constant_schedule", {"value": next(iter(held.values()))}
    if "interpolate_fn" in held:
        linear = "linear" in held["interpolate_fn"].__name__
        held["interpolate_type"] = "linear" if linear else "cosine"
        held["boundaries_and_scales"] = dict(zip(held["boundaries"], held["scales"], strict=True))
    # a cosine's function converts them to floats at its first call
    held = {k: int(v) if k.endswith("_steps") and v == int(v) else v for k, v in held.items()}
    parameters = fields.parameters(getattr(optax, maker))
    text = text_of_call(maker, {k: held[k] for k, p in parameters.items() if k in held
                                and not _same(held[k], p.default)})
    step = jax.ShapeDtypeStruct((), jnp.int32)
    if str(jax.make_jaxpr(schedule(text))(step)) != str(jax.make_jaxpr(made)(step)):
        raise ValueError("it computes something else")
    return text
