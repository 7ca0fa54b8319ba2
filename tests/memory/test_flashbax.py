"""Replay against flashbax, where its definitions and ours coincide: no ends, no stacks.

flashbax is not in [dev]: `pip install flashbax && pytest -m flashbax`.
"""

from __future__ import annotations

import jax
import jax.numpy as jnp
import numpy as np
import pytest

from jaxrl_fast import tree
from jaxrl_fast.memory import (
    PrioritizedMemory,
    PrioritizedSequenceMemory,
    Recurrent,
    Row,
    SequenceMemory,
    UniformMemory,
)
from jaxrl_fast.types import Clock

pytestmark = pytest.mark.flashbax
ENVS, BATCH, BLOCKS = 2, 64, 9
CLOCK = Clock(0, 0, jnp.float32(0))


@pytest.fixture
def flashbax():
    import flashbax

    return flashbax


def block(memory, t):
    """Values are row numbers."""
    number = jnp.arange(memory.num_steps * ENVS, dtype=jnp.int32).reshape(memory.num_steps, ENVS)
    number = number + t * memory.num_steps * ENVS
    flags = jnp.zeros(number.shape, bool)
    row = Row(number, number, number.astype(jnp.float32), flags, flags)
    if not isinstance(memory, SequenceMemory):
        return row
    return Recurrent(row, number[:: memory.carry_every])


def ours(memory, mem, w, fetches=40):
    """Row numbers [n, length] of what comes out."""
    plan = memory.plan(jax.random.key(w), fetches, jnp.int32(w), CLOCK)
    batch, handle = jax.jit(jax.vmap(memory.fetch, (None, 0)))(mem, plan)
    if hasattr(batch, "steps") and hasattr(batch.steps, "obs"):
        rows = jnp.moveaxis(batch.steps.obs, 1, 2)
        assert np.array_equal(batch.carry, rows[..., 0])
    else:
        rows = jnp.stack([batch.obs, batch.boot_obs], axis=-1)
    return tree.merge_axes(rows), handle


def theirs(buffer, state, w, samples=40):
    return jax.jit(jax.vmap(lambda key: buffer.sample(state, key)))(
        jax.random.split(jax.random.key(w), samples))


def whole(rows):
    return {tuple(r) for r in np.asarray(rows).reshape(-1, np.shape(rows)[-1]).tolist()}


def lengths(memory):
    return (memory.rows, memory.carry_every) if isinstance(memory, SequenceMemory) else (2, 1)


@pytest.mark.parametrize(
    "memory",
    [
        UniformMemory(12, 2, ENVS, BATCH),
        SequenceMemory(24, 2, ENVS, BATCH, seq_len=3, burn_in=1, carry_every=2),
        SequenceMemory(32, 4, ENVS, BATCH, n_step=2, seq_len=5, burn_in=2, carry_every=2),
    ],
)
def test_the_same_windows_come_out_equally_often(flashbax, memory):
    length, period = lengths(memory)
    buffer = flashbax.make_trajectory_buffer(
        add_batch_size=ENVS, sample_batch_size=BATCH, sample_sequence_length=length, period=period,
        min_length_time_axis=length, max_length_time_axis=memory.length,
    )  # fmt: skip
    mem, state = memory.init(block(memory, 0)), buffer.init(jnp.int32(0))
    add, put = jax.jit(memory.add), jax.jit(buffer.add)
    compared = 0
    for t in range(BLOCKS):
        rows = block(memory, t)
        mem, state = add(mem, rows, jnp.int32(t)), put(state,
                                                       (rows.row if len(rows) == 2 else rows).obs.T)
        if buffer.can_sample(state):
            mine, _ = ours(memory, mem, t + 1)
            other = theirs(buffer, state, t).experience
            assert whole(mine) == whole(other), t
            for rows_of in (mine, np.asarray(other).reshape(-1, length)):
                _, counts = np.unique(np.asarray(rows_of)[:, 0], return_counts=True)
                assert counts.min() > 0.6 * counts.mean() and counts.max() < 1.5 * counts.mean()
            compared += 1
    assert compared >= BLOCKS - 4


@pytest.mark.parametrize(
    "memory",
    [
        PrioritizedMemory(12, 1, ENVS, BATCH, alpha=0.7, epsilon=0.0),
        PrioritizedSequenceMemory(24, 2, ENVS, BATCH, seq_len=3, burn_in=1, carry_every=2,
                                  alpha=0.7, epsilon=0.0),
    ],
)
def test_the_same_priorities_give_the_same_probabilities(flashbax, memory):
    """After every block new rows have the largest priority, old rows their own, and overwritten
    rows are gone."""
    length, period = lengths(memory)
    buffer = flashbax.make_prioritised_trajectory_buffer(
        add_batch_size=ENVS, sample_batch_size=BATCH, sample_sequence_length=length, period=period,
        min_length_time_axis=length, max_length_time_axis=memory.length, priority_exponent=0.7,
    )  # fmt: skip
    mem, state = memory.init(block(memory, 0)), buffer.init(jnp.int32(0))
    add, put, feed, set_ = map(jax.jit,
                               (memory.add, buffer.add, memory.feedback, buffer.set_priorities))
    # of the window that starts at a row. At most 1: flashbax 0.1.3 rounds the priority of new rows
    # down to an integer
    error = lambda number: (1 + 7 * number % 11) / 11
    compared = 0
    for t in range(BLOCKS):
        rows = block(memory, t)
        mem, state = add(mem, rows, jnp.int32(t)), put(state,
                                                       (rows.row if len(rows) == 2 else rows).obs.T)
        if not buffer.can_sample(state):
            continue
        for _ in range(2):  # with what the new rows got; then with every priority set
            mine, leaf = ours(memory, mem, t + 1)
            first, leaf = np.asarray(mine)[:, 0], np.asarray(leaf).reshape(-1)
            mass = np.asarray(mem.tree[0]).reshape(-1)
            sample = theirs(buffer, state, t)
            other = np.asarray(sample.experience).reshape(-1, length)
            mine_p = dict(zip(first.tolist(), (mass[leaf] / mass.sum()).tolist(), strict=True))
            other_p = (
                dict(zip(other[:, 0].tolist(),
                         np.asarray(sample.probabilities).reshape(-1).tolist(), strict=True))
            )
            assert whole(mine) == whole(other)
            assert (
                mine_p == pytest.approx(other_p, rel=1e-5)
                and sum(mine_p.values()) == pytest.approx(1, abs=1e-5)
            )
            mem = feed(mem, jnp.asarray(leaf), jnp.asarray(error(first), jnp.float32))
            indices = np.asarray(sample.indices).reshape(-1)
            state = set_(state, jnp.asarray(indices), jnp.asarray(error(other[:, 0]), jnp.float32))
            compared += 1
    assert compared >= 2 * (BLOCKS - 4)
