"""Checks of an environment's results against its spec, while tracing.

They look at shapes and dtypes alone, so programs hold only the conversions: a dtype becomes the
spec's if every value survives, floats of any width included.
"""

from __future__ import annotations

import contextlib
import functools
import inspect
from collections.abc import Callable, Iterator
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np

from jaxrl_fast import random
from jaxrl_fast.errors import ConfigError, UserError, expected
from jaxrl_fast.ops.precision import products
from jaxrl_fast.spaces import Dict, Space
from jaxrl_fast.types import EnvSpec, Outcome, PyTree, given

TRACED = (
    "states, observations and actions are traced here: use jax.numpy in place of numpy, "
    "and jnp.where, jax.lax.cond or jax.lax.fori_loop in place of Python's `if` and `while` on them"
)
WIDE = ("jax_enable_x64 is on, and the environment may be written for 32 bits: give its arrays a "
        "dtype, or switch it off")


@contextlib.contextmanager
def explain_errors(spec: EnvSpec, function: str) -> Iterator[None]:
    """Run the environment's `function`: products in float32, a note and a hint on its errors."""
    with note_errors(spec, function), products():
        yield


@contextlib.contextmanager
def note_errors(spec: EnvSpec, function: str) -> Iterator[None]:
    """Run the environment's `function`; its errors get a note that names it, and a hint."""
    try:
        yield
    except UserError:
        raise
    except Exception as error:
        tracer = isinstance(error, (jax.errors.JAXTypeError, jax.errors.JAXIndexError))
        # noted already in a wrapper
        if not any(spec.name in note for note in getattr(error, "__notes__", ())):
            wide = isinstance(error, TypeError) and not tracer and jax.config.jax_enable_x64
            hint = f"; {TRACED}" if tracer else f"; {WIDE}" if wide else ""
            error.add_note(f"{spec.name}: raised in `{function}`{hint}")
        raise


def refuse_key(reset: Callable[..., Any]) -> Callable[..., Any]:
    """Wrap `reset` to raise ConfigError for a key (Gymnax's `env.reset(key)`) or no noise."""

    @functools.wraps(reset)
    def checked(self, noise):
        key = is_key(noise) and not (noise.shape and _is_noise(self, noise))
        if key or _holds_no_arrays(self, noise):
            raise ConfigError(f"{self.spec.name}: reset(noise)", "a key" if key else noise,
                              "the noise of `draw_reset(key, (num_envs,))`; "
                              "`state, obs = env.init(key, num_envs)` begins episodes")  # fmt: skip
        return reset(self, noise)

    return checked


def called_as(usage: str) -> Callable[[Callable[..., Any]], Callable[..., Any]]:
    """Return a decorator of an environment's method that answers a call of another form in a line.

    usage: how to call it; others' forms are step(key, state, action, params) and reset(seed=0).
    """

    def decorate(method: Callable[..., Any]) -> Callable[..., Any]:
        # not that of a wrapped function: a faulty definition is no faulty call
        signature = inspect.signature(method, follow_wrapped=False)
        name = method.__name__

        @functools.wraps(method)
        def call(self, *args, **named):
            try:
                signature.bind(self, *args, **named)
            except TypeError:
                got = ", ".join([*map(describe, args), *(f"{key}=..." for key in named)])
                raise expected(f"{self.spec.name}: {name}", f"called as {usage}",
                               f"{name}({got})") from None
            return method(self, *args, **named)

        return call

    return decorate


def with_iteration(draw_reset: Callable[..., Any]) -> Callable[..., Any]:
    """Return `draw_reset(self, key, shape, t)` of a function that may omit `t`."""
    try:
        inspect.signature(draw_reset).bind("self", "key", "shape", "t")
    except TypeError:
        pass
    else:
        return draw_reset

    @functools.wraps(draw_reset)
    def drawn(self, key, shape, t=None):
        return draw_reset(self, key, shape)

    return drawn


def _drawn(env: Any, shape: tuple[int, ...]) -> Any:
    """Return the shapes of the environment's noise of resets."""
    return jax.eval_shape(lambda: env.draw_reset(jax.random.key(0), shape, np.int32(0)))


def _holds_no_arrays(env: Any, noise: Any) -> bool:
    """Return whether `noise` is no tree of arrays, or an empty one that the environment lacks."""
    if leaves := jax.tree.leaves(noise):
        return any(isinstance(x, np.number) or not hasattr(x, "shape") for x in leaves)
    return jax.tree.structure(noise) != jax.tree.structure(_drawn(env, (1,)))


