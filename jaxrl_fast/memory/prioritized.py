"""Prioritized replay (Schaul et al. 2016), proportional and stratified, over the ring and a sum tree."""

from __future__ import annotations

import dataclasses
from collections.abc import Callable
from typing import Any, NamedTuple

import jax
import jax.numpy as jnp

from jaxrl_fast import random
from jaxrl_fast.errors import check_float
from jaxrl_fast.memory import sum_tree
from jaxrl_fast.memory.ring import Ring, Row, gather_windows, held
from jaxrl_fast.tree import summary
from jaxrl_fast.types import Window

SPACING = 2.0**-22  # of the sum: places in it that float32 can tell apart lie closer, rounding of the product included


class Prioritized(NamedTuple):
    rows: Row
    tree: sum_tree.Tree  # priorities (|error| + epsilon)^alpha; 0 where no window may start
    top: jax.Array  # float32: the largest priority seen, which new rows get

    __repr__ = summary


def sample(
    tree: sum_tree.Tree, uniform: jax.Array, beta: jax.Array, axis: str | None = None
) -> tuple[jax.Array, jax.Array]:
    """Leaves drawn by priority, one from each of [b] equal strata, and their weights; 0 where nothing can be drawn.

    uniform: [2, b]; the second numbers fill in what float32 leaves out of a place in the sum, or leaves of less than
    about 10^-7 of it could often not be drawn at all.
    axis: of groups that sample by themselves. Then what counts is a leaf's share of its own group's sum.
    """
    first = jnp.arange(uniform.shape[1], dtype=jnp.float32)
    total = sum_tree.total(tree)
    begin, mass, end = ((first + x) / uniform.shape[1] * total for x in (0.0, uniform[0], 1.0))
    rest = (uniform[1] - 0.5) * (SPACING * total)  # to both sides, or the last leaf of a node would get what the first lacks
    rest = jnp.clip(rest, begin - mass, end - mass)  # so that leaves come in order, see `first_of_equals`
    leaf, priority = sum_tree.find(tree, mass, rest)
    real = priority > 0  # all are, unless nothing at all can be sampled
    if axis is not None:
        priority = jnp.where(real, priority / total, 0.0)
    least = jnp.min(jnp.where(real, priority, jnp.inf))
    if axis is not None:
        least = jax.lax.pmin(least, axis)
    return leaf, jnp.where(real, (least / jnp.where(real, priority, 1.0)) ** beta, 0.0)  # N and the sum cancel


def check_exponents(alpha: Any, beta: Any, epsilon: Any) -> None:
    check_float("alpha", alpha, 0, 1)
    check_float("beta", beta, 0, 1)
    check_float("epsilon", epsilon, 0)


def first_of_equals(handle: jax.Array, values: jax.Array) -> jax.Array:
    """`values` [b] with each run of equal `handle`s [b] at the value of its first.

    A leaf that was drawn twice may come back with two errors (IQN draws fractions a window), and which of two writes
    to one place wins is the device's choice: not the same on a resume.
    """
    place = jnp.arange(handle.shape[0], dtype=jnp.int32)
    new = jnp.concatenate([jnp.ones(1, bool), handle[1:] != handle[:-1]])
    return values[jax.lax.cummax(jnp.where(new, place, 0))]


def priorities(memory: Any, error: jax.Array) -> jax.Array:
    """(|error| + epsilon)^alpha of sizes of errors, 0 for nothing at all; NaN for one that is negative or not finite."""
    good = (error >= 0) & jnp.isfinite(error)  # before the power: at alpha = 0 that of a NaN is 1
    priority = (error + memory.epsilon) ** memory.alpha
    return jnp.where(good, jnp.where(error + memory.epsilon > 0, priority, 0.0), jnp.nan)  # 0 to the power of 0 is 1


def converted(old: Any, new: Any, mem: Prioritized) -> Prioritized:
    """Priorities of the errors that made those of memory `old`, as memory `new` makes them; all alike where alpha was 0."""
    same = (new.alpha == old.alpha) & (new.epsilon == old.epsilon)  # of a run they may be traced; `old`'s never are
    if same is True:
        return mem

    def again(priority):
        error = priority ** (1.0 / old.alpha) - old.epsilon if old.alpha else jnp.ones_like(priority)
        other = jnp.where(priority == 0, 0.0, priorities(new, jnp.maximum(error, 0.0)))  # NaN stays what it is
        return jnp.where(same, priority, other)

    return Prioritized(mem.rows, sum_tree.build(again(mem.tree[0].ravel())), again(mem.top))


def highest(memory: Any, top: jax.Array, priority: jax.Array) -> jax.Array:
    """The largest priority seen, with these."""
    most = jnp.max(priority)
    return jnp.maximum(top, most if memory.axis is None else jax.lax.pmax(most, memory.axis))


