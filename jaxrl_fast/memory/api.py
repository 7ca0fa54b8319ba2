"""The memory: what an iteration adds its rows to and fetches its batches from.

    init(rows)                    -> mem          `rows`: shapes [T, B, ...] of what `Algorithm.prepare` returns
    add(mem, rows, w)             -> mem          write block number w (blocks are counted from 0 by the caller)
    plan(key, n, w, clock)        -> xs [n]       everything random of n fetches, after w blocks were written
    fetch(mem, x)                 -> (batch, handle)
    feedback(mem, handle, priority) -> mem        for a memory that samples by priority
    retain(mem)                   -> mem          what outlives the iteration (a rollout does not)
    seam(mem, w)                  -> mem          what follows block w - 1 is not its successor: no window crosses
    watch(mem)                    -> arrays       what must stay finite; the NaN sentinel looks at it beside the agent

A memory is a frozen dataclass of sizes. It holds no counters: head and size follow from the unbatched `w`, so that a
ring write stays one `dynamic_update_slice` under a population's `vmap` and a single run costs nothing extra.
`plan` does not see the memory, so all of an iteration's randomness can be drawn ahead of it.
"""

from __future__ import annotations

from typing import Any

import jax

from jaxrl_fast.types import Clock, PyTree


class Memory:
    batch_axes: Any = 0  # where the batch axis of what `fetch` returns is, a prefix of its tree

    def init(self, rows: PyTree) -> PyTree:
        raise NotImplementedError

    def add(self, mem: PyTree, rows: PyTree, w: jax.Array) -> PyTree:
        raise NotImplementedError

    def plan(self, key: jax.Array, n: int, w: jax.Array, clock: Clock) -> PyTree:
        raise NotImplementedError

    def fetch(self, mem: PyTree, x: PyTree) -> tuple[Any, Any]:
        raise NotImplementedError

    def feedback(self, mem: PyTree, handle: Any, priority: jax.Array) -> PyTree:
        return mem

    def retain(self, mem: PyTree) -> PyTree:
        return mem

    def seam(self, mem: PyTree, w: jax.Array) -> PyTree:
        return mem

    def watch(self, mem: PyTree) -> PyTree:
        return ()


class NoMemory(Memory):
    """Memory of an algorithm that learns from a whole rollout at once: nothing is kept."""

    def init(self, rows):
        return ()

    def add(self, mem, rows, w):
        return ()

    def plan(self, key, n, w, clock):
        return ()

    def fetch(self, mem, x):
        return (), ()
