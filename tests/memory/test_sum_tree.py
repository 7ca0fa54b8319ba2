"""The sum tree against a plain array: writes, sums, and which leaf a mass falls on."""

from __future__ import annotations

import functools
import itertools

import jax
import jax.numpy as jnp
import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from helpers.matrix import family
from jaxrl_fast.memory import sum_tree

LEAVES = [1, 7, sum_tree.FANOUT, 96, 1000]


def flat(tree) -> np.ndarray:
    return np.asarray(tree[0]).reshape(-1)


def sound(tree):
    """Every parent is the sum of its children, to the rounding of one sum; what no child stands
    behind is zero."""
    for below, level in itertools.pairwise(tree):
        sums = np.asarray(jnp.sum(below, axis=1))
        np.testing.assert_allclose(np.asarray(level).reshape(-1)[: len(sums)], sums, rtol=1e-6)
        assert not np.asarray(level).reshape(-1)[len(sums) :].any()
    assert tree[-1].shape[0] == 1


@functools.cache
def programs(leaves: int, batch: int):
    return jax.jit(sum_tree.set_at), jax.jit(sum_tree.find)


@pytest.mark.parametrize("leaves", LEAVES)
def test_scattered_writes_with_duplicates(leaves, rng):
    set_at, _ = programs(leaves, 16)
    tree, expected = sum_tree.init(leaves), np.zeros(leaves, np.float32)
    for _ in range(5):
        index = rng.integers(0, leaves, 16).astype(np.int32)
        drawn = rng.uniform(0, 2, leaves).astype(np.float32)
        tree = set_at(tree, index, drawn[index])
        expected[index] = drawn[index]
        sound(tree)
    np.testing.assert_array_equal(flat(tree)[:leaves], expected)
    np.testing.assert_array_equal(sum_tree.get(tree, index), expected[index])


@settings(max_examples=40, deadline=None)
@given(st.integers(0, 2**31), st.sampled_from([7, 96, 1000]), st.floats(0.0, 0.95))
def test_a_draw_finds_the_leaf_at_which_the_running_sum_passes_it(seed, leaves, zeros):
    rng = np.random.default_rng(seed)
    set_at, find = programs(leaves, 64)
    values = (
        np.where(rng.uniform(size=leaves) < zeros, 0.0,
                 rng.integers(1, 9, leaves)).astype(np.float32)
    )
    values[rng.integers(leaves)] = 2.0
    index = np.arange(leaves, dtype=np.int32)
    tree = set_at(sum_tree.init(leaves), index, values)
    ends = np.cumsum(values)  # integers: exact in float32
    mass = rng.uniform(0, ends[-1], 64).astype(np.float32)
    # the last is out of range: rounding can bring it
    mass[:3] = 0.0, np.nextafter(ends[-1], np.float32(0)), ends[-1]
    leaf, weight = find(tree, mass)
    expected = np.searchsorted(ends, mass, side="right")
    expected[2] = np.flatnonzero(values)[-1]
    np.testing.assert_array_equal(leaf, expected)
    np.testing.assert_array_equal(weight, values[expected])


def test_leaves_are_found_in_proportion(rng):
    values = rng.exponential(size=300).astype(np.float32) ** 3
    values[::7] = 0
    tree = sum_tree.set_at(sum_tree.init(300), jnp.arange(300), jnp.asarray(values))
    mass = jnp.asarray(rng.uniform(size=200_000), jnp.float32) * sum_tree.total(tree)
    count = np.bincount(np.asarray(jax.jit(sum_tree.find)(tree, mass)[0]), minlength=300)
    assert not count[::7].any()
    p = values / values.sum()
    np.testing.assert_array_less(np.abs(count / 200_000 - p), 5 * np.sqrt(p / 200_000) + 1e-5)


def test_the_rest_of_a_mass_decides_where_float32_ends(both_forms):
    """Leaves of 2^-8 among 2^18 of 1 (running sums of nodes are exact); the places in the sum that
    float32 has are 2^-6 apart there."""
    values = np.ones(2**18, np.float32)
    small = np.arange(2**17 + 3, 2**18, 1024)
    values[small] = 2.0**-8
    tree = sum_tree.build(jnp.asarray(values))
    ends = np.cumsum(values, dtype=np.float64)
    wanted = ends[small] - 2.0**-9  # the middle of each
    mass = wanted.astype(np.float32)
    mass = np.where(mass > wanted, np.nextafter(mass, np.float32(0)), mass)
    rest = (wanted - mass).astype(np.float32)
    find = lambda tree, mass, rest: (sum_tree.find(tree, mass, rest), sum_tree.find(tree, mass)[0])
    for (leaf, weight), without in both_forms(find, tree, mass, rest):
        np.testing.assert_array_equal(leaf, small)
        np.testing.assert_array_equal(weight, 2.0**-8)
        assert not np.isin(without, small).all()  # without it most of them are passed by