def _is_noise(env: Any, words: jax.Array) -> bool:
    """Return whether uint32[2], also an older key, is the environment's noise of two resets."""
    x = _drawn(env, words.shape)
    return getattr(x, "shape", None) == words.shape and x.dtype == words.dtype


def is_key(x: Any) -> bool:
    """Return whether `x` is one random key, in either of JAX's forms."""
    shape, dtype = getattr(x, "shape", None), getattr(x, "dtype", None)
    if shape is None or dtype is None:
        return False
    if shape == (2,):
        return dtype == jnp.uint32
    return shape == () and random.is_typed(x)


def pair(spec: EnvSpec, function: str, found: Any) -> tuple[Any, Any]:
    """Return (state, obs) of a function that resets."""
    if not isinstance(found, tuple) or len(found) != 2:
        raise ConfigError(f"{spec.name}: {function}", describe(found), "two values (state, obs)")
    numeric(spec, function, state=found[0], obs=found[1])
    return found


def numeric(spec: EnvSpec, function: str, **values: PyTree) -> None:
    """Raise ConfigError for a leaf of the values of `function` that is no array and no number."""
    for path, x in jax.tree_util.tree_leaves_with_path(values):
        field = f"{spec.name}: {path[0].key}{jax.tree_util.keystr(path[1:])} of {function}"
        try:
            jnp.result_type(x)
            known = not isinstance(x, (str, type, np.dtype))  # JAX reads "b" as a dtype
        except (TypeError, ValueError):
            known = False
        if not known:
            raise ConfigError(field, type(x).__name__, "an array or a number")
        _check_held(field, x)


def _check_held(field: str, x: Any) -> None:
    """Raise ConfigError for integers of NumPy or Python beyond JAX's, which would wrap."""
    own = x.dtype if isinstance(x, (np.ndarray, np.integer)) else np.dtype(int)
    if not isinstance(x, (np.ndarray, np.integer, int)) or own.kind not in "iu":
        return
    limits = np.iinfo(jax.dtypes.canonicalize_dtype(own))
    x = np.ravel(x)
    lost = x[(x < limits.min) | (x > limits.max)]
    if lost.size:
        valid = f"from {limits.min} to {limits.max}, or a float: JAX holds {limits.dtype}"
        raise ConfigError(field, int(lost[0]), valid)


def outcome_of(spec: EnvSpec, found: Any, before: PyTree, num_envs: int) -> tuple[PyTree, Outcome]:
    """Return (state, Outcome) in the state's and the spec's dtypes, each end of one kind."""
    if not isinstance(found, tuple) or len(found) != 2 or not isinstance(found[1], Outcome):
        raise ConfigError(f"{spec.name}: transition", describe(found),
                          "two values (state, jaxrl_fast.types.Outcome(next_obs, reward, "
                          "terminated, truncated))")
    state, outcome = found
    ends = [array(f"{spec.name}: {name}", getattr(outcome, name), (num_envs,), bool)
            for name in ("terminated", "truncated")]
    outcome = outcome._replace(
        next_obs=observation(spec, "next_obs", outcome.next_obs, num_envs),
        reward=number(f"{spec.name}: reward", outcome.reward, (num_envs,)),
        terminated=ends[0],
        truncated=ends[1] & ~ends[0],
        info=info_of(spec, outcome.info, num_envs),
    )
    if given(outcome.score, None) is not None:
        outcome = outcome._replace(score=number(f"{spec.name}: score", outcome.score, (num_envs,)))
    if given(outcome.over, None) is not None:
        outcome = outcome._replace(
            over=array(f"{spec.name}: over", outcome.over, (num_envs,), bool)
        )
    return like(spec, state, before), outcome


def info_of(spec: EnvSpec, info: Any, num_envs: int) -> dict[str, jax.Array] | tuple[()]:
    """Return an outcome's reports as float32 [B], or ()."""
    if not isinstance(info, dict):
        if info == ():
            return ()
        raise ConfigError(f"{spec.name}: info", describe(info),
                          "a dict of numbers, one an environment")
    check_names(spec, info)
    return {name: number(f"{spec.name}: info[{name!r}]", x, (num_envs,))
            for name, x in info.items()} or ()


def check_names(spec: EnvSpec, info: dict[Any, Any]) -> None:
    """Raise ConfigError for names that are no non-empty strings."""
    for name in info:
        if not isinstance(name, str) or not name:
            raise ConfigError(f"{spec.name}: a name in info", name, "a non-empty string")


