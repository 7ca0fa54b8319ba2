"""A user's environment in gymnax's form, with either step signature.

    step_env(key, state, action, params) -> obs, state, reward, done, info
    step_env(key, state, action, params) -> obs, state, reward, terminated, truncated, info

The kind of end of `done`: if `info["discount"]` says more than `done`, a discount of 0 is a
termination and every other end a truncation. Otherwise an end at the time limit is a truncation if
`done` reads `params.max_steps_in_episode`, else a termination; `is_truncated` then has the limit.
"""

from __future__ import annotations

import dataclasses
import functools
from collections.abc import Callable
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np

from jaxrl_fast.envs import checks
from jaxrl_fast.envs.gymnax import adapter as gymnax_adapter
from jaxrl_fast.envs.gymnax.adapter import GymnaxEnv, leaf, plain
from jaxrl_fast.envs.tracing import depends_on_inputs
from jaxrl_fast.errors import ConfigError, check_int
from jaxrl_fast.spaces import Box, Dict, Space, zeros
from jaxrl_fast.types import EnvSpec

LIMIT = "max_steps_in_episode"


def is_gymnax(value: Any) -> bool:
    """Return whether `value` is an environment of gymnax's form or a class of them; no import."""
    return all(hasattr(value, name) for name in ("reset_env", "step_env", "default_params",
                                                 "observation_space", "action_space"))


def _six(name: str, found: Any) -> tuple:
    """Return (obs, state, reward, done or terminated, truncated or None, info)."""
    size = len(found) if isinstance(found, (tuple, list)) else 0
    if size not in (5, 6):
        raise ConfigError(f"{name}: step_env", f"{size} values" if size else type(found).__name__,
                          "(obs, state, reward, done, info) or (obs, state, reward, terminated, "
                          "truncated, info)")
    return tuple(found) if size == 6 else (*found[:4], None, found[4])


@functools.partial(jax.tree_util.register_dataclass, data_fields=["params"],
                   meta_fields=["env", "known_spec", "fixed", "ends"])
@dataclasses.dataclass(frozen=True, eq=False, repr=False)
class OwnGymnaxEnv(GymnaxEnv):
    """A user's gymnax environment: floats of `params` are leaves, other numbers `fixed`.

    ends: "discount", "limit" (inside of `done`), "apart" or "six".
    """

    fixed: tuple[tuple[str, Any], ...] = ()
    ends: str = "apart"

    @property
    def _params(self) -> Any:
        return dataclasses.replace(jax.tree.map(jnp.asarray, self.params), **dict(self.fixed))

    def _step_one(self, key, state, action):
        params, name = self._params, self.spec.name
        found = _six(name, self.env.step_env(key, state, action, params))
        obs, new, reward, done, truncated, info = found
        done = checks.array(f"{name}: done", done, (), bool)
        if self.ends == "six":
            terminated, truncated = done, checks.array(f"{name}: truncated", truncated, (), bool)
        else:
            limit = _limit(self.env, new, params, self.spec.max_episode_steps)
            goes_on = (jnp.asarray(info["discount"]) != 0 if self.ends == "discount"
                       else limit & (self.ends == "limit"))
            terminated, truncated = done & ~goes_on, done & goes_on | limit
        new, reward = checks.like(self.spec, new, state), checks.number(f"{name}: reward", reward)
        return new, obs, reward, terminated, truncated, _numbers(info) or ()

    def render(self, state):
        try:
            return super().render(state)
        except Exception:  # no `get_obs`, or another signature: no picture
            return None


def _numbers(info: Any) -> dict[str, jax.Array]:
    """Return the numbers of a step's info for the log, without the discount."""
    found = info if isinstance(info, dict) else {}
    named = {k: v for k, v in found.items() if isinstance(k, str) and k not in ("", "discount")}
    return {k: jnp.asarray(v) for k, v in named.items() if _is_numeric(v) and jnp.shape(v) == ()}


def _is_numeric(value: Any) -> bool:
    """Return whether `value` is a number or an array of numbers."""
    kind = getattr(getattr(value, "dtype", None), "kind", "-")
    return isinstance(value, (bool, int, float)) or kind in "biuf"


def _limit(env: Any, state: Any, params: Any, limit: int | None) -> jax.Array:
    """Return whether the episode reached its time limit, by `is_truncated`, own or inherited."""
    if limit is None:
        return jnp.bool_(False)
    if hasattr(env, "is_truncated") and hasattr(state, "time"):
        return jnp.asarray(env.is_truncated(state, params)).astype(bool)
    return jnp.asarray(getattr(state, "time", 0)) >= limit


