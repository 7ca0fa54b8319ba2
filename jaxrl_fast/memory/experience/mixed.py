"""Memories that mix a run's own experience with a dataset, or start from one.

Each wraps the memory of an algorithm, so that algorithms need no change.
"""

from __future__ import annotations

import dataclasses
from typing import ClassVar

import jax
import jax.numpy as jnp

from jaxrl_fast import random, tree
from jaxrl_fast.errors import ConfigError, check_float
from jaxrl_fast.memory.api import Memory
from jaxrl_fast.memory.experience.filled import (
    Filled,
    check_rows,
    check_windows,
    layout,
    refuse_sequences,
)
from jaxrl_fast.memory.prioritized import PrioritizedMemory, converted
from jaxrl_fast.memory.ring import Ring, Row, as_dataset, seal, successors_of
from jaxrl_fast.memory.transitions import Transition
from jaxrl_fast.types import Window


@dataclasses.dataclass(frozen=True)
class MixedMemory(Memory):
    """Batches of `online`'s windows, then a constant dataset's (see `mix`).

    The dataset is not part of the state: it is neither donated nor checkpointed, and a population
    shares it. Its priorities stay constant; `feedback` goes to the online memory.
    """

    online: Ring
    offline: Filled
    replays: ClassVar[bool] = True

    def init(self, rows):
        data = self.offline.rows
        # else whole stacks, or successors too
        if isinstance(data, Row) and self.offline.memory.stack == self.online.stack:
            check_rows("offline", as_dataset(data), as_dataset(rows))
        return self.online.init(rows)

    def add(self, mem, rows, w):
        return self.online.add(mem, rows, w)

    def plan(self, key, n, w, clock):
        keys = random.split(key)
        online = self.online.plan(keys[0], n, w, clock)
        return online, self.offline.memory.plan(keys[1], n, jnp.int32(self.offline.w), clock)

    def fetch(self, mem, x):
        online, handle = self.online.fetch(mem, x[0])
        offline, _ = self.offline.memory.fetch(self.offline.store, x[1])
        return _join(online, offline), handle

    def feedback(self, mem, handle, priority):
        return self.online.feedback(mem, handle, priority[: self.online.batch_size])

    def retain(self, mem):
        return self.online.retain(mem)

    def seam(self, mem, w):
        return self.online.seam(mem, w)

    def watch(self, mem):
        return self.online.watch(mem)


def _join(a: Window, b: Window) -> Window:
    along = lambda axis: lambda x, y: jnp.concatenate([x, y], axis=axis)
    # a dataset's rows have no extras
    alike = lambda window: window._replace(reward=(), use=(), extras=(), boot_extras=())
    joined = jax.tree.map(along(0), alike(a), alike(b))
    return joined._replace(reward=along(1)(a.reward, b.reward), use=along(1)(a.use, b.use))


def mix(memory: Ring, data: Filled, fraction: float = 0.5) -> MixedMemory:
    """Return `memory` with `fraction` (static; RLPD: half) of its batch from `data`."""
    check_float("fraction", fraction, 0, 1)
    count = round(memory.batch_size * fraction)
    if not 0 < count < memory.batch_size:
        raise ConfigError("fraction", fraction,
                          f"one that leaves both parts a window of the {memory.batch_size}")
    offline = _drawn_as(memory, data, count)
    check_windows("data", data)
    return MixedMemory(dataclasses.replace(memory, batch_size=memory.batch_size - count), offline)


def _drawn_as(memory: Ring, data: Filled, batch_size: int) -> Filled:
    """Return `data` with this batch size and the importance correction of `memory`."""
    refuse_sequences("memory", memory)
    refuse_sequences("data", data.memory)
    if memory.n_step != data.memory.n_step:
        raise ConfigError("n_step", memory.n_step,
                          f"{data.memory.n_step}, as the memory of the data has it")
    own = {"beta": memory.beta} if hasattr(memory, "beta") and hasattr(data.memory, "beta") else {}
    return dataclasses.replace(
        data, memory=dataclasses.replace(data.memory, batch_size=batch_size, **own)
    )


