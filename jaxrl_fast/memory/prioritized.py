"""Prioritized replay (Schaul et al. 2016), proportional, over the ring and a sum tree."""

from __future__ import annotations

import dataclasses
from collections.abc import Callable
from typing import Any, NamedTuple

import jax
import jax.numpy as jnp

from jaxrl_fast import random
from jaxrl_fast.errors import check_float
from jaxrl_fast.memory import sum_tree
from jaxrl_fast.memory.api import Memory
from jaxrl_fast.memory.ring import Ring, Row, gather_windows, held
from jaxrl_fast.ops.lowering import on_gpu
from jaxrl_fast.ops.places import quotient, remainder, take
from jaxrl_fast.tree import summary
from jaxrl_fast.types import Window

SPACING = 2.0**-22  # of the sum; above float32's resolution of a place in it


class Prioritized(NamedTuple):
    rows: Row
    tree: sum_tree.Tree  # priorities (|error| + epsilon)^alpha; 0 where no window may start
    top: jax.Array  # float32: the largest priority so far, given to new rows

    __repr__ = summary


def sample(
    tree: sum_tree.Tree, uniform: jax.Array, beta: jax.Array, axis: str | None = None
) -> tuple[jax.Array, jax.Array]:
    """Draw leaves by priority, one a stratum -> (leaf, weight) [b]; weight 0: none.

    uniform: [2, b]; the second row refines a place beyond float32, so that leaves of less than
    about 10^-7 of the sum can be drawn. axis: of groups that sample by themselves; a leaf's share
    is then that of its own group's sum.
    """
    first = jnp.arange(uniform.shape[1], dtype=jnp.float32)
    total = sum_tree.total(tree)
    begin, mass, end = ((first + x) / uniform.shape[1] * total for x in (0.0, uniform[0], 1.0))
    # to both sides: else a node's last leaf gains what its first loses
    rest = (uniform[1] - 0.5) * (SPACING * total)
    rest = jnp.clip(rest, begin - mass, end - mass)  # keeps leaves in order, see `first_of_equals`
    leaf, priority = sum_tree.find(tree, mass, rest)
    real = priority > 0  # False only if nothing can be sampled
    if axis is not None:
        priority = jnp.where(real, priority / total, 0.0)
    least = jnp.min(jnp.where(real, priority, jnp.inf))
    if axis is not None:
        least = jax.lax.pmin(least, axis)
    # N and the sum cancel
    return leaf, jnp.where(real, (least / jnp.where(real, priority, 1.0)) ** beta, 0.0)


def first_of_equals(handle: jax.Array, values: jax.Array) -> jax.Array:
    """Return `values` [b] with each run of equal `handle`s [b] at the value of its first.

    Else the device would choose the write that wins, and a resume could differ.
    """
    return on_gpu(_first_by_pairs, _first_by_scan, handle, values)


def _first_by_scan(handle: jax.Array, values: jax.Array) -> jax.Array:
    place = jnp.arange(handle.shape[0], dtype=jnp.int32)
    new = jnp.concatenate([jnp.ones(1, bool), handle[1:] != handle[:-1]])
    return values[jax.lax.cummax(jnp.where(new, place, 0))]


def _first_by_pairs(handle: jax.Array, values: jax.Array) -> jax.Array:
    """Compare all pairs: one kernel on a GPU, where a scan takes several."""
    place = jnp.arange(handle.shape[0], dtype=jnp.int32)
    equal = handle[:, None] == handle
    return values[jnp.min(jnp.where(equal, place, place.size), axis=1)]


def priorities(memory: Any, error: jax.Array) -> jax.Array:
    """Return (|error| + epsilon)^alpha, 0 if both are 0; NaN for a negative or non-finite error."""
    good = (error >= 0) & jnp.isfinite(error)  # before the power: NaN to the power 0 is 1
    priority = (error + memory.epsilon) ** memory.alpha
    # 0 to the power 0 is 1
    return jnp.where(good, jnp.where(error + memory.epsilon > 0, priority, 0.0), jnp.nan)


def converted(old: Any, new: Any, mem: Prioritized) -> Prioritized:
    """Convert the priorities of memory `old` to those of `new`; all equal if alpha was 0."""
    # a run's may be traced, `old`'s never are
    same = (new.alpha == old.alpha) & (new.epsilon == old.epsilon)
    if same is True:
        return mem

    def again(priority):
        error = (
            priority ** (1.0 / old.alpha) - old.epsilon if old.alpha else jnp.ones_like(priority)
        )
        other = jnp.where(priority == 0, 0.0, priorities(new, jnp.maximum(error, 0.0)))  # keeps NaN
        return jnp.where(same, priority, other)

    return Prioritized(mem.rows, sum_tree.build(again(mem.tree[0].ravel())), again(mem.top))


