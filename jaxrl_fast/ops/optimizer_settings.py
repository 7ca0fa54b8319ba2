"""The settings `optimizer` and `learning_rate`: optax's functions as objects or as text.

A text such as "adamw(weight_decay=1e-4)" or "cosine_decay_schedule(1e-3, 10_000)" calls functions
of optax with literals (or further calls). config.json and the command line hold it; it runs nothing
else. Results of optax's functions are turned back into text if possible; a user's function stays a
function.
"""

from __future__ import annotations

import ast
import dataclasses
import functools
import inspect
from collections.abc import Callable
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
import optax

from jaxrl_fast import signatures
from jaxrl_fast.errors import ConfigError, first_line, nearest
from jaxrl_fast.ops import optim

# Elementwise optimizers of optax: their small leaves can be packed into one vector.
ELEMENTWISE = (
    "acprop", "adabelief", "adadelta", "adagrad", "adam", "adamax", "adamaxw", "adamw", "adan", "ademamix", "adopt", "amsgrad",
    "lion", "optimistic_adam", "optimistic_adam_v2", "optimistic_gradient_descent", "radam", "rmsprop", "rprop", "sgd",
    "sign_sgd", "signum", "yogi",
)  # fmt: skip
OPTIMIZER = "optax optimizer, by name or as a function of the rate; none: the algorithm's own"  # its help
_OPTIMIZER = (
    "an optimizer as a function of the learning rate, such as optax.adamw, functools.partial(optax.adamw, weight_decay=1e-4), "
    "or as text, 'adamw(weight_decay=1e-4)'"
)
_RATE = "a number, or a schedule of optimizer steps such as optax.cosine_decay_schedule(1e-3, 10_000), or the same as text"


# From text to functions ---------------------------------------------------------------------------


def _function(node: ast.expr) -> Callable:
    """Return the optax function of a name, with or without "optax." or "contrib."."""
    name = ast.unparse(node).rpartition(".")[2]
    for module in (optax, optax.contrib):
        found = getattr(module, name, None)
        if inspect.isfunction(found) and (_is_optimizer(found) or _is_schedule_maker(found)):
            return found
    raise ValueError(f"optax has no optimizer or schedule {name!r}{nearest(name, _names())}")


@functools.cache
def _names() -> list[str]:
    found = [v for module in (optax, optax.contrib) for v in vars(module).values() if inspect.isfunction(v)]
    return [f.__name__ for f in found if _is_optimizer(f) or _is_schedule_maker(f)]


def _first_parameter(function: Callable) -> str:
    return next(iter(signatures.parameters(function)), "")


def _is_optimizer(function: Callable) -> bool:
    return _first_parameter(function).endswith("learning_rate")


def _is_schedule_maker(function: Callable) -> bool:
    return function.__module__.startswith("optax.schedules") and not inspect.isclass(function)


def _value(node: ast.expr) -> Any:
    """Return the value of an expression of literals and calls."""
    if isinstance(node, ast.Call):
        if any(keyword.arg is None for keyword in node.keywords):
            raise ValueError("** is not read here")
        return _function(node.func)(*map(_value, node.args), **{k.arg: _value(k.value) for k in node.keywords})
    if isinstance(node, (ast.List, ast.Tuple)):
        return [_value(x) for x in node.elts]
    if isinstance(node, ast.Dict):
        return {_value(k): _value(v) for k, v in zip(node.keys, node.values, strict=True)}
    return ast.literal_eval(node)


@functools.lru_cache(256)
def _optimizer_of(text: str) -> Callable:
    """Return optax's function of a name, or of a call with keyword arguments."""
    node = ast.parse(text.strip(), mode="eval").body
    if not isinstance(node, ast.Call):
        return _function(node)
    if node.args:
        raise ValueError("its arguments must be named: the first place is the learning rate's")
    return functools.partial(_function(node.func), **{k.arg: _value(k.value) for k in node.keywords if k.arg})


@functools.lru_cache(256)
def _schedule_of(text: str) -> Callable:
    node = ast.parse(text.strip(), mode="eval").body
    if not isinstance(node, ast.Call) or not _is_schedule_maker(_function(node.func)):
        raise ValueError("it is no call of a schedule of optax")
    return _value(node)


# And back -----------------------------------------------------------------------------------------


