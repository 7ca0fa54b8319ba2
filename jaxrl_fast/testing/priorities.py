"""The check of a memory's priorities, for `check_memory`."""

from __future__ import annotations

from typing import Any

import jax
import jax.numpy as jnp
import numpy as np

from jaxrl_fast.memory import Memory
from jaxrl_fast.testing.purity import compile_for_one_call
from jaxrl_fast.types import Clock, Sequence


def check_priorities(memory: Memory, rows: Any, data: Any, fetches: int, alpha: float) -> None:
    """Give every second row a hundred times the error: it is drawn more and weighs less."""
    count = jax.tree.leaves(data)[0].shape[0]
    ws, end = jnp.arange(count, dtype=jnp.int32), jnp.int32(count)

    def program(data):
        write = lambda mem, x: (memory.add(mem, *x), None)
        mem = jax.lax.scan(write, memory.init(rows), (data, ws))[0]
        plans = [memory.plan(jax.random.key(i), fetches, end, Clock(end, end, jnp.float32(1.0)))
                 for i in range(2)]

        def draw(mem, x):
            batch, handle = memory.fetch(mem, x)
            reward = batch.steps.reward if isinstance(batch, Sequence) else batch.reward
            even = reward[0].astype(jnp.int32) % 2 == 0  # its row's number
            return memory.feedback(mem, handle, jnp.where(even, 10.0, 0.1)), (even, batch.weight)

        mem, _ = jax.lax.scan(draw, mem, plans[0])
        return jax.lax.scan(draw, mem, plans[1])[1]

    even, weight = map(np.asarray, compile_for_one_call(jax.jit(program).trace(data))(data))
    assert weight.any(), "weight: all are 0, so nothing is learned from"
    even, weight = even[weight > 0], weight[weight > 0]
    chance = 100.0**alpha
    assert even.mean() - 0.5 > 0.5 * (chance / (1 + chance) - 0.5), (
        f"priorities: rows with a hundred times the error of the others are {even.mean():.0%} of "
        "the draws. `feedback` must return the store with the priorities of `handle` set"
    )
    assert weight[even].mean() < weight[~even].mean(), (
        "weight: rows that are drawn more often than others must weigh less, (N p)^-beta, at the "
        "horizon with a beta of 1"
    )
