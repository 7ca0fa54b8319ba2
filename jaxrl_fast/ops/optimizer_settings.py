"""The settings `optimizer` and `learning_rate`: optax's functions as objects or as text.

config.json and the command line hold the text (`ops.optax_text`); a user's function stays one.
"""

from __future__ import annotations

import dataclasses
import functools
import inspect
import math
from collections.abc import Callable
from typing import Any

import jax
import jax.numpy as jnp

from jaxrl_fast import tree
from jaxrl_fast.errors import ConfigError, first_line
from jaxrl_fast.ops import optax_text, optim

# Elementwise optimizers of optax: their small leaves can be packed into one vector.
ELEMENTWISE = (
    "acprop", "adabelief", "adadelta", "adagrad", "adam", "adamax", "adamaxw", "adamw", "adan",
    "ademamix", "adopt", "amsgrad", "lion", "optimistic_adam", "optimistic_adam_v2",
    "optimistic_gradient_descent", "radam", "rmsprop", "rprop", "sgd", "sign_sgd", "signum", "yogi",
)  # fmt: skip
_OPTIMIZER = (
    "an optimizer as a function of the learning rate, such as optax.adamw, "
    "functools.partial(optax.adamw, weight_decay=1e-4), or as text, 'adamw(weight_decay=1e-4)'"
)
_RATE = (
    "a number, or a schedule of optimizer steps such as optax.cosine_decay_schedule(1e-3, 10_000), "
    "or the same as text"
)


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
    """A learning rate by optimizer step: a function or optax's text; a leafless pytree.

    A rate below 0, as of a line beyond its end, is 0: it would ascend the gradient.
    """

    source: str | Callable

    def __call__(self, step: Any) -> jax.Array:
        return jnp.maximum(jnp.asarray(self.value(step), jnp.float32), 0.0)

    def value(self, step: Any) -> Any:
        """Return the function's value, which may be below 0."""
        return (optax_text.schedule(self.source) if isinstance(self.source, str)
                else self.source)(step)

    def __str__(self) -> str:
        if isinstance(self.source, str):
            return self.source
        return getattr(self.source, "__qualname__", repr(self.source))


def schedule_setting(name: str, value: Any) -> Any:
    """Return a learning rate: numbers and arrays unchanged, schedules as a `Schedule`.

    Raises ConfigError for a function that is no schedule.
    """
    if isinstance(value, Schedule) or not (callable(value) or isinstance(value, str)):
        return value
    source = value
    try:
        if isinstance(value, str):
            value = optax_text.schedule(value)
        step = jax.ShapeDtypeStruct((), jnp.int32)
        made = jax.eval_shape(lambda step: jnp.asarray(value(step)), step)
        hash(value)  # JAX keeps programs by it
        if made.shape != () or not jnp.issubdtype(made.dtype, jnp.number):
            raise ValueError(f"it returns {made.dtype}{list(made.shape)}")
    except Exception as error:
        raise ConfigError(name, _shown(source), f"{_RATE}; {first_line(error)}") from error
    try:
        return Schedule(optax_text.text_of_schedule(value))
    except (ValueError, TypeError, SyntaxError, AttributeError):
        return Schedule(source)


def optimizer_setting(name: str, value: Any) -> Any:
    """Return an optimizer as text, else a `Partial` or the user's function; None stays.

    Raises ConfigError for anything but a function of the learning rate alone.
    """
    if value is None:
        return None
    if isinstance(value, tuple) and hasattr(value, "update"):  # optax.adam(1e-3)
        raise ConfigError(name, "an optimizer with its learning rate",
                          f"{_OPTIMIZER}; the rate is the setting learning_rate")
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
    value = optax_text.optimizer(value) if isinstance(value, str) else value
    if isinstance(value, Partial):
        return value
    function, keywords = value, {}
    if isinstance(value, functools.partial):
        function, keywords = value.func, value.keywords
        first = "its arguments must be named: the first place is the learning rate's"
        if value.args:
            raise ValueError(first)
    if inspect.isfunction(function) and function.__module__.startswith("optax."):
        if not optax_text.is_optimizer(function):
            raise ValueError(f"the first parameter of {function.__name__} is "
                             f"{optax_text.first_parameter(function)!r}")
        if function.__name__ in optax_text.names():
            try:
                if keywords:
                    return optax_text.text_of_call(function.__name__, keywords)
                return function.__name__
            except (ValueError, TypeError, SyntaxError):
                pass
    if isinstance(value, functools.partial):
        return Partial(function, tuple(keywords.items()))
    return value


