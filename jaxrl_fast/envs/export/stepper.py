"""Environments stepped one by one from the host, for learners of other libraries.

docs/architecture.md, "Stepped from the host", has the reasons.
"""

from __future__ import annotations

import functools
import sys
from collections.abc import Callable, Iterator
from typing import Any, NamedTuple

import jax
import jax.numpy as jnp
import numpy as np

from jaxrl_fast import random, tree
from jaxrl_fast.envs.api import LAST, Env, checked_transition, steps_by_base
from jaxrl_fast.envs.resets import reset_after
from jaxrl_fast.ops import stacking
from jaxrl_fast.types import lasting

MODES = ("same_step", "next_step", "disabled")  # when the next episode begins
BLOCK = 64  # steps drawn at once, fewer for very many environments


class Carry(NamedTuple):
    """The state that a step donates to the next."""

    state: Any  # of the environments [B]
    ended: Any  # bool [B] with "next_step": the next step returns the current obs; else ()
    at: jax.Array  # int32: the next row of the noise


class Shown(NamedTuple):
    """The outputs of a step, never donated."""

    obs: Any  # [B, ...]
    result: jax.Array  # float32 [3, B]: reward, terminated, truncated; one array, one transfer
    final: Any  # true successors [B, ...] with "same_step"; else ()
    seen: Any  # the agent's observation [B, ...] if it is not `obs`; else ()


class Programs(NamedTuple):
    start: Callable  # (words, at) -> (Carry, obs)
    restart: Callable  # (Carry, seen, obs, words, mask) -> (Carry, seen, obs)
    refill: Callable  # (words, number of the block) -> noise [steps]
    step: Callable  # (Carry, seen, noise, action) -> (Carry, Shown)
    steps: int  # a block has


def _build(env: Env, num_envs: int, mode: str) -> Programs:
    # settings are constants of the programs
    env, stack = tree.as_float32(env, np.asarray), env.spec.stack
    steps = min(BLOCK, max(1, 2**20 // num_envs))
    # A step without resets is a transition, unless the environment overrides either.
    bare = mode == "disabled" and steps_by_base(env)

    def start(words, at):
        state, frame = env.init(_key(words), num_envs)
        ended = jnp.zeros(num_envs, bool) if mode == "next_step" else ()
        return Carry(state, ended, at), stacking.start(frame, stack)

    def restart(carry, seen, obs, words, mask):
        if lasting(carry.state):
            state, frame = reset_after(env, carry.state, _key(words), num_envs, jnp.int32(LAST))
            ended = jax.tree.map(jnp.zeros_like, carry.ended)
            fresh, first = Carry(state, ended, carry.at), stacking.start(frame, stack)
        else:
            fresh, first = start(words, carry.at)
        seen, obs = tree.where(mask, (first, first), (seen, obs))
        new = tree.where(mask, fresh._replace(at=()), carry._replace(at=()))
        return new._replace(at=carry.at), seen, obs

    def refill(words, number):
        key = random.keys_at(_key(words), number, 1)[0]
        return (env.draw_step if bare else env.draw)(key, steps, num_envs, jnp.int32(LAST))

    def step(carry, seen, noise, action):
        now = lambda rows: jax.tree.map(
            lambda x: jax.lax.dynamic_index_in_dim(x, carry.at, 0, keepdims=False), rows
        )
        if bare:
            state, outcome = tree.strong(checked_transition(env, now(noise), carry.state, action))
            frame = outcome.next_obs
        else:
            state, frame, outcome = env.step(noise.with_rows(now(noise.rows)), carry.state, action)
        result = jnp.stack([outcome.reward, outcome.terminated, outcome.truncated])
        result = result.astype(jnp.float32)
        over = outcome.terminated | outcome.truncated
        final = stacking.push(seen, outcome.next_obs, stack)
        after = stacking.advance(seen, frame, over, stack)
        at = (carry.at + 1) % steps
        if mode == "same_step":
            return Carry(state, (), at), Shown(after, result, final, ())
        if mode == "disabled":
            return Carry(state, (), at), Shown(final, result, (), ())
        held = carry.ended
        state, after, obs = tree.where(held, (carry.state, seen, seen), (state, after, final))
        return Carry(state, over & ~held, at), Shown(obs, jnp.where(held, 0.0, result), (), after)

    return Programs(jax.jit(start), jax.jit(restart, donate_argnums=0), jax.jit(refill),
                    jax.jit(step, donate_argnums=0), steps)  # fmt: skip


_cached = functools.lru_cache(maxsize=32)(_build)


def _programs(env: Env, num_envs: int, mode: str) -> Programs:
    """Return compiled programs, shared by equal environments (eight in an SB3 `DummyVecEnv`)."""
    try:
        hash(env)
    except TypeError:  # an array among the settings
        return _build(env, num_envs, mode)
    return _cached(env, num_envs, mode)


def _key(words: jax.Array) -> jax.Array:
    return random.fold_in(jax.random.key(words[0]), words[1])


_snapshot = jax.jit(tree.copy)  # a view of the state would keep the next step from writing in place


class Stepper:
    """Environments on the device and the host's knowledge of them; mode: see `to_gymnasium`.

    Attributes:
        carry: None before the first reset.
        over: bool [B], whether the last step ended the episode.
    """

    def __init__(self, env: Env, num_envs: int, mode: str):
        self.programs = _programs(env.on_device(), num_envs, mode)
        self.num_envs, self.mode = num_envs, mode
        self.carry: Carry | None = None

    def reset(self, rng: np.random.Generator, seeded: bool, mask: np.ndarray | None = None) -> Any:
        """Begin new episodes of all environments, or of `mask` -> observations [B, ...].

        `rng` draws the first states; the episodes' stream starts anew with a seed.
        """
        words = lambda: rng.integers(0, 2**32, 2, np.uint32)
        if mask is not None:
            self.over = self.over & ~mask
            begun = self.programs.restart(self.carry, self.seen, self.obs, words(), mask)
            self.carry, self.seen, self.obs = begun
            return self.obs
        if seeded or self.carry is None:
            self.root, self.block, self.left, at = words(), 0, 0, np.int32(0)
        elif lasting(self.carry.state):
            return self.reset(rng, False, np.ones(self.num_envs, bool))
        else:
            at = self.carry.at
        self.carry, self.obs = self.programs.start(words(), at)
        self.seen, self.over = self.obs, np.zeros(self.num_envs, bool)
        return self.obs

    def step(self, action: Any) -> tuple[Shown, np.ndarray, np.ndarray]:
        """Step all environments -> (outputs, reward [B], terminated and truncated [2, B])."""
        if self.left == 0:
            self.noise = self.programs.refill(self.root, np.int32(self.block))
            self.block += 1
            self.left = self.programs.steps if jax.tree.leaves(self.noise) else sys.maxsize
        self.left -= 1
        self.carry, shown = self.programs.step(self.carry, self.seen, self.noise, action)
        self.obs, self.seen = shown.obs, shown.seen if self.mode == "next_step" else shown.obs
        result = np.asarray(shown.result)
        ends = result[1:] != 0
        self.over = ends[0] | ends[1]
        return shown, result[0], ends

    def states(self) -> Iterator[Any]:
        """Yield the environments' states on the host, one by one, for `Env.render`."""
        states = random.on_host(_snapshot(self.carry.state))
        return (tree.take(states, i) for i in range(self.num_envs))