def _ends(env: Any, name: str, params: Any, action: Any) -> str:
    """Return what distinguishes the two kinds of end, from the traced step."""
    has_limit = hasattr(params, LIMIT)

    def ends(limit, key, action):
        given = dataclasses.replace(params, **{LIMIT: limit}) if has_limit else params
        _, state = env.reset_env(key, given)
        *_, done, truncated, info = _six(name, env.step_env(key, state, action, given))
        discount = info.get("discount") if isinstance(info, dict) else None
        found = {"done": done, "discount": discount, "truncated": truncated}
        return {k: jnp.asarray(v) for k, v in found.items() if v is not None}

    shapes = jax.eval_shape(ends, np.int32(1), jax.random.key(0), action)
    if "truncated" in shapes:
        return "six"
    looks = dict.fromkeys(shapes, False)
    if has_limit:
        closed = jax.make_jaxpr(ends)(np.int32(1), jax.random.key(0), action)
        looks = dict(zip(sorted(shapes), depends_on_inputs(closed.jaxpr, 1), strict=True))
    if "discount" in looks and not looks["discount"]:
        return "discount"
    return "limit" if looks["done"] else "apart"


def defaults(env: Any, name: str) -> dict[str, Any]:
    """Return the numbers and tuples of numbers in `default_params`, each a setting."""
    params = env.default_params
    valid = "a flax.struct.dataclass whose numbers are its leaves"
    if not dataclasses.is_dataclass(params) or any(x is params for x in jax.tree.leaves(params)):
        raise ConfigError(f"{name}: default_params", type(params).__name__, valid)
    found = {f.name: getattr(params, f.name) for f in dataclasses.fields(params)}
    each = lambda x: x if isinstance(x, (tuple, list)) else (x,)
    return {k: plain(v) for k, v in found.items() if all(map(_is_numeric, each(v)))}


def adapt(env: Any, name: str, **settings: Any) -> OwnGymnaxEnv:
    """Return the environment object `env`, called `name`, with parameters from `settings`."""
    known = defaults(env, name)
    limit = settings.get(LIMIT, known.pop(LIMIT, None))
    if limit is not None:
        check_int(f"env.{LIMIT}", int(limit) if isinstance(limit, float)
                  and limit == int(limit) else limit)
        limit = int(limit)
    leaves = {k: leaf(f"env.{k}", settings.get(k, v), v) for k, v in known.items()}
    fixed = {k: v.item() for k, v in leaves.items() if isinstance(v, (np.int32, np.bool_))}
    fixed |= {} if limit is None else {LIMIT: limit}
    full = dataclasses.replace(env.default_params, **leaves | fixed)
    action = gymnax_adapter.space_of(env.action_space(full), "", name)
    declared = env.observation_space(full)
    given = jax.eval_shape(lambda key: env.reset_env(key, full)[0], jax.random.key(0))
    observation = _as_given(gymnax_adapter.space_of(declared, "", name), declared, given)
    spec = EnvSpec(name, observation, action, limit)
    ends = _ends(env, name, full, jax.tree.map(lambda x: x[0], zeros(action, (1,))))
    params = dataclasses.replace(full, **dict.fromkeys(fixed))
    return OwnGymnaxEnv(env, params, spec, tuple(sorted(fixed.items())), ends)


def _as_given(space: Space, own: Any, given: Any) -> Space:
    """Return our space, with integers if the environment declares and returns them."""
    if isinstance(space, Dict):
        inner = own.spaces
        if not isinstance(own.spaces, dict):
            inner = {str(i): s for i, s in enumerate(own.spaces)}
        at = given if isinstance(given, dict) else {str(i): x for i, x in enumerate(given)}
        return Dict(tuple((k, _as_given(child, inner[k], at[k])) for k, child in space.items))
    if not isinstance(space, Box) or not hasattr(given, "dtype"):
        return space
    whole = all(np.dtype(x.dtype).kind in "iu" for x in (own, given))
    return dataclasses.replace(space, dtype=np.dtype(given.dtype)) if whole else space


def construct(source: Callable[..., Any], arguments: dict[str, Any]) -> Any:
    """Return gymnax's object, one a set of arguments: it is static by identity."""
    try:
        return _construct(source, tuple(sorted(arguments.items())))
    except TypeError as error:
        if "unhashable" not in str(error):
            raise
        return source(**arguments)


@functools.cache
def _construct(source: Callable[..., Any], arguments: tuple[tuple[str, Any], ...]) -> Any:
    return source(**dict(arguments))