def like(spec: EnvSpec, state: PyTree, before: PyTree, when: str = "a step") -> PyTree:
    """Return the state after a step or reset in the dtypes of the one before."""
    a, b = jax.tree.structure(state), jax.tree.structure(before)
    field, why = f"{spec.name}: state", "as `reset` gave it"
    if a != b:
        raise ConfigError(f"{field} after {when}", str(a), f"{b}, {why}")
    leaves = zip(jax.tree_util.tree_leaves_with_path(state), jax.tree.leaves(before), strict=True)
    same = [
        array(f"{field}{jax.tree_util.keystr(path)} after {when}", x,
              jnp.shape(y), jnp.result_type(y), why)
        for (path, x), y in leaves
    ]
    return jax.tree.unflatten(a, same)


def observation(spec: EnvSpec, field: str, obs: PyTree, num_envs: int) -> PyTree:
    """Return an observation [B, ...] in the dtypes of its space."""
    return of_space(f"{spec.name}: {field}", spec.observation, obs, num_envs, dtypes=True)


def of_space(field: str, space: Space, value: Any, num_envs: int, dtypes: bool) -> Any:
    """Return values [B, ...] of a space as arrays of its shapes and, if `dtypes`, dtypes."""
    if not isinstance(space, Dict):
        return array(field, value, (num_envs, *space.shape), space.dtype if dtypes else None)
    names = [name for name, _ in space.items]  # sorted
    if not isinstance(value, dict) or sorted(value) != names:
        seen = sorted(value) if isinstance(value, dict) else type(value).__name__
        raise ConfigError(field, seen, f"a dict of {', '.join(names)}, as its space says")
    return {name: of_space(f"{field}[{name!r}]", child, value[name], num_envs, dtypes)
            for name, child in space.items}


def number(field: str, value: Any, shape: tuple[int, ...] = ()) -> jax.Array:
    """Return a real number of any dtype as float32."""
    value = array(field, value, shape)
    if not (jnp.issubdtype(value.dtype, jnp.number)
            or value.dtype == bool) or jnp.iscomplexobj(value):
        raise ConfigError(field, f"{value.dtype}{list(shape)}", f"float32{list(shape)}")
    return value.astype(jnp.float32)


def array(field: str, value: Any, shape: tuple[int, ...], dtype: Any = None,
          why: str = "") -> jax.Array:
    """Return `value` as an array of this shape, and of `dtype` if nothing is lost."""
    try:
        seen, kind = jnp.shape(value), jnp.result_type(() if value is None else value)
    except (TypeError, ValueError):  # a tuple, dict or None in the place of an array
        raise ConfigError(field, type(value).__name__, f"an array of shape {list(shape)}") from None
    if seen != shape or (dtype is not None and not _fits(kind, dtype)):
        if shape and not why:
            why = f"{shape[0]} being the environments that are stepped together"
        wanted = f"{kind if dtype is None else jnp.dtype(dtype)}{list(shape)}"
        wanted += f", {why}" if why else ""
        wide = jax.config.jax_enable_x64 and str(kind) in ("int64", "uint64", "float64")
        hint = f". {WIDE}" if wide and seen == shape else ""
        raise ConfigError(field, f"{kind}{list(seen)}", wanted + hint)
    _check_held(field, value)
    return jnp.asarray(value) if dtype is None or kind == dtype else jnp.asarray(value, dtype)


def _fits(kind: Any, dtype: Any) -> bool:
    """Return whether every value of a dtype is one of another; floats fit into any float."""
    if kind == dtype:
        return True
    if any(jax.dtypes.issubdtype(x, jax.dtypes.extended) for x in (kind, dtype)):
        return False  # keys
    if jnp.issubdtype(kind, jnp.floating):
        return jnp.issubdtype(dtype, jnp.floating)
    return bool(np.can_cast(kind, dtype, "safe"))


def describe(found: Any) -> str:
    """Describe a return value: a tuple's values, an array's dtype and shape, or a type."""
    if isinstance(found, (tuple, list)) and not hasattr(found, "_fields"):
        return (
            f"{len(found)} values "
            f"({', '.join(describe(x) if not isinstance(x, tuple) else 'tuple' for x in found)})"
        )
    shape, dtype = getattr(found, "shape", None), getattr(found, "dtype", None)
    return type(found).__name__ if shape is None or dtype is None else f"{dtype}{list(shape)}"
