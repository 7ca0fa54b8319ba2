"""Prioritized replay against a plain list of rows: which windows can start, how often, with what
weight."""

from __future__ import annotations

import dataclasses
import functools

import jax
import jax.numpy as jnp
import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from helpers.matrix import family
from jaxrl_fast import tree
from jaxrl_fast.errors import ConfigError
from jaxrl_fast.memory import (
    PrioritizedMemory,
    PrioritizedSequenceMemory,
    Row,
    UniformMemory,
    grouped,
    sum_tree,
)
from jaxrl_fast.memory.prioritized import first_of_equals, sample
from jaxrl_fast.types import Clock

ENVS, BLOCKS, BATCH = 3, 5, 32
# num_steps, n_step, stack
SHAPES = [(1, 1, 1), (2, 1, 1), (2, 3, 1), (1, 3, 2), (2, 2, 3), (4, 2, 2)]


def make(steps: int, n_step: int, stack: int, **settings) -> PrioritizedMemory:
    blocks = BLOCKS + -(-(n_step + stack) // steps)
    return PrioritizedMemory(blocks * steps * ENVS, steps, ENVS, BATCH, n_step, stack, **settings)


def rows(memory, t: int, terminated, truncated) -> Row:
    """Block t; the observation is the row's number."""
    number = np.arange(ENVS * memory.num_steps, dtype=np.int32).reshape(memory.num_steps, ENVS)
    number = number + np.int32(t * ENVS * memory.num_steps)
    return Row(number[..., None], number, number.astype(np.float32), terminated, truncated)


@functools.cache
def programs(shape):
    memory = make(*shape, alpha=1.0)
    return memory, jax.jit(memory.add), jax.jit(memory.fetch), jax.jit(memory.feedback)


@functools.cache
def planned(shape):
    """A program: the plan of one batch, of a key and the number of blocks."""
    memory, clock = programs(shape)[0], Clock(0, 0, jnp.float32(0.5))
    return jax.jit(lambda key, blocks: tree.take(memory.plan(key, 1, blocks, clock), 0))


_begun = {}  # stores by memory and block: a program each


def begun(memory, block):
    shapes = jax.eval_shape(block)
    kind = memory, str(shapes)
    if kind not in _begun:
        _begun[kind] = jax.jit(lambda: memory.init(shapes))()
    return _begun[kind]


def filled(shape, blocks, ends):
    memory, add, fetch, feedback = programs(shape)
    ends = ends.reshape(-1, memory.num_steps, ENVS)
    mem = begun(memory, lambda: rows(memory, 0, ends[0] == 1, ends[0] == 2))
    for t in range(blocks):
        mem = add(mem, rows(memory, t, ends[t] == 1, ends[t] == 2), np.int32(t))
    return memory, mem, fetch, feedback


def starts(memory, blocks: int, ends) -> set[tuple[int, int]]:
    """(time, env) of every row that may start a window: its frames and its whole window are in the
    ring.

    Whole blocks beside the write head are switched off, so that up to a block less than that is
    used.
    """
    time = blocks * memory.num_steps
    oldest = max(0, time - memory.length) + memory.stack - 1
    waste = memory.dead_blocks * memory.num_steps - (memory.n_step + memory.stack - 1)
    assert 0 <= waste < memory.num_steps
    first = max(memory.stack - 1, time - memory.length + memory.stack - 1 + waste)
    assert first >= oldest
    return {(r, e) for r in range(first, time - memory.n_step)
            for e in range(ENVS) if ends[r, e] != 2}


@pytest.mark.parametrize("shape", family(map(pytest.param, SHAPES), lambda x: x in SHAPES[2:4]))
@settings(max_examples=15, deadline=None)
@given(st.integers(0, 2**31), st.integers(1, 14))
def test_sampled_windows_equal_the_definition(shape, seed, blocks):
    rng = np.random.default_rng(seed)
    memory = programs(shape)[0]
    ends = rng.choice(3, size=(blocks * memory.num_steps, ENVS), p=[0.7, 0.15, 0.15])
    memory, mem, fetch, _ = filled(shape, blocks, ends)
    leaves = (
        np.asarray(mem.tree[0]).reshape(-1)[: memory.length * ENVS].reshape(memory.length, ENVS))
    slot = (np.arange(memory.length) + memory.n_step) % memory.length  # the leaf of row i
    time = blocks * memory.num_steps
    alive = set()
    for row, env in zip(*np.nonzero(leaves[slot]), strict=True):
        # the latest time written to that slot
        number = row + (time - 1 - row) // memory.length * memory.length
        alive.add((int(number), int(env)))
    assert alive == starts(memory, blocks, ends)
    if not alive:
        return
    plan = planned(shape)(jax.random.key(seed % 1000), np.int32(blocks))
    window = jax.device_get(fetch(mem, plan)[0])
    for b in range(BATCH):
        number = int(window.action[b])
        row, env = divmod(number, ENVS)
        assert (row, env) in alive and window.weight[b] == 1.0  # all priorities are equal
        steps, boot = 0, 1.0
        for i in range(memory.n_step):
            kind = ends[row + i, env]
            if kind == 2:
                break
            steps += 1
            assert window.reward[i, b] == number + i * ENVS and window.use[i, b]
            if kind == 1:
                boot = 0.0
                break
        assert window.steps[b] == steps and window.boot[b] == boot
        if boot:
            assert window.boot_obs[b, -1] == number + steps * ENVS
        stack, first = [], row
        for _ in range(memory.stack):
            stack.append(first * ENVS + env)
            first = first if first == 0 or ends[first - 1, env] else first - 1
        np.testing.assert_array_equal(window.obs[b], stack[::-1])


@pytest.mark.parametrize("shape", family(
    map(pytest.param, [(2, 2, 3), (2, 3, 1), (1, 1, 1)]), 2))
@settings(max_examples=5, deadline=None)
@given(st.integers(0, 2**31))
def test_leaves_equal_a_dictionary(shape, seed):
    """Errors fed back between the blocks, for more blocks than the ring holds; overwritten windows
    are forgotten."""
    rng, blocks = np.random.default_rng(seed), 14
    memory, add, _, feedback = programs(shape)
    ends = rng.choice(3, size=(blocks * memory.num_steps, ENVS), p=[0.7, 0.15, 0.15])
    mem, known, top = filled(shape, 0, ends)[1], {}, 1.0
    place = lambda row, env: (row + memory.n_step) % memory.length * ENVS + env
    for t in range(blocks):
        at = slice(t * memory.num_steps, (t + 1) * memory.num_steps)
        mem = add(mem, rows(memory, t, ends[at] == 1, ends[at] == 2), np.int32(t))
        known = {start: known.get(start, top) for start in starts(memory, t + 1, ends)}
        expected = np.zeros(memory.length * ENVS)
        if known:
            windows = sorted(known, key=lambda start: place(*start))
            heard = sorted(rng.choice(len(windows), BATCH))  # some twice, as a batch has them
            error = rng.exponential(size=len(windows)).astype(np.float32)
            mem = feedback(mem, np.array([place(*windows[i]) for i in heard], np.int32),
                           error[heard])
            known |= {windows[i]: error[i] + 1e-6 for i in heard}
            top = max(top, error[heard].max() + 1e-6)
        for start, priority in known.items():
            expected[place(*start)] = priority
        np.testing.assert_allclose(np.asarray(mem.tree[0]).ravel()[: len(expected)], expected,
                                   rtol=1e-5)
        np.testing.assert_allclose(sum_tree.total(mem.tree), expected.sum(), rtol=1e-5)


def test_frequencies_and_weights_follow_the_priorities(rng):
    """alpha, epsilon and beta by hand: p = (|e| + eps)^alpha; a window's weight is (p_min /
    p)^beta."""
    memory, mem, _, _ = filled((1, 1, 1), 6, np.zeros((6, ENVS), int))
    memory = PrioritizedMemory(memory.capacity, 1, ENVS, BATCH, alpha=0.7, beta=0.4, epsilon=0.01)
    leaf = np.flatnonzero(np.asarray(mem.tree[0]).reshape(-1)).astype(np.int32)
    error = rng.exponential(size=len(leaf)).astype(np.float32)
    error[3] = 0.0
    mem = jax.jit(memory.feedback)(mem, leaf, error)
    get, clock = jax.jit(sum_tree.get), Clock(0, 0, jnp.float32(0.25))
    p = (error + 0.01) ** 0.7
    np.testing.assert_allclose(get(mem.tree, leaf), p, rtol=1e-5)
    np.testing.assert_allclose(mem.top, max(1.0, p.max()), rtol=1e-5)
    plan = jax.jit(lambda key: memory.plan(key, 4000, jnp.int32(6), clock))(jax.random.key(0))
    np.testing.assert_allclose(plan[1], 0.4 + 0.6 * 0.25, rtol=1e-6)
    windows, drawn = jax.jit(jax.vmap(memory.fetch, (None, 0)))(mem, plan)
    share = np.bincount(np.asarray(drawn).reshape(-1), minlength=leaf.max() + 1)[leaf] / drawn.size
    np.testing.assert_allclose(share, p / p.sum(), atol=4e-3)
    assert share[3] > 0  # an error of zero stays in the game
    priority = np.asarray(get(mem.tree, drawn))
    np.testing.assert_allclose(
        windows.weight, (priority.min(axis=1, keepdims=True) / priority) ** 0.55, rtol=1e-4
    )


def test_zero_errors_are_drawn_in_proportion_in_a_large_memory():
    """A priority of 2.4e-9 of the sum, where uniform numbers stand 1.2e-7 apart: its share still
    comes out."""
    leaves, near, fine = 100_000, 5, 128
    values = np.ones(leaves, np.float32)
    zeros = np.arange(50, leaves, 500)
    values[zeros] = 1e-6**0.6
    tree = jax.jit(sum_tree.build)(values)
    ends = np.cumsum(values, dtype=np.float64)
    place = np.round((ends[zeros] - values[zeros] / 2) / ends[-1] * 2**23)
    coarse = ((place[:, None] + np.arange(-near, near + 1)) * 2.0**-23).astype(np.float32)
    u = np.stack(
        np.broadcast_arrays(coarse[..., None], (np.arange(fine, dtype=np.float32) + 0.5) / fine), -1
    )
    drawn = (
        jax.jit(
            jax.vmap(lambda u: sample(tree, u[:, None], 1.0)[0][0])
        )(u.reshape(-1, 2)).reshape(u.shape[:-1])
    )
    chance = (drawn == zeros[:, None, None]).mean(2).sum(1) * 2.0**-23
    assert (chance > 0).all()
    np.testing.assert_allclose(chance.mean(), 1e-6**0.6 / ends[-1], rtol=0.1)


@pytest.mark.parametrize("shape", family(
    map(pytest.param, [(4, 2, 2), (1, 1, 1), (2, 3, 1)]), 1))
def test_first_priorities_come_from_the_actor(shape, rng):
    """Each new window gets (|R + gamma^m best(boot) - taken| + eps)^alpha from its own rows; the
    others keep theirs."""
    plain, blocks = make(*shape), 9
    gamma, n = 0.9, plain.n_step

    def error(window):
        ret = jnp.sum(gamma ** jnp.arange(n)[:, None] * window.reward * window.use, axis=0)
        boot = window.boot * gamma**window.steps * window.boot_extras["best"]
        return jnp.abs(ret + boot - window.extras["taken"])

    memory = dataclasses.replace(plain, alpha=0.6, epsilon=0.01, first=error)
    ends = rng.choice(3, size=(blocks * memory.num_steps, ENVS), p=[0.7, 0.15, 0.15])
    known = {name: rng.normal(size=ends.shape).astype(np.float32) for name in ("taken", "best")}

    def block(t):
        at = slice(t * memory.num_steps, (t + 1) * memory.num_steps)
        found = rows(memory, t, ends[at] == 1, ends[at] == 2)
        return found._replace(reward=found.reward / np.float32(100),
                              extras=jax.tree.map(lambda x: x[at], known))

    mem, add = begun(memory, lambda: block(0)), jax.jit(memory.add)
    for t in range(blocks):
        mem = add(mem, block(t), jnp.int32(t))
        if t == 4:  # a learner's word counts from then on
            heard = np.flatnonzero(np.asarray(mem.tree[0]).reshape(-1))[-2:].astype(np.int32)
            mem = jax.jit(memory.feedback)(mem, heard, jnp.full(2, 7.0))
    leaves = (
        np.asarray(mem.tree[0]).reshape(-1)[: memory.length * ENVS].reshape(memory.length, ENVS))
    expected, most = np.zeros_like(leaves), 1.0
    alive = starts(memory, blocks, ends)
    for row in range(len(ends) - n):
        for env in range(ENVS):
            if ends[row, env] == 2 or row < memory.stack - 1:
                continue
            ret, steps, boot = 0.0, 0, 1.0
            for i in range(n):
                if ends[row + i, env] == 2:
                    break
                ret, steps = ret + gamma**i * ((row + i) * ENVS + env) / 100, steps + 1
                if ends[row + i, env] == 1:
                    boot = 0.0
                    break
            ret += boot * gamma**steps * known["best"][row + steps, env]
            p = (abs(ret - known["taken"][row, env]) + 0.01) ** 0.6
            most = max(most, p)
            if (row, env) in alive:
                expected[(row + n) % memory.length, env] = p
    for leaf in heard:
        if expected.reshape(-1)[leaf] and (leaf // ENVS - n) % memory.length in range(
            5 * memory.num_steps - n
        ):
            expected.reshape(-1)[leaf] = 7.01**0.6
    np.testing.assert_allclose(leaves, expected, rtol=2e-4)
    np.testing.assert_allclose(mem.top, max(most, 7.01**0.6), rtol=2e-4)
    assert len(alive) > 5


def test_rows_without_an_actor_get_the_largest_priority():
    """Rows of a dataset, in a memory whose own actors give a priority."""
    memory = dataclasses.replace(make(1, 1, 1), first=lambda window: window.extras["taken"])
    no, add = np.zeros((1, ENVS), bool), jax.jit(memory.add)
    mem = begun(memory, lambda: rows(memory, 0, no, no))
    for t in range(3):
        mem = add(mem, rows(memory, t, no, no), np.int32(t))
    assert set(np.asarray(mem.tree[0]).reshape(-1).tolist()) == {0.0, 1.0}


def test_a_non_finite_first_priority_is_detected():
    memory = dataclasses.replace(make(1, 1, 1), first=lambda window: window.extras["taken"])
    no = jnp.zeros((1, ENVS), bool)
    block = lambda t, x: rows(memory, t, no, no)._replace(extras={"taken": jnp.full((1, ENVS), x)})
    mem = memory.init(jax.eval_shape(lambda: block(0, 1.0)))
    add = jax.jit(memory.add)
    for t, x in enumerate([1.0, jnp.nan, 1.0]):
        mem = add(mem, block(t, x), jnp.int32(t))
    assert not np.isfinite(memory.watch(mem))


def test_a_batch_is_stratified():
    memory, mem, fetch, _ = filled((1, 1, 1), 6, np.zeros((6, ENVS), int))
    alive = int(np.count_nonzero(np.asarray(mem.tree[0])))
    plan = memory.plan(jax.random.key(1), 1, jnp.int32(6), Clock(0, 0, jnp.float32(0)))
    leaf = np.asarray(fetch(mem, tree.take(plan, 0))[1])
    assert (np.diff(leaf) >= 0).all() and len(set(leaf.tolist())) == alive < BATCH


@pytest.mark.matrix("test_rows_without_an_actor_get_the_largest_priority")
def test_new_rows_get_the_largest_priority_seen():
    shape = (2, 1, 1)
    memory, mem, _, feedback = filled(shape, 3, np.zeros((6, ENVS), int))
    leaf = np.flatnonzero(np.asarray(mem.tree[0]).reshape(-1)).astype(np.int32)[:2]
    mem = feedback(mem, leaf, jnp.array([7.5, 0.1]))
    none = jnp.zeros((2, ENVS), bool)
    after = programs(shape)[1](mem, rows(memory, 3, none, none), jnp.int32(3))
    born = np.asarray(after.tree[0]).reshape(-1)[3 * 2 * ENVS : 4 * 2 * ENVS]
    np.testing.assert_allclose(born, 7.5, rtol=1e-5)


@pytest.mark.parametrize("alpha", [0.0, 0.6])
def test_a_priority_of_exactly_zero_is_never_drawn(alpha):
    """An error of zero has priority zero without an epsilon; the others are still drawn."""
    memory, mem, _, _ = filled((1, 1, 1), 6, np.zeros((6, ENVS), int))
    memory = dataclasses.replace(memory, alpha=alpha, epsilon=0.0)
    leaf = np.flatnonzero(np.asarray(mem.tree[0]).reshape(-1)).astype(np.int32)
    clock = Clock(0, 0, jnp.float32(0))

    @jax.jit
    def draw(mem, error):
        mem = memory.feedback(mem, leaf, error)
        plan = memory.plan(jax.random.key(0), 200, jnp.int32(6), clock)
        return jax.vmap(memory.fetch, (None, 0))(mem, plan)[1]

    drawn = draw(mem, np.float32(np.arange(len(leaf)) % 2))
    assert set(np.unique(drawn).tolist()) == set(leaf[1::2].tolist())


@functools.cache
def watched(alpha):
    """A program: what `watch` says of a memory that hears of errors of two leaves."""
    memory = dataclasses.replace(programs((1, 1, 1))[0], alpha=alpha)
    return jax.jit(lambda mem, error: memory.watch(memory.feedback(mem, np.int32([3, 4]), error)))


@pytest.mark.parametrize("alpha", [0.0, 1.0])
@pytest.mark.parametrize("bad", [-0.5, np.nan, np.inf])
def test_a_bad_priority_is_watched(bad, alpha):
    _, mem, _, _ = filled((1, 1, 1), 4, np.zeros((4, ENVS), int))
    assert np.isfinite(watched(alpha)(mem, np.float32([0.5, 2.0])))
    assert not np.isfinite(watched(alpha)(mem, np.float32([0.5, bad])))


@pytest.mark.parametrize("groups", [1, 2])
def test_an_overflowing_sum_is_watched(groups):
    """Each priority is finite; with an infinite sum nothing is drawn in proportion any more."""
    memory = grouped(PrioritizedMemory(32, 1, 2, 4, alpha=1.0), groups)
    flags = jnp.zeros((1, 2), bool)
    block = Row(jnp.ones((1, 2, 1)), jnp.zeros((1, 2), jnp.int32), jnp.ones((1, 2)), flags, flags)
    mem, add = memory.init(block), jax.jit(memory.add)
    for w in range(4):
        mem = add(mem, block, w)
    handle = jnp.array([2, 3, 4, 5]) if groups == 1 else jnp.array([[1, 2], [1, 2]])
    watched = jax.jit(lambda mem, error: memory.watch(memory.feedback(mem, handle, error)))
    for large, finite in ((1e37, True), (3e38, False)):
        assert np.isfinite(watched(mem, jnp.array([large, large, 1.0, 1.0]))).all() == finite


def test_a_leaf_drawn_twice_takes_the_first_error():
    memory, mem, _, feedback = filled((1, 1, 1), 4, np.zeros((4, ENVS), int))
    leaves = jnp.array([3, 3, 4, 5, 5, 5])
    mem = feedback(mem, leaves, jnp.array([2.0, 9.0, 3.0, 4.0, 1.0, 7.0]))
    expected = (np.array([2.0, 3.0, 4.0]) + memory.epsilon) ** memory.alpha
    np.testing.assert_allclose(sum_tree.get(mem.tree, jnp.array([3, 4, 5])), expected, rtol=1e-6)


@pytest.mark.parametrize(("name", "value"),
                         [("alpha", 1.5), ("alpha", -0.1), ("beta", 2.0), ("epsilon", np.nan)])
@pytest.mark.parametrize("cls", [PrioritizedMemory, PrioritizedSequenceMemory])
def test_exponents_out_of_range_are_refused(cls, name, value):
    sizes = dict(capacity=64, num_steps=2, num_envs=4, batch_size=8)
    if cls is PrioritizedSequenceMemory:
        sizes |= dict(seq_len=4, burn_in=0, carry_every=2)
    with pytest.raises(ConfigError, match=f"{name} must be "):
        cls(**sizes, **{name: value})


def test_an_empty_memory_has_zero_weights():
    memory, mem, fetch, _ = filled((1, 3, 1), 2, np.zeros((2, ENVS), int))
    plan = memory.plan(jax.random.key(1), 1, jnp.int32(2), Clock(0, 0, jnp.float32(0)))
    assert not np.asarray(fetch(mem, tree.take(plan, 0))[0].weight).any()


@pytest.mark.parametrize("cls", [UniformMemory, PrioritizedMemory])
def test_sizes_without_a_window_are_refused(cls):
    with pytest.raises(ConfigError, match="capacity must be at least 32, got 24"):
        cls(capacity=24, num_steps=2, num_envs=4, batch_size=8, n_step=5)
    cls(capacity=32, num_steps=2, num_envs=4, batch_size=8, n_step=5)


def test_a_leaf_drawn_twice_keeps_its_first_error(rng, both_forms):
    handle = jnp.asarray(np.sort(rng.integers(0, 20, 64)), jnp.int32)
    values = jnp.asarray(rng.uniform(size=64), jnp.float32)
    expected = values[np.searchsorted(np.asarray(handle), np.asarray(handle))]
    for found in both_forms(first_of_equals, handle, values):
        np.testing.assert_array_equal(found, expected)