@pytest.mark.parametrize(("batch", "writes"),
                         [(1000, 10_000), pytest.param(100, 100_000, marks=pytest.mark.slow)])
def test_no_drift_over_many_writes(batch, writes):
    """Ten million leaves of wildly different sizes: the root is still the sum of the leaves, as a
    fresh tree has it.

    The first level above the leaves is summed whole for a batch of 1000, and where it was written
    for one of 100.
    """
    leaves = 4096
    assert (leaves // sum_tree.FANOUT <= sum_tree.WHOLE * batch) == (batch == 1000)

    def body(i, tree):
        key = jax.random.fold_in(jax.random.key(0), i)
        index = jax.random.randint(key, (batch,), 0, leaves)
        size = 20 * jnp.sin(1e3 * index + i)  # equal indices, equal values
        return sum_tree.set_at(tree, index, jnp.exp(size))

    tree = jax.jit(lambda tree: jax.lax.fori_loop(0, writes, body, tree))(sum_tree.init(leaves))
    sound(tree)
    np.testing.assert_allclose(sum_tree.build(jnp.asarray(flat(tree)))[-1], tree[-1], rtol=1e-6)


@pytest.mark.parametrize(("leaves", "batch"), family([(7, 5), (1000, 300), (5000, 16)], [1000]))
def test_a_gpu_has_the_same_tree_and_finds_the_same_leaves(leaves, batch, rng, both_forms):
    """Integers: every sum is exact, in any order."""
    tree = sum_tree.build(jnp.asarray(rng.integers(0, 9, leaves), jnp.float32))
    index = jnp.asarray(rng.integers(0, leaves, batch), jnp.int32)
    mass = jnp.asarray(rng.uniform(0, float(sum_tree.total(tree)) / 2, 64), jnp.float32)

    def write_and_find(tree, index, mass):
        tree = sum_tree.set_at(tree, index, jnp.float32(1) + index % 5)
        return tree, sum_tree.find(tree, mass), sum_tree.find(tree, mass, mass * 2.0**-22)

    ours, gpus = both_forms(write_and_find, tree, index, mass)
    jax.tree.map(np.testing.assert_array_equal, ours, gpus)
    sound(gpus[0])


# a tree whose leaves a GPU does not sum whole
LARGE = sum_tree.WHOLE_ON_A_GPU * sum_tree.FANOUT + 1000


@pytest.mark.parametrize("leaves", [1000, LARGE])
def test_blocks_are_replaced(leaves, rng, both_forms):
    """Leaves that no row of siblings begins with; a GPU writes a small tree whole."""
    values = rng.integers(1, 9, leaves).astype(np.float32)
    expected, last = values.copy(), leaves - 10
    expected[30:43], expected[last:] = np.arange(13) + 1, 0
    expected[43:56] = 0
    replace = lambda tree: sum_tree.replace_blocks(
        sum_tree.replace_blocks(tree, 30, jnp.arange(13) + jnp.float32(1), 43),
        last, jnp.zeros(10), last)
    for tree in both_forms(replace, sum_tree.build(jnp.asarray(values))):
        sound(tree)
        np.testing.assert_array_equal(flat(tree)[:leaves], expected)


def test_a_gpu_writes_along_the_path_in_a_large_tree(rng, both_forms):
    tree, index = sum_tree.init(LARGE), jnp.asarray(rng.integers(0, LARGE, 16), jnp.int32)
    ours, gpus = both_forms(
        lambda tree, index: sum_tree.set_at(tree, index, jnp.float32(1) + index % 5), tree, index)
    jax.tree.map(np.testing.assert_array_equal, ours, gpus)


@pytest.mark.usefixtures("every_platform")
def test_a_gpu_draws_without_products_and_scatters_only_leaves():
    """Each level's product, gather and scatter is a launch or more."""
    tree, index = sum_tree.init(5000), jnp.zeros(16, jnp.int32)
    draw = lambda tree, index: (sum_tree.set_at(tree, index, index + 1.0),
                                sum_tree.find(tree, index + 0.5))
    text = lambda on: jax.jit(draw).trace(tree, index).lower(lowering_platforms=(on,)).as_text()
    scatters = lambda on: text(on).count('"stablehlo.scatter"(')
    assert "dot_general" not in text("cuda") and scatters("cuda") == 1
    assert "dot_general" in text("cpu") and scatters("cpu") > 1