@dataclasses.dataclass(frozen=True)
class OfflineMemory(Memory):
    """A constant dataset; the state is its priorities, or ().

    As with `MixedMemory`, a population shares the rows, and a checkpoint does not hold them.
    """

    data: Filled
    replays: ClassVar[bool] = True

    def _with_rows(self, mem):
        return self.data.store if mem == () else mem._replace(rows=self.data.rows)

    def init(self, rows):
        store = self.data.store
        return () if self.data.rows is store else tree.copy(store._replace(rows=()))

    def add(self, mem, rows, w):
        return mem

    def plan(self, key, n, w, clock):
        return self.data.memory.plan(key, n, jnp.int32(self.data.w), clock)

    def fetch(self, mem, x):
        return self.data.memory.fetch(self._with_rows(mem), x)

    def feedback(self, mem, handle, priority):
        return self.data.memory.feedback(mem, handle, priority)

    def watch(self, mem):
        return () if mem == () else self.data.memory.watch(mem)


def offline(memory: Ring, data: Filled) -> OfflineMemory:
    """Return a memory with batches as `memory`'s, all from `data`."""
    found = _drawn_as(memory, data, memory.batch_size)
    if isinstance(memory, PrioritizedMemory) and isinstance(data.memory, PrioritizedMemory):
        new = dataclasses.replace(found.memory, alpha=memory.alpha, epsilon=memory.epsilon)
        found = dataclasses.replace(found, memory=new,
                                    store=converted(data.memory, new, data.store))
    return OfflineMemory(found)


@dataclasses.dataclass(frozen=True)
class StartFrom(Memory):
    """`memory`, started with `start`; the run's own blocks follow and overwrite it in time.

    No window crosses between the two: the last row before the seam counts as truncated.
    """

    memory: Ring
    start: Filled
    replays: ClassVar[bool] = True

    def __post_init__(self):
        found, wanted = layout(self.start.memory), layout(self.memory)
        if found != wanted:
            raise ConfigError("start", found, f"the layout of the run's own memory, {wanted}")
        found, wanted = self.start.memory.truncation_interval, self.memory.truncation_interval
        if successors_of(self.start.rows) is not None and found != wanted:
            raise ConfigError("start", f"truncation_interval {found}",
                              f"{wanted}, as the run's own memory has it")

    def init(self, rows):
        check_rows("start", as_dataset(self.start.rows), as_dataset(rows))
        start = tree.copy(self.start)  # the state is donated, `start` is not
        if isinstance(start.rows, Transition):
            return start.store  # no row has its successor in another
        if not isinstance(start.rows, Row):
            raise ConfigError("start", type(start.rows).__name__,
                              "rows of a replay memory (Row or Transition)")
        found = start.rows
        if not jax.tree.leaves(found.extras):  # see `add`; no window crosses to rows with extras
            shape = (self.memory.length, self.memory.num_envs)
            empty = lambda x: jnp.zeros((*shape, *x.shape[2:]), x.dtype)
            found = found._replace(extras=jax.tree.map(empty, rows.extras))
        if not jax.tree.leaves(rows.next_obs):
            found = found._replace(next_obs=())
        elif successors_of(found) is None:
            found = found._replace(next_obs=self.memory.slots.init(rows.next_obs))
        rows = seal(found, (start.w * self.memory.num_steps - 1) % self.memory.length)
        if start.rows is start.store:
            return rows
        return converted(start.memory, self.memory, start.store._replace(rows=rows))

    def add(self, mem, rows, w):
        memory = self.memory
        if isinstance(memory, PrioritizedMemory) and not jax.tree.leaves(
            getattr(self.start.rows, "extras", ())
        ):
            memory = dataclasses.replace(memory, first_from=self.start.w * memory.num_steps)
        return memory.add(mem, rows, w + self.start.w)

    def plan(self, key, n, w, clock):
        return self.memory.plan(key, n, w + self.start.w, clock)

    def fetch(self, mem, x):
        return self.memory.fetch(mem, x)

    def feedback(self, mem, handle, priority):
        return self.memory.feedback(mem, handle, priority)

    def retain(self, mem):
        return self.memory.retain(mem)

    def seam(self, mem, w):
        return self.memory.seam(mem, w + self.start.w)

    def watch(self, mem):
        return self.memory.watch(mem)