def renew(ring: Ring, tree: sum_tree.Tree, born: jax.Array, w: jax.Array) -> sum_tree.Tree:
    """Block w of the leaves becomes `born`, and the one that block w + 1 will need dead is zero.

    In one write: of two in a row XLA would copy the tree between them.
    """
    block = born.size
    leaves = lambda w: (w % ring.num_blocks) * block + jnp.arange(block, dtype=jnp.int32)
    places = jnp.concatenate([leaves(w), leaves(w + ring.dead_blocks)])
    return sum_tree.set_at(tree, places, jnp.concatenate([born.reshape(block), jnp.zeros(block, jnp.float32)]))


@dataclasses.dataclass(frozen=True)
class PrioritizedMemory(Ring):
    """A window's chance is its priority (|error| + epsilon)^alpha over their sum; its weight (N p)^-beta / max.

    alpha: 0 is uniform.  beta: rises linearly to 1 at the horizon.  epsilon: keeps an error of zero in the game.
    first: sizes of the errors [b] of windows that are new, from what their rows' `extras` tell. Without it, or where rows
    have none (as those of a dataset), a new window has the largest priority seen.
    A row becomes a possible start when its whole window is written, and leaves before a frame of it is overwritten.
    A truncated row whose successor is not kept never is one. The leaf of a row is not at the row's place but `n_step`
    rows on: what an `add` brings to life is then the very block of leaves that it writes, and never wraps around.
    """

    alpha: Any = 0.6
    beta: Any = 0.4
    epsilon: Any = 1e-6
    axis: str | None = None  # see `memory.grouped`
    first: Callable[[Window], jax.Array] | None = None
    first_from: int | None = None  # rows before this one, counted from the first, have invented extras. No size (`layout`)

    def __post_init__(self):
        super().__post_init__()
        check_exponents(self.alpha, self.beta, self.epsilon)

    def init(self, rows):
        return Prioritized(super().init(rows), sum_tree.init(self.starts), jnp.float32(1.0))

    def add(self, mem, rows, w):
        store = super().add(mem.rows, rows, w)
        time = w * self.num_steps - self.n_step + jnp.arange(self.num_steps, dtype=jnp.int32)
        row, env = jnp.broadcast_arrays((time % self.length)[:, None], jnp.arange(self.num_envs, dtype=jnp.int32))
        learned = ~store.truncated[time % self.length] | held(self, store, row, env)[1]
        start = (time >= self.stack - 1)[:, None] & learned
        born, top = self._born(store, time, start, mem.top)
        return Prioritized(store, renew(self, mem.tree, born, w), top)

    def _born(self, store: Row, time: jax.Array, start: jax.Array, top: jax.Array) -> tuple[jax.Array, jax.Array]:
        """Priorities of the windows that start at `time` [T] where `start` [T, B] allows one, and the largest ever."""
        if self.first is None or not jax.tree.leaves(store.extras):
            return jnp.where(start, top, 0.0), top
        row, env = jnp.broadcast_arrays((time % self.length)[:, None], jnp.arange(self.num_envs, dtype=jnp.int32))
        windows = gather_windows(self, store, row.ravel(), env.ravel())
        error = priorities(self, self.first(windows)).reshape(start.shape)
        known = start & (time >= (self.first_from or 0))[:, None]
        born = jnp.where(known, error, jnp.where(start, top, 0.0))
        return born, highest(self, top, born)

    def plan(self, key, n, w, clock):
        return random.uniform(key, (n, 2, self.batch_size)), jnp.broadcast_to(clock.anneal(self.beta, 1.0), (n,))

    def fetch(self, mem, x):
        leaf, weight = sample(mem.tree, *x, self.axis)
        row = (leaf // self.num_envs - self.n_step) % self.length
        window = gather_windows(self, mem.rows, row, leaf % self.num_envs)
        return window._replace(weight=window.weight * weight), leaf

    def feedback(self, mem, handle, priority):
        """`priority` [b]: sizes of errors. One that is negative or not finite makes `top` so (see `watch`)."""
        priority = first_of_equals(handle, priorities(self, priority))
        alive = sum_tree.get(mem.tree, handle) > 0  # a leaf that may not be sampled stays so
        tree = sum_tree.set_at(mem.tree, handle, jnp.where(alive, priority, 0.0))
        return Prioritized(mem.rows, tree, highest(self, mem.top, priority))

    def watch(self, mem):
        """The largest priority ever, or the sum of all of them where that is not finite: it can overflow alone."""
        total = jnp.sum(mem.tree[-1], axis=(-2, -1))
        return jnp.where(jnp.isfinite(total), mem.top, total)
