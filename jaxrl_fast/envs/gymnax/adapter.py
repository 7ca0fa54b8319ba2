"""Adapter of gymnax 1.0: fresh resets, the terminal observation, two kinds of end.

It uses `reset_env`, `step_env` and `is_truncated`, not `step`, whose auto-reset would run a second
reset and hide the end. In gymnax 1.0 `step_env` reports natural ends and `is_truncated` the time
limit; if both fall on one step (always in DeepSea), it is a termination.
"""

from __future__ import annotations

import dataclasses
import functools
import math
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np

from jaxrl_fast import fields, tree
from jaxrl_fast.envs.api import Env
from jaxrl_fast.envs.gymnax import loading
from jaxrl_fast.envs.native import draw
from jaxrl_fast.envs.suggest import suggest
from jaxrl_fast.envs.tracing import depends_on_inputs
from jaxrl_fast.errors import ConfigError, check_int, expected
from jaxrl_fast.spaces import Box, Dict, Discrete, Space
from jaxrl_fast.types import EnvSpec, Outcome

# Names of gymnax 1.0, so that listing them imports nothing.
NAMES = (
    "CartPole-v1", "Pendulum-v1", "Acrobot-v1", "MountainCar-v0", "MountainCarContinuous-v0",
    "Asterix-MinAtar", "Breakout-MinAtar", "Freeway-MinAtar", "Seaquest-MinAtar",
    "SpaceInvaders-MinAtar",
    "Catch-bsuite", "DeepSea-bsuite", "MemoryChain-bsuite", "UmbrellaChain-bsuite",
    "DiscountingChain-bsuite",
    "SimpleBandit-bsuite", "FourRooms-misc", "MetaMaze-misc", "PointRobot-misc",
    "BernoulliBandit-misc",
    "GaussianBandit-misc", "Reacher-misc", "Swimmer-misc", "Pong-misc", "FrozenLake-misc",
)  # fmt: skip
LEFT_OUT = {"MNISTBandit-bsuite": "another one: it downloads its data set when it is built"}


def _observed_bounds(name: str, space: Box, params: Any) -> Box:
    """Return the box of the environment's real observations, if gymnax declares another."""
    low, high = (bound.astype(np.float64).copy() for bound in space.bounds())
    limit = float(params.max_steps_in_episode)
    if name == "MemoryChain-bsuite":  # declared from 0 up; the context is -1 or 1
        low[:] = -1.0
    elif name == "GaussianBandit-misc":
        # declared [0, n]; a normal reward, an action, time in [-1, 1] or steps
        low[0], high[0], low[-1], high[-1] = -math.inf, math.inf, -1.0, max(1.0, limit)
    elif name == "MetaMaze-misc":
        # declared reward at most 1 (it pays 10), time from 0 (normalised, from -1)
        reach = abs(float(params.reward)) + abs(float(params.punishment))
        low[-2:], high[-2:] = (-reach, -1.0), (reach, max(1.0, limit))
    elif name == "BernoulliBandit-misc":  # normalised time passes 1 if the limit passes t_max
        high[-1] = max(high[-1], limit)
    else:
        return space
    return dataclasses.replace(space, low=tuple(low), high=tuple(high))


def space_of(space: Any, name: str = "", who: str = "") -> Space:
    """Return a gymnax space as ours; name: of gymnax's environment; who: for errors."""
    kind = type(space).__name__
    if kind == "Discrete":
        return Discrete(int(space.n))
    if kind == "Box":
        # MinAtar's channels are zeros and ones: bytes make rollouts and replay four times smaller.
        # Other boxes become float32, also if gymnax declares int32 (Catch) or floats (FourRooms).
        dtype = jnp.uint8 if name.endswith("-MinAtar") else jnp.float32
        low, high = (np.asarray(b, np.float64) for b in (space.low, space.high))
        huge = float(np.finfo(np.float32).max)
        low, high = np.where(low <= -huge, -np.inf, low), np.where(high >= huge, np.inf, high)
        return Box(tuple(low.reshape(-1)), tuple(high.reshape(-1)),
                   tuple(np.atleast_1d(space.shape)), dtype)
    if kind == "Dict":
        return Dict(tuple(sorted((k, space_of(v, "", who)) for k, v in space.spaces.items())))
    if kind == "Tuple":
        return Dict(tuple((str(i), space_of(v, "", who)) for i, v in enumerate(space.spaces)))
    raise ConfigError("environment", name or who,
                      f"an environment with spaces we know; gymnax's {kind} is not among them")


