"""The store of every replay memory: a ring of single frames, time-major; successors, stacks and n-step windows are
gathered on demand.

Nothing is stored twice. A row is (obs, action, reward, terminated, truncated); the successor of row i is row i + 1.
After a truncation the true successor is not there: that row serves only as a successor itself, a window stops before
it and bootstraps from its observation with gamma^steps, and a window that would start on it has weight 0. This is
unbiased and costs one transition per truncated episode, where storing next observations would cost half the memory.
"""

from __future__ import annotations

import dataclasses
from typing import Any, NamedTuple

import jax
import jax.numpy as jnp

from jaxrl_fast.errors import ConfigError, check_int
from jaxrl_fast.memory.api import Memory
from jaxrl_fast.summary import summary
from jaxrl_fast.types import Window


class Row(NamedTuple):
    """What a replay memory stores of one step; leaves [T, B, ...]."""

    obs: Any
    action: Any
    reward: jax.Array
    terminated: jax.Array
    truncated: jax.Array
    extras: Any = ()  # what else an algorithm wants to find again, such as what its actor knew; no part of a dataset

    __repr__ = summary


def without_extras(rows: Any) -> Any:
    """`Row`s as a dataset has them; others as they are."""
    return rows._replace(extras=()) if isinstance(rows, Row) else rows


@dataclasses.dataclass(frozen=True)
class Ring(Memory):
    """`capacity` transitions of `num_envs` environments, written in blocks of `num_steps` rows.

    n_step: window length.  stack: frames per observation (see `EnvSpec.stack`).
    Batches are drawn with replacement, so one may be larger than the ring; an algorithm that asks for that is refused (`bind`).
    Raises ConfigError where not even one window fits.
    """

    capacity: int
    num_steps: int
    num_envs: int
    batch_size: int
    n_step: int = 1
    stack: int = 1

    @property
    def batch_axes(self):
        return Window(0, 0, 1, 1, 0, 0, 0, 0, 0, 0)

    def __post_init__(self):
        for name in ("capacity", "num_steps", "num_envs", "batch_size", "n_step", "stack"):
            check_int(name, getattr(self, name))
        need = (self.dead_blocks + 1) * self.num_steps * self.num_envs
        if self.capacity < need:
            raise ConfigError("capacity", self.capacity, f"at least {need}: a block of rows, and the windows over its end")

    @property
    def starts(self) -> int:
        """Places in which what is drawn may begin."""
        return self.length * self.num_envs

    @property
    def dead_blocks(self) -> int:
        """Blocks beside the write head in which no window can start: unfinished, or their frames overwritten."""
        return -(-(self.n_step + self.stack - 1) // self.num_steps)

    @property
    def num_blocks(self) -> int:
        return self.capacity // (self.num_steps * self.num_envs)

    @property
    def length(self) -> int:
        """Rows on the time axis."""
        return self.num_blocks * self.num_steps

    def init(self, rows):
        # by the leaf's own rows a block: a leaf may hold fewer than `num_steps` (see `SequenceMemory`)
        return jax.tree.map(lambda x: jnp.zeros((self.num_blocks * x.shape[0], *x.shape[1:]), x.dtype), rows)

    def add(self, mem, rows, w):
        def write(mem, rows, w):
            slot = w % self.num_blocks
            put = lambda m, r: jax.lax.dynamic_update_slice_in_dim(m, r.astype(m.dtype), slot * r.shape[0], 0)
            return jax.tree.map(put, mem, rows)

        def write_apart(mem, rows, w):
            # On a CPU XLA would fuse the write into what reads the store next, and copy the store twice for that. A
            # loop that runs once, which XLA can't know, keeps them apart: 75 instead of 610 us at 10^6 rows.
            return jax.lax.fori_loop(0, jnp.where(w < 0, 2, 1), lambda _, mem: write(mem, rows, w), mem)

        return jax.lax.platform_dependent(mem, rows, w, cpu=write_apart, default=write)

    def seam(self, mem, w):
        if hasattr(mem, "rows"):  # beside what a subclass keeps
            return mem._replace(rows=self.seam(mem.rows, w))
        if hasattr(mem, "row"):  # beside carries
            return mem._replace(row=self.seam(mem.row, w))
        return seal(mem, (w * self.num_steps - 1) % self.length)


def seal(rows: Row, last: jax.Array | int) -> Row:
    """`rows` [S, B, ...], of which row `last` has no successor: truncated, unless it is terminated."""
    return rows._replace(truncated=rows.truncated.at[last].set(~rows.terminated[last]))


def gather_windows(mem: Row, row: jax.Array, env: jax.Array, n_step: int, stack: int) -> Window:
    """The n-step windows that start at (row, env), int32 [b] each, from a ring [S, B, ...]."""
    length = mem.reward.shape[0]
    rows = (row + jnp.arange(n_step, dtype=row.dtype)[:, None]) % length  # [n, b]
    terminated, truncated = mem.terminated[rows, env], mem.truncated[rows, env]
    ended = jnp.cumsum(terminated | truncated, axis=0) - (terminated | truncated)  # ends before row i
    use = (ended == 0) & ~truncated
    steps = jnp.sum(use, axis=0, dtype=jnp.int32)
    boot = (row + steps) % length
    return Window(
        obs=gather_obs(mem, row, env, stack),
        action=jax.tree.map(lambda a: a[row, env], mem.action),
        reward=mem.reward[rows, env],
        use=use,
        steps=steps,
        boot_obs=gather_obs(mem, boot, env, stack),
        boot=1.0 - jnp.any(use & terminated, axis=0).astype(jnp.float32),
        weight=use[0].astype(jnp.float32),
        extras=jax.tree.map(lambda x: x[row, env], mem.extras),
        boot_extras=jax.tree.map(lambda x: x[boot, env], mem.extras),
    )


def gather_obs(mem: Row, row: jax.Array, env: jax.Array, stack: int) -> Any:
    """Observations at (row, env); with stack > 1 the last frames along the last axis, the episode's first repeated."""
    if stack == 1:
        return jax.tree.map(lambda x: x[row, env], mem.obs)
    length, alive, frame = mem.reward.shape[0], jnp.ones(row.shape, bool), row
    frames = [row]
    for back in range(1, stack):
        before = (row - back) % length
        alive &= ~(mem.terminated[before, env] | mem.truncated[before, env])
        frame = jnp.where(alive, before, frame)
        frames.append(frame)
    frames = jnp.stack(frames[::-1], axis=-1)  # [..., stack]

    def gather(x):  # one gather, then frames beside channels: four times as fast on a CPU as a concatenation
        x = jnp.moveaxis(x[frames, env[..., None]], env.ndim, -2)
        return x.reshape(*x.shape[:-2], -1)

    return jax.tree.map(gather, mem.obs)