def renew(ring: Ring, tree: sum_tree.Tree, born: jax.Array, w: jax.Array) -> sum_tree.Tree:
    """Write `born` to block w, zeros to the block that loses its windows."""
    start = lambda w: remainder(w, ring.num_blocks) * born.size
    return sum_tree.replace_blocks(tree, start(w), born.reshape(-1), start(w + ring.dead_blocks))


class Priorities(Memory):
    """Draws in proportion to priorities, for a ring: before it among the bases of a memory."""

    def __post_init__(self):
        super().__post_init__()
        check_float("alpha", self.alpha, 0, 1)
        check_float("beta", self.beta, 0, 1)
        check_float("epsilon", self.epsilon, 0)

    def init(self, rows):
        return Prioritized(super().init(rows), sum_tree.init(self.starts), jnp.float32(1.0))

    def plan(self, key, n, w, clock):
        draws = random.uniform(key, (n, 2, self.batch_size))
        return draws, jnp.broadcast_to(clock.anneal(self.beta, 1.0), (n,))

    def highest(self, top: jax.Array, priority: jax.Array) -> jax.Array:
        """Return the largest priority so far, with these."""
        most = jnp.max(priority)
        return jnp.maximum(top, most if self.axis is None else jax.lax.pmax(most, self.axis))

    def feedback(self, mem, handle, priority):
        """Set priorities of errors [b]; a negative or non-finite one spreads to `top`."""
        priority = first_of_equals(handle, priorities(self, priority))
        alive = sum_tree.get(mem.tree, handle) > 0  # a dead leaf stays dead
        tree = sum_tree.set_at(mem.tree, handle, jnp.where(alive, priority, 0.0))
        return Prioritized(mem.rows, tree, self.highest(mem.top, priority))

    def watch(self, mem):
        """Return the largest priority so far, or the sum of all if it overflows."""
        total = jnp.sum(mem.tree[-1], axis=(-2, -1))
        return jnp.where(jnp.isfinite(total), mem.top, total)


@dataclasses.dataclass(frozen=True)
class PrioritizedMemory(Priorities, Ring):
    """Replay in proportion to (|error| + epsilon)^alpha, with weights (N p)^-beta / max.

    alpha: 0 is uniform.  beta: rises linearly to 1 at the horizon.  epsilon: lets a zero error be
    drawn. first: errors [b] of new windows, from their rows' `extras`. Without it, or without
    extras (a dataset's rows), a new window has the largest priority so far. A row is a start while
    its whole window is in the ring, unless it is truncated without a kept successor. Its leaf is
    `n_step` rows further on: an `add` enables the block of leaves that it writes.
    """

    alpha: Any = 0.6
    beta: Any = 0.4
    epsilon: Any = 1e-6
    axis: str | None = None  # see `memory.grouped`
    first: Callable[[Window], jax.Array] | None = None
    first_from: int | None = None  # rows before this one have invented extras; no size (`layout`)

    def add(self, mem, rows, w):
        store, top = super().add(mem.rows, rows, w), mem.top
        time = w * self.num_steps - self.n_step + jnp.arange(self.num_steps, dtype=jnp.int32)
        block = remainder(w, self.num_blocks) * self.num_steps
        place = remainder(time - w * self.num_steps + (block + self.length), self.length)
        row, env = jnp.broadcast_arrays(place[:, None],
                                        jnp.arange(self.num_envs, dtype=jnp.int32))
        learned = ~take(store.truncated, place) | held(self, store, row, env)[1]
        start = (time >= self.stack - 1)[:, None] & learned
        born = jnp.where(start, top, 0.0)
        if self.first is not None and jax.tree.leaves(store.extras):
            windows = gather_windows(self, store, row.ravel(), env.ravel())
            error = priorities(self, self.first(windows)).reshape(start.shape)
            known = start & (time >= (self.first_from or 0))[:, None]
            born = jnp.where(known, error, born)
            top = self.highest(top, born)
        return Prioritized(store, renew(self, mem.tree, born, w), top)

    def fetch(self, mem, x):
        leaf, weight = sample(mem.tree, *x, self.axis)
        row = quotient(leaf, self.num_envs) + (self.length - self.n_step)
        row, env = remainder(row, self.length), remainder(leaf, self.num_envs)
        window = gather_windows(self, mem.rows, row, env)
        return window._replace(weight=window.weight * weight), leaf