def cast(value: Any, space: Space, name: str) -> Any:
    """Return gymnax's observation in our dtype; raises ConfigError for a Discrete fraction."""
    if isinstance(space, Dict):
        children = value if isinstance(value, dict) else {str(i): v for i, v in enumerate(value)}
        return {key: cast(children[key], child, f"{name}[{key!r}]") for key, child in space.items}
    if not isinstance(space, Box) and jnp.issubdtype(value.dtype, jnp.floating):
        raise expected(name, f"{space.dtype.name}, as its space says", str(value.dtype))
    return value.astype(space.dtype)


@functools.partial(jax.tree_util.register_dataclass, data_fields=["params"],
                   meta_fields=["env", "known_spec"])
@dataclasses.dataclass(frozen=True, eq=False, repr=False)
class GymnaxEnv(Env):
    """One gymnax environment, vmapped; its parameters are leaves, so physics can be swept."""

    env: Any  # gymnax's object, static by identity (`make` caches it)
    params: Any  # int32, float32 and bool leaves; without the limit, which is static
    known_spec: EnvSpec  # found from concrete parameters; inside a program they are tracers

    @property
    def spec(self) -> EnvSpec:
        return self.known_spec

    @property
    def _params(self) -> Any:
        # gymnax indexes some with traced indices, which NumPy scalars do not allow
        params = jax.tree.map(jnp.asarray, self.params)
        return params.replace(max_steps_in_episode=jnp.int32(self.spec.max_episode_steps))

    @loading.in_32_bits
    def _reset_one(self, key: jax.Array) -> tuple[Any, Any]:
        obs, state = self.env.reset_env(key, self._params)
        obs = cast(jax.tree.map(jnp.asarray, obs), self.spec.observation, f"{self.spec.name}: obs")
        return tree.strong((jax.tree.map(jnp.asarray, state), obs))

    def draw_reset(self, key, shape):
        """Draw first states and observations, without leaves that are equal in every reset."""
        keys = jax.random.split(key, (math.prod(shape),))
        leaves = jax.tree.leaves(jax.vmap(self._reset_one)(keys))
        random = [x for x, is_random in zip(leaves, self._random_leaves(), strict=True)
                  if is_random]
        random = random or [jnp.zeros(keys.shape, jnp.uint8)]  # tells the number of environments
        return [x.reshape(*shape, *x.shape[1:]) for x in random]

    def reset(self, noise):
        fixed, structure = jax.tree.flatten(self._reset_one(jax.random.key(0)))
        batch, drawn = noise[0].shape[:1], iter(noise)
        leaves = [
            next(drawn) if is_random else jnp.broadcast_to(x, batch + x.shape)
            for x, is_random in zip(fixed, self._random_leaves(), strict=True)
        ]
        return jax.tree.unflatten(structure, leaves)

    def _random_leaves(self) -> list[bool]:
        """Return which leaves of (state, obs) depend on a reset's key."""
        return depends_on_inputs(jax.make_jaxpr(self._reset_one)(jax.random.key(0)).jaxpr)

    def draw_step(self, key, num_steps, num_envs, t):
        return jax.random.split(key, (num_steps, num_envs))

    def _step_one(self, key: jax.Array, state: Any, action: Any) -> tuple:
        """Step one environment -> (state, obs, reward, terminated, truncated, info for the log)."""
        params = self._params
        obs, new, reward, terminated, _ = self.env.step_env(key, state, action, params)
        truncated = self.env.is_truncated(new, params)
        # Dtypes of the reset: some environments turn an int into a float or a bool.
        new = jax.tree.map(lambda x, like: jnp.asarray(x).astype(like.dtype), new, state)
        return new, obs, jnp.asarray(reward), jnp.asarray(terminated), truncated, ()

    def transition(self, noise, state, action):
        step = jax.vmap(loading.in_32_bits(self._step_one))
        state, obs, reward, *ends, info = step(noise, state, action)
        obs = cast(obs, self.spec.observation, f"{self.spec.name}: next_obs")
        terminated, truncated = (end.astype(bool) for end in ends)
        return state, Outcome(obs, reward.astype(jnp.float32), terminated, truncated, info)

    @property
    def drawing(self):
        space = self.spec.observation
        grid = isinstance(space, Box) and len(space.shape) in (2, 3) and min(space.shape[:2]) > 1
        return super().drawing if grid else None

    def render(self, state):
        """Draw grids of channels (MinAtar, Catch, DeepSea, Pong) as coloured cells; else None."""
        if self.drawing is None:
            return None
        space = self.spec.observation
        picture = _grid(self.env, state, self._params)
        return draw.grid(np.asarray(picture), cell=20 if max(space.shape[:2]) <= 13 else 8)


