"""Strategies of resets: how a rollout begins new episodes.

    draw(env, key, num_steps, num_envs, t)  -> (rows [T], strategy)   before the rollout's scan
    apply(env, row, done, after)            -> (state, obs)           in each of its steps

`env.resets` names one. `draw` returns the strategy with the part that all steps share, such as a
pool; `rows` has a leading axis of time. `apply` takes one row, bool [B] whether the episode ended,
and the state and observation after the transition.

| strategy | an episode begins | resets are computed |
|---|---|---|
| `EveryStep()` | afresh | for every environment in every step |
| `OnEnd()` | afresh | in steps that end an episode; on a GPU in every step |
| `Pool(size)` | with an entry of a pool, drawn once a rollout | `size` times a rollout |
| `Frozen(starts)` | in a given state of its environment | never |
"""

from __future__ import annotations

import dataclasses
import math
from typing import Any, NamedTuple

import jax
import jax.numpy as jnp

from jaxrl_fast import random, tree
from jaxrl_fast.envs import checks
from jaxrl_fast.errors import check_int
from jaxrl_fast.ops.lowering import on_gpu
from jaxrl_fast.ops.scopes import RESET, scope
from jaxrl_fast.types import PyTree, keep_lasting, lasting

STEPS_A_RESET = 64
Episode = tuple[PyTree, PyTree]  # (state, obs), each with leading axis [B]


class Resets:
    """Base class of the strategies: pytrees, hashable without the shared part."""

    def draw(self, env: Any, key: jax.Array, num_steps: int, num_envs: int,
             t: jax.Array) -> tuple[PyTree, Resets]:
        """Draw the resets of `num_steps` steps of `num_envs` environments in iteration t."""
        raise NotImplementedError

    def apply(self, env: Any, row: PyTree, done: jax.Array, after: Episode) -> Episode:
        """Replace the episodes in `after` that are `done`, bool [B]."""
        raise NotImplementedError


class Noise(NamedTuple):
    """The randomness of T steps of an environment, drawn by `Env.draw`."""

    step: PyTree  # [T, B]: for `transition`
    reset: PyTree  # [T]: for `resets`
    resets: Resets  # the strategy, with its shared part

    @property
    def rows(self) -> tuple[PyTree, PyTree]:
        """Return the part with a leading axis [T]."""
        return self.step, self.reset

    def with_rows(self, rows: tuple[PyTree, PyTree]) -> Noise:
        """Return this noise with other rows, such as the row of `Env.step` inside a scan."""
        return Noise(*rows, self.resets)

    def at(self, step: int | jax.Array) -> Noise:
        """Return the noise of one step for `Env.step`."""
        return self.with_rows(tree.take(self.rows, step))


@tree.struct
class EveryStep(Resets):
    """Reset every environment in every step; keep the resets of ended episodes."""

    def draw(self, env, key, num_steps, num_envs, t):
        return env.draw_reset(key, (num_steps, num_envs), t), self

    def apply(self, env, row, done, after):
        return tree.where(done, run_restart(env, row, after[0]), after)


@tree.struct
class OnEnd(EveryStep):
    """Reset every environment in steps that end an episode, by a branch; on a GPU always."""

    def apply(self, env, row, done, after):
        every = lambda: EveryStep.apply(self, env, row, done, after)
        return on_gpu(every, lambda: jax.lax.cond(done.any(), every, lambda: after))


@tree.settings
class Pool(Resets):
    """Share `size` resets, drawn before each rollout, among its episodes.

    size: 0 for one for `STEPS_A_RESET` steps of an environment, at least one each. Environments
    that end together must not begin alike, or they stay in lockstep. In a rollout of one step a
    pool would be all resets of every step: there it is `OnEnd`.
    """

    size: int = 0
    # drawn: (noise, (state, obs)), each [P]
    entries: Any = dataclasses.field(default=(), metadata={"static": False})

    def __post_init__(self):
        check_int("Pool.size", self.size, low=0)

    def draw(self, env, key, num_steps, num_envs, t):
        if num_steps == 1 and (self.size or num_envs) >= num_envs:
            return OnEnd().draw(env, key, num_steps, num_envs, t)
        turns = num_steps * num_envs
        few = math.ceil(turns / STEPS_A_RESET)
        size = min(self.size or max(few, num_envs), turns)
        pool_key, offset_key = random.split(key)
        if size <= few:  # few beside the steps, as first episodes
            noise = env.draw_reset(pool_key, (size,), t)
        else:  # many, as a step's resets
            noise = tree.take(env.draw_reset(pool_key, (1, size), t), 0)
        with scope(RESET):
            entries = noise, run_reset(env, noise, size)
        # Environments that end together take neighbouring entries, from a place drawn each step.
        # A running index t * B + b would repeat an environment's entry if the size divides B.
        places = random.randint(offset_key, (num_steps, 1), 0, size)
        rows = (places + jnp.arange(num_envs, dtype=jnp.int32)) % size
        return rows, dataclasses.replace(self, entries=entries)

    def apply(self, env, row, done, after):
        noise, episodes = self.entries
        if lasting(after[0]):  # a new episode may depend on the lasting parts
            return OnEnd().apply(env, tree.take(noise, row), done, after)
        fresh, obs = tree.take(episodes, row)
        return tree.where(done, (checks.like(env.spec, fresh, after[0], "a reset"), obs), after)


@tree.struct
class Frozen(Resets):
    """Like `draw`, for evaluation: finished environments restart from `starts`, without resets.

    starts: (state, obs) [B]. Evaluations play one episode an environment, and their programs hold
    no resets.
    """

    starts: Episode = ()

    def draw(self, env, key, num_steps, num_envs, t):
        return jnp.zeros(num_steps, bool), self  # rows without content: noise has an axis of time

    def apply(self, env, row, done, after):
        fresh, obs = self.starts
        return tree.where(done, (keep_lasting(after[0], fresh), obs), after)


def run_reset(env: Any, noise: PyTree, num_envs: int) -> Episode:
    """Return `env.reset` of noise [B] in its spec's dtypes; raises ConfigError for other forms."""
    with checks.explain_errors(env.spec, "reset"):
        state, obs = checks.pair(env.spec, "reset", env.reset(noise))
    return tree.strong((state, checks.observation(env.spec, "reset", obs, num_envs)))


def reset_after(env: Any, state: PyTree, key: jax.Array, num_envs: int, t: jax.Array) -> Episode:
    """Return new episodes after those in `state` [B], with its `types.Lasting` parts."""
    with checks.note_errors(env.spec, "draw_reset"):
        noise = env.draw_reset(key, (num_envs,), t)
    return tree.strong(run_restart(env, noise, state))


def run_restart(env: Any, noise: PyTree, state: PyTree) -> Episode:
    """Return `env.restart` in the dtypes of its spec and of `state` [B]."""
    with checks.explain_errors(env.spec, "reset"):
        fresh, obs = checks.pair(env.spec, "reset", env.restart(noise, state))
    num_envs = jax.tree.leaves(obs)[0].shape[0]
    fresh = checks.like(env.spec, fresh, state, "a reset")
    return fresh, checks.observation(env.spec, "reset", obs, num_envs)
