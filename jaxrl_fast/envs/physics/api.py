"""Environments of brax and of MuJoCo Playground: `reset(key) -> State`, `step(State, action) -> State`, one at a time.

What is used of them is their physics alone. Auto-reset, the time limit and the two kinds of end are ours, as for every
environment: resets are fresh, `Outcome.next_obs` is the true successor, `done` of the environment is a termination and
`episode_length` a truncation.

A reset costs a tenth to a fifth of a step, and few steps end an episode, so one for every environment at every step
would be waste. With `resets="pool"` an iteration draws `reset_pool` of them, once, before its rollout, and environments
whose episodes end share them out. They are renewed every iteration; within one, two episodes may have the same start by
chance. There are at least as many as environments: those that end together must not begin together, for they would stay
in lockstep. In rollouts of one step, as off-policy algorithms have them, that would be all resets of every step: there they
are computed only when an episode ends.
"""

from __future__ import annotations

import copy
import functools
import math
from typing import Any, NamedTuple

import jax
import jax.numpy as jnp

from jaxrl_fast import random, tree
from jaxrl_fast.envs.api import LAST, Env, Rare
from jaxrl_fast.envs.physics.randomize import Randomizer
from jaxrl_fast.errors import ConfigError, check_choice, check_float, check_int, is_number, nearest
from jaxrl_fast.spaces import Box, Dict, Space
from jaxrl_fast.summary import summary
from jaxrl_fast.types import EnvSpec, Outcome, Shared

STEPS_A_RESET = 64
# What fits a core's cache: so many bytes of states and actions, whose step has several times as much in hand, and so many
# environments in any case. Blocks of less than a quarter of these are not worth their loop.
BLOCK_BYTES, BLOCK_ENVS = 200_000, 64


class Setting(NamedTuple):
    default: Any
    help: str
    choices: tuple[str, ...] = ()


# The settings of all of them.
ABOUT: dict[str, Setting] = {
    "episode_length": Setting(1000, "steps of the physics after which an episode is truncated"),
    "resets": Setting(
        "pool", "where new episodes begin: shared out from a pool of an iteration's own, or each fresh", ("pool", "every_step")
    ),
    "reset_pool": Setting(
        0, f"resets in the pool; 0: one for every {STEPS_A_RESET} steps of an environment, and one an environment at least"
    ),
    "randomize": Setting("", "leaves of the physical model times factors that every episode draws: leaf=low:high, ..."),
    "randomize_warmup": Setting(0, "iterations over which those ranges open from 1 alone to the whole"),
}


class PhysicsState(NamedTuple):
    """[B]"""

    physics: Any  # brax's pipeline state, or MJX's data
    info: dict[str, Any]  # what the environment keeps for itself
    time: jax.Array  # int32: steps since the reset
    varied: list[jax.Array]  # the leaves of the physical model that are drawn anew at every reset; none without

    __repr__ = summary


class Fresh(NamedTuple):
    """Noise of a reset: a key an environment, and the iteration."""

    key: jax.Array  # [B]
    t: Shared


class Start(NamedTuple):
    """The same where all environments begin: once, so it is compiled for little and not for speed."""

    key: jax.Array  # [B]
    t: Shared


class Pooled(NamedTuple):
    """Noise of a reset: which of the resets in the pool."""

    pool: Shared  # (state, obs) [P]
    index: jax.Array  # [B]


