"""The memory: an iteration adds its rows here and fetches its batches.

    init(rows)                    -> mem          `rows`: shapes [T, B, ...] of `Algorithm.prepare`
    add(mem, rows, w)             -> mem          write block number w (the caller counts from 0)
    plan(key, n, w, clock)        -> xs [n]       all randomness of n fetches, after w blocks
    fetch(mem, x)                 -> (batch, handle)
    feedback(mem, handle, priority) -> mem        for memories that sample by priority
    retain(mem)                   -> mem          the part kept across iterations
    seam(mem, w)                  -> mem          no window crosses from block w - 1 to block w
    watch(mem)                    -> arrays       must stay finite; the NaN sentinel checks them

A memory is a frozen dataclass of sizes without counters: head and size follow from the unbatched
`w`. A ring write so stays one `dynamic_update_slice` under a population's `vmap`. `plan` does not
see the memory, so an iteration's randomness can be drawn ahead.
"""

from __future__ import annotations

from typing import Any, ClassVar

import jax

from jaxrl_fast.errors import expected
from jaxrl_fast.types import Clock, PyTree


class Memory:
    """Base class of memories; itself the memory of algorithms without one: it stores nothing.

    A subclass defines `add`, `plan` and `fetch`. replays: whether batches hold rows of earlier
    iterations. batch_axes: batch axis of `fetch`'s result, a prefix of its tree.
    """

    replays: ClassVar[bool] = False
    batch_axes: Any = 0

    def init(self, rows: PyTree) -> PyTree:
        return ()

    def add(self, mem: PyTree, rows: PyTree, w: jax.Array | int) -> PyTree:
        return mem

    def plan(self, key: jax.Array, n: int, w: jax.Array | int, clock: Clock) -> PyTree:
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


def check_methods(memory: Memory) -> None:
    """Raise ConfigError, with class and method, for a subclass that lacks one of its methods."""
    cls = type(memory)
    for name in ("add", "plan", "fetch"):
        if cls is not Memory and getattr(cls, name) is getattr(Memory, name):
            wanted = "a method of the class: a memory defines add, plan and fetch (`memory.api`)"
            raise expected(f"{cls.__name__}.{name}", wanted, "the base's, which stores nothing")