@functools.partial(jax.jit, static_argnums=0)
def _grid(env: Any, state: Any, params: Any) -> jax.Array:
    return env.get_obs(state, params=params)


@functools.cache
@loading.in_32_bits
def _construct(name: str, kwargs: tuple[tuple[str, Any], ...]) -> Any:
    """Return gymnax's object; cached, because it is static by identity."""
    listed = {k: list(v) if isinstance(v, tuple) else v for k, v in kwargs}
    try:
        return loading.gymnax().registration.make(name, **listed)[0]
    except (ValueError, TypeError, AssertionError, IndexError) as error:
        valid = f"arguments that gymnax accepts: {error or 'assertion failed'}"
        raise ConfigError(f"env ({name})", listed, valid) from None


def defaults(name: str) -> dict[str, Any]:
    """Return {setting: default} of gymnax's `name`: constructor arguments, then parameters."""
    constructor, params = _defaults(name)
    return {**constructor, **{k: v for k, v in params.items() if k not in constructor}}


@functools.cache
@loading.in_32_bits
def _defaults(name: str) -> tuple[dict[str, Any], dict[str, Any]]:
    if name in LEFT_OUT:
        raise ConfigError("environment", name, LEFT_OUT[name])
    if name not in NAMES:
        near = suggest(f"gymnax:{name}".replace("gymnax:gymnax:", "gymnax:"),
                       map("gymnax:".__add__, NAMES))
        raise ConfigError("environment", f"gymnax:{name}", f"an environment of gymnax 1.0{near}")
    factory = loading.gymnax().registration._registry[name]
    # DeepSea's `action_mapping_key` is an array and no part of a name: its mapping stays
    constructor = {k: v for k, v in fields.defaults_of(factory).items()
                   if k != "action_mapping_key"}
    params = _construct(name, ()).default_params
    params = {f.name: plain(getattr(params, f.name)) for f in dataclasses.fields(params)}
    # a float in BernoulliBandit
    return constructor, params | {"max_steps_in_episode": int(params["max_steps_in_episode"])}


def plain(value: Any) -> Any:
    """Return arrays as tuples of Python numbers, to show, compare and cache settings."""
    if isinstance(value, (bool, int, float)):
        return value
    return tuple(np.asarray(value).tolist()) if np.ndim(value) else np.asarray(value).item()


def leaf(argument: str, value: Any, default: Any) -> Any:
    """Return a parameter as a strong NumPy scalar or array; a device array (a sweep) passes."""
    if isinstance(value, jax.Array):
        return value
    fields.check_like(argument, value, default, low=0)
    if isinstance(default, bool):
        return np.bool_(value)
    if isinstance(default, int):
        return np.int32(value)
    if isinstance(default, tuple):
        array = np.asarray(value)
        if array.shape != np.shape(default) or array.dtype.kind not in "if" or not np.all(
            np.isfinite(array)
        ):
            raise ConfigError(argument, value, f"{len(default)} finite numbers")
        return array.astype(np.int32 if isinstance(default[0], int) else np.float32)
    return np.float32(value)


@loading.in_32_bits
def make(name: str, **settings: Any) -> GymnaxEnv:
    """Return gymnax's environment `name`; settings are its constructor's or its parameters'."""
    constructor, _ = _defaults(name)
    for k in constructor.keys() & settings.keys():
        fields.check_like(f"env.{k}", settings[k], constructor[k],
                          low=0 if k in ("mapping_seed", "n_distractor") else 1)
    chosen = {k: settings[k] for k in constructor.keys() & settings.keys()
              if settings[k] != constructor[k]}
    env = _construct(name, tuple(sorted(chosen.items())))
    # DeepSea's and FrozenLake's time limits depend on the constructor
    defaults_here = env.default_params
    limit = settings.get("max_steps_in_episode", int(defaults_here.max_steps_in_episode))
    check_int("env.max_steps_in_episode", limit)
    usual = {f.name: plain(getattr(defaults_here, f.name))
             for f in dataclasses.fields(defaults_here)}
    del usual["max_steps_in_episode"]
    leaves = {k: leaf(f"env.{k}", settings.get(k, x), x) for k, x in usual.items()}
    # a float in BernoulliBandit, used by its spaces
    kind = type(defaults_here.max_steps_in_episode)
    full = defaults_here.replace(**leaves, max_steps_in_episode=kind(limit))
    observation = space_of(env.observation_space(full), name)
    if isinstance(observation, Box):
        observation = _observed_bounds(name, observation, full)
    spec = EnvSpec(name, observation, space_of(env.action_space(full)), int(limit))
    return GymnaxEnv(env, full.replace(max_steps_in_episode=None), spec)