class PhysicsEnv(Env):
    """One such environment, vmapped. Static by identity (`make` caches it), and a pytree without leaves."""

    physics_field = ""  # of the environment's State
    model_attribute = ""  # the environment's physical model

    def __init_subclass__(cls):
        jax.tree_util.register_static(cls)

    def __init__(
        self, name: str, env: Any, episode_length: int, resets: str, reset_pool: int, randomize: Any, action: Box
    ):
        """`randomize`: () or a function (key, model, t) -> model."""
        check_int("env.episode_length", episode_length)
        check_choice("env.resets", resets, ABOUT["resets"].choices)
        check_int("env.reset_pool", reset_pool, low=0)
        if reset_pool and resets == "every_step":
            raise ConfigError("env.reset_pool", reset_pool, "0 with env.resets = 'every_step', which has no pool")
        self.env, self.resets, self.reset_pool = env, resets, int(reset_pool)
        self._parts, self._divided = 1, {}  # devices that the environments are divided over; itself for other numbers of them
        # What a State is made of; found by tracing alone, for a reset that runs op by op takes seconds.
        self.template = jax.eval_shape(env.reset, jax.eval_shape(jax.random.PRNGKey, 0))
        self._spec = EnvSpec(name, _space(self.template.obs), action, int(episode_length))
        model = getattr(env, self.model_attribute)
        self.randomizer = Randomizer(model, randomize, self._trial, self.inert) if randomize else None

    @property
    def spec(self):
        return self._spec

    @property
    def step_seconds(self):
        return float(self.env.dt) if hasattr(self.env, "dt") else None

    def on_device(self, parts=1):
        if parts == self._parts:
            return self
        kind = type(self), parts
        if kind not in self._divided:  # once: programs are kept by the environment that they are of
            self._divided[kind] = copy.copy(self)
            self._divided[kind]._parts = parts
        return self._divided[kind]

    def draw_reset(self, key, shape):
        return Start(random.split(key, shape), Shared(jnp.int32(LAST)))

    def draw_start(self, key, num_envs, t):
        t = LAST if t is None else t
        return Start(random.split(key, num_envs), Shared(jnp.asarray(t, jnp.int32)))

    def draw_resets(self, key, num_steps, num_envs, t):
        all_at_once = num_steps == 1 and (self.reset_pool or num_envs) >= num_envs
        if self.resets == "every_step" or all_at_once:
            fresh = Fresh(random.split(key, (num_steps, num_envs)), Shared(jnp.asarray(t, jnp.int32)))
            return fresh if self.resets == "every_step" else Rare(fresh)
        turns = num_steps * num_envs
        few = math.ceil(turns / STEPS_A_RESET)
        size = min(self.reset_pool or max(few, num_envs), turns)
        pool_key, offset_key = random.split(key)
        reset = self._reset_few if size <= few else self._reset_all
        pool = reset(random.split(pool_key, size), jnp.asarray(t, jnp.int32))
        # Those that end together take entries next to each other, from a place drawn for each step. (Turns that simply
        # go on, t * B + b, would give an environment the same entry at each of its ends where the pool's size divides B.)
        places = random.randint(offset_key, (num_steps, 1), 0, size)
        return Pooled(Shared(pool), (places + jnp.arange(num_envs, dtype=jnp.int32)) % size)

    def reset(self, noise):
        if isinstance(noise, Pooled):
            return tree.take(noise.pool.value, noise.index)
        if isinstance(noise, Start):
            return self._reset_few(noise.key, noise.t.value)
        if isinstance(noise, Rare):  # inside what a wrapper draws, where `Env.step` does not see it
            noise = noise.noise
        return self._reset_all(noise.key, noise.t.value)

    def _reset_all(self, keys: jax.Array, t: jax.Array) -> tuple[PhysicsState, Any]:
        return jax.vmap(lambda key: _reset_one(self, key, t))(keys)

    def _reset_few(self, keys: jax.Array, t: jax.Array) -> tuple[PhysicsState, Any]:
        """Resets that are few beside the steps. On a CPU one after the other: two to five times as slow, but compiled in
        two thirds of the time, which is seconds."""
        in_turn = lambda keys, t: jax.lax.map(lambda key: _reset_one(self, key, t), keys)
        return jax.lax.platform_dependent(keys, t, cpu=in_turn, default=self._reset_all)

    def _with(self, varied: list[jax.Array]) -> Any:
        """The environment with these leaves in its physical model."""
        return self._on(self.randomizer.put(varied)) if self.randomizer else self.env

    def _on(self, model: Any) -> Any:
        """The environment with another physical model."""
        env = copy.copy(self.env)
        setattr(env, self.model_attribute, model)
        return env

    def _step_one(self, env: Any, physics: Any, info: Any, action: jax.Array) -> Any:
        """-> (physics, info, obs, reward, done) of the types that `reset` gave them."""
        # Neither brax's nor Playground's environments read the observation, reward, done and metrics that a State
        # brings along; they only overwrite them. So these need not be carried.
        nothing = {self.physics_field: physics, "info": dict(info)}
        for name in ("obs", "reward", "done", "metrics"):
            nothing[name] = jax.tree.map(lambda x: jnp.zeros(x.shape, x.dtype), getattr(self.template, name))
        new = env.step(self.template.replace(**nothing), action)

        def typed(name: str) -> Any:
            like, value = getattr(self.template, name), getattr(new, name)
            value = {k: value[k] for k in like} if name == "info" else value
            return jax.tree.map(lambda x, like: jnp.asarray(x).astype(like.dtype), value, like)

        return tuple(typed(name) for name in (self.physics_field, "info", "obs", "reward", "done"))

    def _step_all(self, *args: Any) -> Any:
        """`_step_one` of all environments. On a CPU of a block at a time, which stays in the cache of a core: many at once take
        up to twice as long. (Members that are vmapped together are as many blocks at once.)"""
        leaves, structure = jax.tree.flatten(args)
        num_envs, ends = leaves[0].shape[0], None
        parts = self._parts if num_envs % self._parts == 0 else 1  # of an evaluation's episodes perhaps not
        block = parts * _block(num_envs // parts, sum(x.nbytes for x in leaves) // num_envs)

        def at_once(*leaves):
            nonlocal ends
            step = jax.vmap(lambda *args: _step_one(self, *args))
            out, ends = jax.tree.flatten(step(*jax.tree.unflatten(structure, leaves)))
            return out

        def in_blocks(*leaves):
            # Each block takes an equal share of every device's environments, so none of them moves.
            split = lambda x: jnp.moveaxis(x.reshape(block, num_envs // block, *x.shape[1:]), 1, 0)
            join = lambda x: jnp.moveaxis(x, 0, 1).reshape(num_envs, *x.shape[2:])
            return [join(x) for x in jax.lax.map(lambda part: at_once(*part), [split(x) for x in leaves])]

        out = at_once(*leaves) if block == num_envs else jax.lax.platform_dependent(*leaves, cpu=in_blocks, default=at_once)
        return jax.tree.unflatten(ends, out)

    def _trial(self, model: Any, key: jax.Array) -> Any:
        """What an agent sees of some steps with another model, for the check of randomised leaves."""
        env = self._on(model)
        new = env.reset(key)
        start = tree.strong(jax.tree.map(jnp.asarray, (getattr(new, self.physics_field), new.info)))

        def step(carry, _):
            *carry, obs, reward, done = self._step_one(env, *carry, jnp.zeros(self.spec.action.shape))
            return tuple(carry), (obs, reward, done)

        return new.obs, jax.lax.scan(step, start, length=2)[1]  # two stand for any number

    def inert(self, model: Any) -> dict[str, str]:
        """Leaves that are read, but have no effect in this very model -> what would be valid instead."""
        return {}

    def transition(self, noise, state, action):
        low, high = self.spec.action.bounds()
        action = jnp.clip(action, low, high)
        physics, info, obs, reward, done = self._step_all(state.varied, state.physics, state.info, action)
        time = state.time + 1
        terminated = done.astype(bool)
        truncated = time >= self.spec.max_episode_steps
        outcome = Outcome(obs, reward.astype(jnp.float32), terminated, truncated)
        return PhysicsState(physics, info, time, state.varied), outcome


@functools.partial(jax.jit, static_argnums=0, inline=True)  # traced once for first states, pools and questions of shape
def _reset_one(env: PhysicsEnv, key: jax.Array, t: jax.Array) -> tuple[PhysicsState, Any]:
    varied = env.randomizer.draw(random.fold_in(key, 1), t) if env.randomizer else []
    new = env._with(varied).reset(_raw(key))
    state = PhysicsState(getattr(new, env.physics_field), new.info, jnp.int32(0), varied)
    return tree.strong(jax.tree.map(jnp.asarray, (state, new.obs)))


@functools.partial(jax.jit, static_argnums=0, inline=True)
def _step_one(env: PhysicsEnv, varied: list[jax.Array], physics: Any, info: Any, action: jax.Array) -> Any:
    return env._step_one(env._with(varied), physics, info, action)


def _block(num_envs: int, size: int) -> int:
    """Environments, of `size` bytes each, that a core steps together: a divisor of `num_envs`; all where only small ones fit."""
    most = max(BLOCK_ENVS, BLOCK_BYTES // size)
    block = max(b for b in range(1, min(num_envs, most) + 1) if num_envs % b == 0)
    return block if 4 * block >= BLOCK_ENVS else num_envs


def check_known(name: str, settings: dict[str, Any], known: dict[str, Any]) -> None:
    """Refuse a setting that an environment does not have."""
    for k, value in settings.items():
        if k not in known:
            raise ConfigError(f"env.{k}", value, f"a setting of {name} ({', '.join(known)}){nearest(k, known)}")


def check_number(argument: str, value: Any, low: float = -math.inf, open_low: bool = False) -> None:
    """A number for a constructor. These environments are static, so it can be neither traced nor an array."""
    check_float(argument, value, low, open_low=open_low)
    if not is_number(value):
        raise ConfigError(argument, value, "a number of Python's or NumPy's: it is part of the program")


def _raw(key: jax.Array) -> jax.Array:
    """A key in the form that these environments take: words for JAX's default implementation."""
    words, shape = jax.random.key_data(key), jax.eval_shape(jax.random.PRNGKey, 0).shape
    return words if words.shape == shape else random.bits(key, shape)


def _space(obs: Any) -> Space:
    if isinstance(obs, dict):
        return Dict(tuple(sorted((name, _space(child)) for name, child in obs.items())))
    return Box(-math.inf, math.inf, obs.shape, obs.dtype)