def _literal(value: Any) -> str:
    """Return the text of a value; raises ValueError without one."""
    if isinstance(value, (tuple, list)):
        return f"[{', '.join(map(_literal, value))}]"
    if isinstance(value, dict):
        return "{" + ", ".join(f"{_literal(k)}: {_literal(v)}" for k, v in value.items()) + "}"
    if isinstance(value, (np.ndarray, np.generic, jax.Array)) and value.ndim == 0 and not isinstance(value, jax.core.Tracer):
        value = value.item()
    if value is None or isinstance(value, (bool, int, float, str)):
        ast.literal_eval(repr(value))  # inf and nan have none
        return repr(value)
    if isinstance(value, (type, np.dtype)):
        return repr(np.dtype(value).name)
    return _schedule_text(value)


def _same(value: Any, default: Any) -> bool:
    return value is default or (isinstance(value, (int, float)) and type(value) is type(default) and value == default)


def _call_text(name: str, keywords: dict[str, Any]) -> str:
    return f"{name}({', '.join(f'{k}={_literal(v)}' for k, v in keywords.items())})"


def _schedule_text(schedule: Any) -> str:
    """Return the optax call that made a schedule; raises ValueError if unclear."""
    if not inspect.isfunction(schedule) or not schedule.__module__.startswith("optax.schedules"):
        raise ValueError("it is none of optax's")
    held = dict(inspect.getclosurevars(schedule).nonlocals)
    maker = schedule.__qualname__.partition(".<locals>")[0]
    if schedule.__name__ == "<lambda>" and len(held) == 1:
        maker, held = "constant_schedule", {"value": next(iter(held.values()))}
    if "interpolate_fn" in held:
        held["interpolate_type"] = "linear" if "linear" in held["interpolate_fn"].__name__ else "cosine"
        held["boundaries_and_scales"] = dict(zip(held["boundaries"], held["scales"], strict=True))
    # a cosine's function converts them to floats when it is first called
    held = {k: int(v) if k.endswith("_steps") and v == int(v) else v for k, v in held.items()}
    parameters = signatures.parameters(getattr(optax, maker))
    text = _call_text(maker, {k: held[k] for k, p in parameters.items() if k in held and not _same(held[k], p.default)})
    step = jax.ShapeDtypeStruct((), jnp.int32)
    if str(jax.make_jaxpr(_schedule_of(text))(step)) != str(jax.make_jaxpr(schedule)(step)):
        raise ValueError("it computes something else")
    return text


# The settings -------------------------------------------------------------------------------------


@dataclasses.dataclass(frozen=True)
class Partial:
    """`functools.partial` of an optimizer without text; equal ones are equal."""

    function: Callable
    keywords: tuple[tuple[str, Any], ...]

    def __call__(self, learning_rate: Any) -> Any:
        return self.function(learning_rate, **dict(self.keywords))


@jax.tree_util.register_static
@dataclasses.dataclass(frozen=True)
class Schedule:
    """A learning rate by optimizer step: a function or optax's text; a leafless pytree."""

    source: str | Callable

    def __call__(self, step: Any) -> jax.Array:
        function = _schedule_of(self.source) if isinstance(self.source, str) else self.source
        return jnp.asarray(function(step), jnp.float32)

    def __str__(self) -> str:
        return self.source if isinstance(self.source, str) else getattr(self.source, "__qualname__", repr(self.source))


def schedule_setting(name: str, value: Any) -> Any:
    """Return a learning rate: numbers and arrays unchanged, schedules as a `Schedule`.

    Raises ConfigError for a function that is no schedule.
    """
    if isinstance(value, Schedule) or not (callable(value) or isinstance(value, str)):
        return value
    source = value
    try:
        if isinstance(value, str):
            value = _schedule_of(value)
        step = jax.ShapeDtypeStruct((), jnp.int32)
        made = jax.eval_shape(lambda step: jnp.asarray(value(step)), step)
        if made.shape != () or not jnp.issubdtype(made.dtype, jnp.number):
            raise ValueError(f"it returns {made.dtype}{list(made.shape)}")
    except Exception as error:
        raise ConfigError(name, _shown(source), f"{_RATE}; {first_line(error)}") from error
    try:
        return Schedule(_schedule_text(value))
    except (ValueError, TypeError, SyntaxError, AttributeError):
        return Schedule(source)


def optimizer_setting(name: str, value: Any) -> Any:
    """Return an optimizer as text, else a `Partial` or the user's function; None stays.

    Raises ConfigError for anything but a function of the learning rate alone.
    """
    if value is None:
        return None
    if isinstance(value, tuple) and hasattr(value, "update"):  # optax.adam(1e-3)
        raise ConfigError(name, "an optimizer with its learning rate", f"{_OPTIMIZER}; the rate is the setting learning_rate")
    if not (callable(value) or isinstance(value, str)):
        raise ConfigError(name, value, _OPTIMIZER)
    try:
        found = _canonical(value)
        hash(found)
        problem = _problem(found)
    except (ValueError, SyntaxError, TypeError) as error:
        raise ConfigError(name, _shown(value), f"{_OPTIMIZER}; {first_line(error)}") from error
    if problem:
        raise ConfigError(name, _shown(found), f"{_OPTIMIZER}; {problem}")
    return found


