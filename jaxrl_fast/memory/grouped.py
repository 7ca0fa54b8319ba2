"""Groups: equal parts of a memory, each sampling its share of a batch from its environments.

On a mesh no row leaves the device of its environments, and one device with as many groups computes
the same.
"""

from __future__ import annotations

import dataclasses
from typing import Any

import jax
import jax.numpy as jnp

from jaxrl_fast import random
from jaxrl_fast.errors import ConfigError
from jaxrl_fast.memory import sum_tree
from jaxrl_fast.memory.api import Memory
from jaxrl_fast.memory.prioritized import Prioritized, PrioritizedMemory
from jaxrl_fast.memory.ring import Ring
from jaxrl_fast.memory.rollout import RolloutMemory

AXIS = "groups"  # axis over which memories with priorities reduce (`PrioritizedMemory.axis`)


@dataclasses.dataclass(frozen=True)
class Grouped(Memory):
    """`groups` memories like `memory`, along a leading axis of the state."""

    memory: Memory  # of one group
    groups: int

    @property
    def replays(self) -> bool:
        return self.memory.replays

    def _split(self, rows):
        """Split rows [T, B, ...] into [groups, T, B / groups, ...]."""
        shape = lambda t, b, *rest: (t, self.groups, b // self.groups, *rest)
        return jax.tree.map(lambda x: jnp.moveaxis(x.reshape(shape(*x.shape)), 1, 0), rows)

    def _each(self, f, in_axes=0, out_axes=0):
        return jax.vmap(f, in_axes, out_axes, axis_name=AXIS)

    def init(self, rows):
        whole = jax.eval_shape(self._split, rows)
        one = jax.tree.map(lambda x: jax.ShapeDtypeStruct(x.shape[1:], x.dtype), whole)
        return jax.tree.map(lambda x: jnp.broadcast_to(x, (self.groups, *x.shape)),
                            self.memory.init(one))

    def add(self, mem, rows, w):
        return self._each(self.memory.add, (0, 0, None))(mem, self._split(rows), w)

    def plan(self, key, n, w, clock):
        keys = random.split(key, self.groups)
        # [n, groups, ...]
        return self._each(lambda key: self.memory.plan(key, n, w, clock), out_axes=1)(keys)

    def fetch(self, mem, x):
        axes = self.memory.batch_axes
        batch, handle = self._each(self.memory.fetch, out_axes=(axes, 0))(mem, x)
        axes = jax.tree.broadcast(axes, batch)
        merge = lambda leaf, k: leaf.reshape((*leaf.shape[:k], -1, *leaf.shape[k + 2 :]))
        return jax.tree.map(merge, batch, axes), handle

    def feedback(self, mem, handle, priority):
        shares = jax.tree.map(lambda p: p.reshape((self.groups, -1, *p.shape[1:])), priority)
        return self._each(self.memory.feedback)(mem, handle, shares)

    def retain(self, mem):
        return self._each(self.memory.retain)(mem) if jax.tree.leaves(mem) else mem

    def seam(self, mem, w):
        return self._each(self.memory.seam, (0, None))(mem, w)

    def watch(self, mem):
        return self.memory.watch(mem)


def merged(memory: Ring, mem: Any) -> Any:
    """Return the state of `Grouped` as the state of one `memory` with all environments."""
    join = lambda x: jnp.moveaxis(x, 0, 1).reshape(
        x.shape[1], x.shape[0] * x.shape[2], *x.shape[3:]
    )
    if not hasattr(mem, "tree"):
        return jax.tree.map(join, mem)
    if not isinstance(memory, PrioritizedMemory):
        raise ConfigError("groups", mem.top.shape[0],
                          f"1: the groups of a {type(memory).__name__} cannot be merged")
    groups = mem.tree[0].shape[0]
    shape = (groups, memory.length, memory.num_envs // groups)
    leaves = join(mem.tree[0].reshape(groups, -1)[:, : shape[1] * shape[2]].reshape(shape)).ravel()
    return Prioritized(jax.tree.map(join, mem.rows), sum_tree.build(leaves), mem.top.max())


def grouped(memory: Memory, groups: int) -> Memory:
    """Return `memory` in `groups` equal parts; raises ConfigError if a part cannot be divided."""
    if groups == 1:
        return memory
    if isinstance(memory, RolloutMemory):
        parts = ("num_envs",)
        rows = memory.num_envs // groups * (1 if memory.by_env else memory.num_steps)
        what = "environments" if memory.by_env else "rows"
        if rows % memory.num_minibatches:
            raise ConfigError("groups", groups,
                              f"such that num_minibatches = {memory.num_minibatches} divides the "
                              f"{what} of each")
    elif isinstance(memory, Ring):
        parts = ("num_envs", "batch_size", "capacity")
    else:
        raise ConfigError("groups", groups,
                          f"1: {type(memory).__name__} cannot be divided among devices")
    sizes = {}
    for name in parts:
        size = getattr(memory, name)
        if name == "capacity":
            size -= size % groups  # the ring rounds down anyway
        if size % groups:
            raise ConfigError("groups", groups, f"a divisor of {name} = {size}")
        sizes[name] = size // groups
    if hasattr(memory, "axis"):
        sizes["axis"] = AXIS
    return Grouped(dataclasses.replace(memory, **sizes), groups)
