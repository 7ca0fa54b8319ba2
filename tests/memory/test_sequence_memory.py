"""Replay of sequences against a plain list of every row: where they start, what is in them, what
may be learned from."""

from __future__ import annotations

import functools

import jax
import jax.numpy as jnp
import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from scipy import stats

from helpers.matrix import family
from jaxrl_fast import tree
from jaxrl_fast.errors import ConfigError
from jaxrl_fast.memory import PrioritizedSequenceMemory, Recurrent, Row, SequenceMemory
from jaxrl_fast.types import Clock

ENVS, MAX_BLOCKS, BATCH, GAMMA = 2, 11, 200, 0.9
# num_steps, carry_every, seq_len, burn_in, n_step, stack
SHAPES = [(4, 2, 5, 2, 1, 1), (2, 2, 4, 2, 3, 1), (3, 3, 3, 0, 1, 1), (4, 2, 5, 1, 2, 4),
          (2, 1, 3, 1, 1, 2)]
CLASSES = [SequenceMemory, PrioritizedSequenceMemory]


def make(cls, shape):
    steps, every, seq_len, burn_in, n_step, stack = shape
    sizes = dict(num_steps=steps, num_envs=ENVS, batch_size=BATCH, n_step=n_step, stack=stack)
    blocks = -(-(seq_len + n_step + stack) // steps) + 2
    rest = dict(seq_len=seq_len, burn_in=burn_in, carry_every=every)
    return cls(capacity=blocks * steps * ENVS + 1, **sizes, **rest)  # 1: capacity need not divide


@functools.cache
def program(cls, shape):
    """(rows [TIME, ENVS], blocks written, key) -> (Sequence, handle), the ring filled as a run
    fills it."""
    memory = make(cls, shape)

    def run(rows, w, key):
        blocks = jax.tree.map(lambda x: x.reshape((MAX_BLOCKS, -1, *x.shape[1:])), rows)
        mem = memory.init(jax.eval_shape(lambda: tree.take(blocks, 0)))
        mem = jax.lax.fori_loop(0, w, lambda i, mem: memory.add(mem, tree.take(blocks, i), i), mem)
        return memory.fetch(mem, tree.take(memory.plan(key, 1, w, Clock(w, w, jnp.float32(0))), 0))

    return memory, jax.jit(run)


def history(memory, ends, seed):
    """Rows whose observation is their number; rewards that fit values, r = V(s) - gamma V(s'); the
    carries of a
    policy that counts the steps of its episode, once a row: with what it was acted."""
    rng = np.random.default_rng(seed)
    time = len(ends)
    value = rng.normal(size=(time, ENVS))
    successor = np.concatenate([value[1:], rng.normal(size=(1, ENVS))])
    successor = np.where(ends == 2, rng.normal(size=ends.shape),
                         np.where(ends == 1, 0.0, successor))
    reward = (value - GAMMA * successor).astype(np.float32)
    number = np.arange(time * ENVS, dtype=np.int32).reshape(time, ENVS)
    row = Row(number[..., None], (7 * number) % 5, reward, ends == 1, ends == 2)
    # the number of the episode's first row, and the steps since
    carry = np.zeros((time, ENVS, 2), np.float32)
    carry[0, :, 0] = number[0]
    for t in range(1, time):
        carry[t] = np.where(ends[t - 1, :, None] > 0, np.stack([number[t], 0 * number[t]], 1),
                            carry[t - 1] + [0, 1])
    return row, carry, value


def stacked(number, done, time, env, stack):
    frames = [number[time, env]]
    for _ in range(stack - 1):
        if time > 0 and not done[time - 1, env]:
            time -= 1
        frames.append(number[time, env])
    return frames[::-1]


def target(steps, i, b, n_step, value):
    """The return of row i as `Sequence` says, from what the sequence holds, with true values for a
    bootstrap."""
    ret = 0.0
    for k in range(n_step):
        if steps.truncated[i + k, b]:
            return ret + GAMMA**k * value[int(steps.obs[i + k, b, -1])]
        ret += GAMMA**k * steps.reward[i + k, b]
        if steps.terminated[i + k, b]:
            return ret
    return ret + GAMMA**n_step * value[int(steps.obs[i + n_step, b, -1])]


def starts(cls, memory, w):
    """Times at which a sequence may start: a stored carry, its frames and all of its rows in the
    ring."""
    newest, oldest = w * memory.num_steps, max(0, w - memory.num_blocks) * memory.num_steps
    every = range(0, newest, memory.carry_every)
    # switches off whole blocks of leaves behind the write head
    if cls is PrioritizedSequenceMemory:
        waste = (
            memory.dead_blocks * memory.num_steps // memory.carry_every - memory.lag - memory.first)
        assert 0 <= waste < memory.num_steps // memory.carry_every
        oldest += waste * memory.carry_every if w >= memory.num_blocks else 0
    return {t for t in every if t - (memory.stack - 1) >= oldest and t + memory.rows <= newest}


def check(cls, shape, ends, w, seed=0):
    memory, run = program(cls, shape)
    row, carry, value = history(memory, ends, seed)
    data = jax.tree.map(jnp.asarray, Recurrent(row, carry[:: memory.carry_every]))
    sequence, _ = run(data, jnp.int32(w), jax.random.key(seed))
    sequence = jax.tree.map(np.asarray, sequence)
    steps, reset = sequence.steps, np.asarray(sequence.reset)
    assert sequence.burn_in == memory.burn_in and steps.reward.shape == (
        memory.seq_len + memory.n_step, BATCH)
    allowed = starts(cls, memory, w)
    if not allowed:
        assert not sequence.weight.any() and not sequence.use.any()
        return
    first = steps.obs[0, :, -1]
    assert set(first.tolist()) == {t * ENVS + e for t in allowed for e in range(ENVS)}
    done = ends > 0
    for b in range(0, BATCH, 8):
        t, e = divmod(int(first[b]), ENVS)
        # consecutive: never across the write head, never an unwritten row
        at = np.arange(t, t + memory.rows)
        np.testing.assert_array_equal(
            steps.obs[:, b], [stacked(row.obs[..., 0], done, i, e, memory.stack) for i in at])
        for name in ("action", "reward", "terminated", "truncated"):
            np.testing.assert_array_equal(getattr(steps, name)[:, b], getattr(row, name)[at, e])
        use = [memory.burn_in <= i < memory.seq_len and ends[t + i, e] != 2
               for i in range(memory.rows)]
        assert sequence.use[:, b].tolist() == use
        assert sequence.weight[b] == float(any(use))
        # The stored carry and the resets bring back the carry with which each row was acted.
        np.testing.assert_array_equal(sequence.carry[b], carry[t, e])
        unrolled = sequence.carry[b]
        for i in range(memory.rows):
            unrolled = np.array([steps.obs[i, b, -1], 0]) if reset[i, b] else unrolled + [0, i > 0]
            np.testing.assert_array_equal(unrolled, carry[t + i, e])
        # unbiased: with true values every return is its row's value
        for i in np.flatnonzero(sequence.use[:, b]):
            got = target(steps, i, b, memory.n_step, value.reshape(-1))
            assert got == pytest.approx(value[t + i, e], abs=2e-5)


@pytest.mark.parametrize("cls", family(CLASSES, [PrioritizedSequenceMemory]))
@pytest.mark.parametrize("shape", family([pytest.param(x) for x in SHAPES], 1))
def test_episodes_without_ends_and_with_an_end_at_every_step(cls, shape):
    for kind in (0, 1, 2):
        for w in (1, 3, 4, 6, MAX_BLOCKS):
            check(cls, shape, np.full((MAX_BLOCKS * shape[0], ENVS), kind), w)


@pytest.mark.parametrize(("cls", "shape"), family(
    [(cls, shape) for cls in CLASSES for shape in SHAPES],
    lambda cls, shape: shape in (SHAPES[:2] if cls is SequenceMemory else SHAPES[3:])))
@settings(derandomize=True, deadline=None, max_examples=12, database=None)
@given(data=st.data())
def test_sequences_equal_brute_force(cls, shape, data):
    w = data.draw(st.integers(1, MAX_BLOCKS), label="blocks written")
    seed = data.draw(st.integers(0, 2**16), label="seed")
    share = data.draw(st.sampled_from([0.05, 0.2, 0.5, 0.9]), label="share of ends")
    kinds = data.draw(st.sampled_from([(1, 2), (2,), (1,)]), label="kinds of ends")
    rng = np.random.default_rng(seed)
    size = (MAX_BLOCKS * shape[0], ENVS)
    check(cls, shape, np.where(rng.random(size) < share, rng.choice(kinds, size), 0), w, seed)


def test_learned_rows_are_learned_equally_often(clock):
    """carry_every divides seq_len - burn_in: each row in the middle of the ring is in that many
    sequences."""
    memory = SequenceMemory(60, 6, 1, 999, seq_len=6, burn_in=2, carry_every=2)
    count = np.zeros(60, int)
    for start in np.unique(memory.plan(jax.random.key(0), 1, jnp.int32(10), clock())[0]):
        count[start + 2 : start + 6] += 1
    assert set(count[4:54]) == {2}


def test_starts_are_uniform(clock):
    memory = make(SequenceMemory, SHAPES[3])
    row, env, whole = memory.plan(jax.random.key(0), 40, jnp.int32(9), clock())
    _, counts = np.unique(np.asarray(row) * ENVS + env, return_counts=True)
    assert whole.all() and len(counts) == len(starts(SequenceMemory, memory, 9)) * ENVS
    assert stats.chisquare(counts).pvalue > 1e-3


def test_only_every_kth_carry_is_stored_and_frames_only_once():
    memory = SequenceMemory(4000, 40, 10, 16, stack=4, n_step=5, seq_len=60, burn_in=20,
                            carry_every=20)
    shape = lambda *s, dtype="float32": jax.ShapeDtypeStruct(s, dtype)
    row = Row(
        shape(40, 10, 84, 84, 1, dtype="uint8"), shape(40, 10, dtype="int32"), shape(40, 10),
        shape(40, 10, dtype="bool"), shape(40, 10, dtype="bool"),
    )  # fmt: skip
    mem = jax.eval_shape(memory.init, Recurrent(row, (shape(2, 10, 512), shape(2, 10, 512))))
    assert (
        tree.nbytes(mem.row) == 4000 * (84 * 84 + 10)
        and tree.nbytes(mem.carry) == 4000 // 20 * 2 * 512 * 4
    )


def test_priorities_decide_and_weigh(rng, clock):
    memory = PrioritizedSequenceMemory(40, 2, 2, 32, seq_len=3, burn_in=1, carry_every=2, alpha=0.7,
                                       epsilon=0.01)
    flags = jnp.zeros((2, 2), bool)
    block = lambda t: Recurrent(Row(jnp.full((2, 2, 1), t), flags, jnp.ones((2, 2)), flags, flags),
                                ())
    mem, add = memory.init(block(0)), jax.jit(memory.add)
    for t in range(7):
        mem = add(mem, block(t), jnp.int32(t))
    leaf = np.flatnonzero(np.asarray(mem.tree[0]).reshape(-1)).astype(np.int32)
    assert len(leaf) == 6 * 2  # starts at rows 0, 2, ..., 10; 4 rows each
    error = rng.exponential(size=len(leaf)).astype(np.float32)
    mem = memory.feedback(mem, leaf, error)
    p = (error + 0.01) ** 0.7
    sequences, drawn = jax.jit(jax.vmap(memory.fetch, (None, 0)))(
        mem, memory.plan(jax.random.key(0), 2000, 7, clock()))
    share = np.bincount(np.asarray(drawn).reshape(-1), minlength=leaf.max() + 1)[leaf] / drawn.size
    np.testing.assert_allclose(share, p / p.sum(), atol=4e-3)
    drawn_p = np.zeros(leaf.max() + 1)
    drawn_p[leaf] = p
    drawn_p = drawn_p[np.asarray(drawn)]
    np.testing.assert_allclose(sequences.weight, (drawn_p.min(1, keepdims=True) / drawn_p) ** 0.6,
                               rtol=1e-4)


@pytest.mark.parametrize(
    ("bad", "message"),
    [
        (dict(burn_in=120), "burn_in must be an integer from 0 to 119, got 120"),
        (dict(carry_every=30), "carry_every must be a divisor of num_steps = 40, got 30"),
        (dict(burn_in=81), "carry_every must be at most seq_len - burn_in = 39, .*got 40"),
        (dict(capacity=900), "capacity must be at least 960, got 900"),
        (dict(carry_every=0), "carry_every must be .*got 0"),
    ],
)
@pytest.mark.parametrize("cls", CLASSES)
def test_bad_sizes_are_refused(cls, bad, message):
    good = dict(capacity=1000, num_steps=40, num_envs=6, batch_size=4)
    cls(**good)
    with pytest.raises(ConfigError, match=message):
        cls(**good | bad)


def test_a_carry_of_every_row_is_refused():
    memory = SequenceMemory(1000, 40, 2, 4)
    row = Row(*[jnp.zeros((40, 2))] * 5)
    with pytest.raises(ConfigError,
                       match=r"carry must be leaves \[1, 2, '...'\], got \(40, 2, 3\)"):
        memory.init(Recurrent(row, jnp.zeros((40, 2, 3))))