def _canonical(value: Any) -> Any:
    value = _optimizer_of(value) if isinstance(value, str) else value
    if isinstance(value, Partial):
        return value
    function, keywords = value, {}
    if isinstance(value, functools.partial):
        function, keywords = value.func, value.keywords
        first = "its arguments must be named: the first place is the learning rate's"
        if value.args:
            raise ValueError(first)
    if inspect.isfunction(function) and function.__module__.startswith("optax."):
        if not _is_optimizer(function):
            raise ValueError(f"the first parameter of {function.__name__} is {_first_parameter(function)!r}")
        if function.__name__ in _names():
            try:
                return _call_text(function.__name__, keywords) if keywords else function.__name__
            except (ValueError, TypeError, SyntaxError):
                pass
    return Partial(function, tuple(keywords.items())) if isinstance(value, functools.partial) else value


@functools.lru_cache(256)
def _problem(optimizer: Any) -> str:
    """Return the reason why `optimizer` is none, or "", from shapes alone."""
    params = {"a": jax.ShapeDtypeStruct((2, 3), jnp.float32), "b": jax.ShapeDtypeStruct((3,), jnp.float32)}

    def step(params, grads, rate):
        tx = make(optimizer)(rate)
        if not (hasattr(tx, "init") and hasattr(tx, "update")):
            raise ValueError(f"it returns {type(tx).__name__}")
        own = optim.stock(make(optimizer))
        before = own.init(params, rate)
        return before, own.step(rate, params, grads, before)

    try:
        before, (_, after) = jax.eval_shape(step, params, params, jax.ShapeDtypeStruct((), jnp.float32))
    except Exception as error:
        return first_line(error)
    if jax.tree.map(lambda x: (x.shape, x.dtype), before) != jax.tree.map(lambda x: (x.shape, x.dtype), after):
        return "its state changes its shape or dtype from step to step"
    return ""


@functools.lru_cache(256)
def _ascends(optimizer: Callable) -> bool:
    """Return whether three steps along one gradient ascend; runs on the device."""

    @jax.jit
    def moved():
        params, rate, grads = jnp.ones(3), jnp.float32(1e-3), jnp.ones(3)
        own = optim.stock(make(optimizer))
        state = own.init(params, rate)
        for _ in range(3):
            params, state = own.step(rate, params, grads, state)
        return jnp.sum(params) > 3.0 + 1e-6

    return bool(moved())


def check_descends(name: str, optimizer: Any) -> None:
    """Raise ConfigError for a user's function with an optimizer that ascends the gradient."""
    if callable(optimizer) and _ascends(optimizer):
        raise ConfigError(
            name, _shown(optimizer), "an optimizer whose updates descend when they are added, as optax's do: "
            "scale_by_adam() and the like need optax.scale_by_learning_rate(rate) behind them",
        )  # fmt: skip


def make(optimizer: Any) -> Callable[[Any], Any]:
    """Return the function of the learning rate behind the setting."""
    return _optimizer_of(optimizer) if isinstance(optimizer, str) else optimizer


def optimizer_of(setting: Any, max_grad_norm: Any, layers: optim.View | None) -> optim.Optimizer:
    """Return the setting's optimizer; `layers` shows layers apart if it is not elementwise."""
    function = make(setting)
    keywords = function.keywords if isinstance(function, functools.partial) else {}
    whole = getattr(function, "func", function).__name__ if isinstance(setting, str) else ""
    masked = any("mask" in key and value is not None for key, value in keywords.items())
    return optim.stock(function, max_grad_norm, optim.PACKED if whole in ELEMENTWISE and not masked else layers)


def as_text(name: str, value: Any) -> Any:
    """Return `value` for sweep.json, optax's functions as text; raises ConfigError for others."""
    if not callable(value) or dataclasses.is_dataclass(value):
        return value
    for setting in (optimizer_setting, schedule_setting):
        try:
            found = setting(name, value)
        except ConfigError:
            continue
        found = getattr(found, "source", found)
        if isinstance(found, str):
            return found
    raise ConfigError(name, _shown(value), "a value with a text, such as an optimizer or schedule of optax")


def _shown(value: Any) -> str:
    value = value.function if isinstance(value, Partial) else value
    return value if isinstance(value, str) else getattr(value, "__qualname__", None) or repr(value)