@functools.lru_cache(256)
def _problem(optimizer: Any) -> str:
    """Return the reason why `optimizer` is not an optimizer, or "", from shapes alone."""
    params = {"a": jax.ShapeDtypeStruct((2, 3), jnp.float32),
              "b": jax.ShapeDtypeStruct((3,), jnp.float32)}

    def step(params, grads, rate):
        tx = make(optimizer)(rate)
        if not (hasattr(tx, "init") and hasattr(tx, "update")):
            raise ValueError(f"it returns {type(tx).__name__}")
        own = optim.stock(make(optimizer))
        before = own.init(params, rate)
        return before, own.step(rate, params, grads, before)

    try:
        before, (_, after) = jax.eval_shape(step, params, params,
                                            jax.ShapeDtypeStruct((), jnp.float32))
    except Exception as error:
        return first_line(error)
    if jax.tree.map(lambda x: (x.shape, x.dtype),
                    before) != jax.tree.map(lambda x: (x.shape, x.dtype), after):
        return "its state changes its shape or dtype from step to step"
    return ""


@functools.lru_cache(256)
def _moves(optimizer: Callable) -> tuple[float, bool]:
    """Return the climb of three steps along one gradient, and whether it depends on the rate.

    Runs on the device.
    """

    def moved(rate):
        params, grads = jnp.ones(3), jnp.ones(3)
        own = optim.stock(make(optimizer))
        state = own.init(params, rate)
        for _ in range(3):
            params, state = own.step(rate, params, grads, state)
        return jnp.sum(params) - 3.0

    rate = jnp.float32(1e-3)
    (depends,) = tree.used_inputs(jax.make_jaxpr(moved)(rate).jaxpr)
    return float(jax.jit(moved)(rate)), depends


@functools.lru_cache(256)
def _first(schedule: Schedule) -> float:
    """Return a schedule's value at its first step; runs on the device."""
    with jax.ensure_compile_time_eval():
        return float(schedule.value(jnp.int32(0)))


def check_descends(optimizer: Any, rate: Any) -> None:
    """Raise ConfigError for an optimizer or a first rate that ascends, or a rate without effect."""
    if isinstance(rate, Schedule) and not 0 <= _first(rate) < math.inf:
        raise ConfigError("learning_rate", str(rate),
                          f"a schedule of rates from 0 on; this one begins with {_first(rate):g}")
    if not callable(optimizer):
        return
    climb, depends = _moves(optimizer)
    if climb > 1e-6:
        raise ConfigError(
            "optimizer", _shown(optimizer),
            "an optimizer whose updates descend when they are added, as optax's do: "
            "scale_by_adam() and the like need optax.scale_by_learning_rate(rate) behind them",
        )  # fmt: skip
    if not depends:
        raise ConfigError("optimizer", _shown(optimizer), "a function that uses its argument, the "
                          "learning rate; a rate or schedule of yours is the setting learning_rate")


def make(optimizer: Any) -> Callable[[Any], Any]:
    """Return the function of the learning rate behind the setting."""
    return optax_text.optimizer(optimizer) if isinstance(optimizer, str) else optimizer


def optimizer_of(setting: Any, max_grad_norm: Any, layers: optim.View | None) -> optim.Optimizer:
    """Return the setting's optimizer; `layers` shows layers apart if it is not elementwise."""
    function = make(setting)
    keywords = function.keywords if isinstance(function, functools.partial) else {}
    whole = getattr(function, "func", function).__name__ if isinstance(setting, str) else ""
    masked = any("mask" in key and value is not None for key, value in keywords.items())
    return optim.stock(function, max_grad_norm, optim.PACKED if whole in ELEMENTWISE
                       and not masked else layers)


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
    raise ConfigError(name, _shown(value),
                      "a value with a text, such as an optimizer or schedule of optax")


def _shown(value: Any) -> str:
    value = value.function if isinstance(value, Partial) else value
    return value if isinstance(value, str) else getattr(value, "__qualname__", None) or repr(value)
