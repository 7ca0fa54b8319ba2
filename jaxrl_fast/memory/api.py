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

from typing import Any, ClassVar

import jax

from jaxrl_fast.types import Clock, PyTree


class Memory:
    """Base class of memories. As it stands it keeps nothing: the memory of an algorithm that needs none.

    replays: whether batches hold rows of earlier iterations.
    batch_axes: where the batch axis of what `fetch` returns is, a prefix of its tree.
    """

    replays: ClassVar[bool] = False
    batch_axes: Any = 0

    def init(self, rows: PyTree) -> PyTree:
        return ()

    def add(self, mem: PyTree, rows: PyTree, w: jax.Array) -> PyTree:
        return mem

    def plan(self, key: jax.Array, n: int, w: jax.Array, clock: Clock) -> PyTree:
        return ()

    def fetch(self, mem: PyTree, x: PyTree) -> tuple[Any, Any]:
        return (), ()

    def feedback(self, mem: PyTree, handle: Any, priority: jax.Array) -> PyTree:
        return mem

    def retain(self, mem: PyTree) -> PyTree:
        return mem

    def seam(self, mem: PyTree, w: jax.Array) -> PyTree:
        return mem

    def watch(self, mem: PyTree) -> PyTree:
        return ()
