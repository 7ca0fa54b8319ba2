"""Environments stepped one by one from the host: for learners that are not ours, which choose actions there.

A step of all environments is one compiled program, resets included, and the host does nothing for each of them:

- The state is donated, so it is written where it lies. What a step shows is never part of what the next one donates:
  a NumPy view of it stays as it is.
- Randomness is drawn for a block of steps at once; the program takes its row by a counter in its own state, so no
  number has to travel from the host.
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
from jaxrl_fast.envs.api import LAST, Env, played, steps_by_base
from jaxrl_fast.envs.resets import begun_after
from jaxrl_fast.ops import stacking
from jaxrl_fast.types import lasting

MODES = ("same_step", "next_step", "disabled")  # when an episode that ended is followed by the next one
BLOCK = 64  # steps whose randomness is drawn at once, fewer for very many environments


class Carry(NamedTuple):
    """What a step donates to the next."""

    state: Any  # of the environments [B]
    ended: Any  # bool [B], with "next_step" alone: the next step shows what is here already; else ()
    at: jax.Array  # int32: the next row of the noise


class Shown(NamedTuple):
    """What a step returns beside the carry; never donated."""

    obs: Any  # [B, ...]
    result: jax.Array  # float32 [3, B]: reward, terminated, truncated; one array, for each costs a transfer
    final: Any  # the true successors [B, ...], with "same_step" alone; else ()
    seen: Any  # what an agent would see of the state [B, ...], where it is not `obs`; else ()


class Programs(NamedTuple):
    start: Callable  # (words, at) -> (Carry, obs)
    restart: Callable  # (Carry, seen, obs, words, mask) -> (Carry, seen, obs)
    refill: Callable  # (words, number of the block) -> noise [steps]
    step: Callable  # (Carry, seen, noise, action) -> (Carry, Shown)
    steps: int  # a block has


def _build(env: Env, num_envs: int, mode: str) -> Programs:
    env, stack = tree.as_float32(env, np.asarray), env.spec.stack  # settings are constants of the programs
    steps = min(BLOCK, max(1, 2**20 // num_envs))
    # Without a reset of its own a step is a transition, unless the environment has its own idea of either.
    bare = mode == "disabled" and steps_by_base(env)

    def start(words, at):
        state, frame = env.init(_key(words), num_envs)
        ended = jnp.zeros(num_envs, bool) if mode == "next_step" else ()
        return Carry(state, ended, at), stacking.start(frame, stack)

    def restart(carry, seen, obs, words, mask):
        if lasting(carry.state):
            state, frame = begun_after(env, carry.state, _key(words), num_envs, jnp.int32(LAST))
            ended = jax.tree.map(jnp.zeros_like, carry.ended)
            fresh, first = Carry(state, ended, carry.at), stacking.start(frame, stack)
        else:
            fresh, first = start(words, carry.at)
        seen, obs = tree.where(mask, (first, first), (seen, obs))
        return tree.where(mask, fresh._replace(at=()), carry._replace(at=()))._replace(at=carry.at), seen, obs

    def refill(words, number):
        key = random.keys_at(_key(words), number, 1)[0]
        return (env.draw_step if bare else env.draw)(key, steps, num_envs, jnp.int32(LAST))

    def step(carry, seen, noise, action):
        now = lambda rows: jax.tree.map(lambda x: jax.lax.dynamic_index_in_dim(x, carry.at, 0, keepdims=False), rows)
        if bare:
            state, outcome = tree.strong(played(env, now(noise), carry.state, action))
            frame = outcome.next_obs
        else:
            state, frame, outcome = env.step(noise.with_rows(now(noise.rows)), carry.state, action)
        result = jnp.stack([outcome.reward, outcome.terminated, outcome.truncated]).astype(jnp.float32)
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
    """Equal environments share their programs: eight of one kind in an SB3 `DummyVecEnv` are compiled once."""
    try:
        return _cached(env, num_envs, mode)
    except TypeError as error:
        if "hash" not in str(error):
            raise
        return _build(env, num_envs, mode)  # an array among the settings


def _key(words: jax.Array) -> jax.Array:
    return random.fold_in(jax.random.key(words[0]), words[1])


@jax.jit
def _snapshot(state: Any) -> Any:
    """A view of the state itself would keep the next step from writing there."""
    return tree.copy(state)


class Stepper:
    """Environments on the device, and what the host knows about them.

    mode    when an environment whose episode ended begins the next one. "same_step": in that step. "next_step": in
            the step after, whose action it ignores and whose reward is 0. "disabled": when it is reset.
    carry   None before the first reset.
    over    bool [B]: whose episode the last step ended.
    """

    def __init__(self, env: Env, num_envs: int, mode: str):
        self.programs = _programs(env, num_envs, mode)
        self.num_envs, self.mode = num_envs, mode
        self.carry: Carry | None = None

    def reset(self, rng: np.random.Generator, seeded: bool, mask: np.ndarray | None = None) -> Any:
        """New episodes, of all environments or of those in `mask` -> observations [B, ...] on the device.

        Where the episodes start comes from `rng`; what happens in them from a stream that begins anew with a seed.
        """
        words = lambda: rng.integers(0, 2**32, 2, np.uint32)
        if mask is not None:
            self.over = self.over & ~mask
            self.carry, self.seen, self.obs = self.programs.restart(self.carry, self.seen, self.obs, words(), mask)
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
        """One step of all environments -> (what it shows, reward float32 [B] to be read, terminated and truncated [2, B])

        It waits for the device.
        """
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
        """The environments' states one by one, on the host, as `Env.render` takes them."""
        leaves, structure = jax.tree.flatten(_snapshot(self.carry.state))
        keys = [jax.dtypes.issubdtype(x.dtype, jax.dtypes.prng_key) for x in leaves]  # have no NumPy form
        leaves = [x if key else np.asarray(x) for x, key in zip(leaves, keys, strict=True)]
        return (jax.tree.unflatten(structure, [x[i] for x in leaves]) for i in range(self.num_envs))
