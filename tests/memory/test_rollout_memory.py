"""The on-policy memory: every row once an epoch, in an order that is uniform."""

from __future__ import annotations

import itertools

import jax
import jax.numpy as jnp
import numpy as np
import pytest
from scipy import stats

from jaxrl_fast.memory import RolloutMemory, rollout
from jaxrl_fast.memory.rollout import permutations, swap_or_not

T, B, MINIBATCHES, EPOCHS = 6, 4, 3, 5


@pytest.fixture
def rows():
    """Each row knows its time and its environment."""
    time, env = np.meshgrid(np.arange(T), np.arange(B), indexing="ij")
    return {"id": jnp.asarray(time * B + env),
            "obs": jnp.asarray(np.stack([time, env], -1), jnp.float32)}


def batches(memory, rows, key, clock, n):
    mem = memory.add(memory.init(rows), rows, jnp.int32(0))
    return jax.lax.map(lambda x: memory.fetch(mem, x)[0], memory.plan(key, n, jnp.int32(1), clock))


def test_every_row_exactly_once_an_epoch_in_a_fresh_order(rows, key, clock):
    memory = RolloutMemory(T, B, MINIBATCHES)
    out = jax.jit(lambda key: batches(memory, rows, key, clock(), EPOCHS * MINIBATCHES))(key)
    assert out["obs"].shape == (EPOCHS * MINIBATCHES, T * B // MINIBATCHES, 2)
    # rows stay whole
    np.testing.assert_array_equal(out["obs"][..., 0] * B + out["obs"][..., 1], out["id"])
    epochs = np.asarray(out["id"]).reshape(EPOCHS, T * B)
    np.testing.assert_array_equal(np.sort(epochs, axis=1), np.tile(np.arange(T * B), (EPOCHS, 1)))
    assert len({tuple(e) for e in epochs}) == EPOCHS


def test_by_env_keeps_time_and_hands_out_every_environment_once_an_epoch(rows, key, clock):
    memory = RolloutMemory(T, B, 2, by_env=True)
    out = jax.jit(lambda key: batches(memory, rows, key, clock(), EPOCHS * 2))(key)
    assert out["obs"].shape == (EPOCHS * 2, T, B // 2, 2)
    np.testing.assert_array_equal(out["obs"][..., 0],
                                  np.broadcast_to(np.arange(T)[:, None], (EPOCHS * 2, T, B // 2)))
    env = np.asarray(out["obs"][..., 1])
    assert (env == env[:, :1]).all()  # a column is one environment throughout
    np.testing.assert_array_equal(np.sort(env[:, 0].reshape(EPOCHS, B), axis=1),
                                  np.tile(np.arange(B), (EPOCHS, 1)))


@pytest.mark.parametrize("by_env", [False, True])
def test_one_minibatch_is_the_rollout_as_it_lies(by_env, rows, key, clock):
    out = batches(RolloutMemory(T, B, 1, by_env), rows, key, clock(), 2)
    expected = np.arange(T * B).reshape((T, B) if by_env else -1)
    np.testing.assert_array_equal(out["id"], np.stack([expected] * 2))


def test_a_plan_of_a_fractional_epoch(key, clock):
    plan = RolloutMemory(T, B, MINIBATCHES).plan(key, 4, jnp.int32(1), clock())
    assert plan.shape == (4, 8)
    np.testing.assert_array_equal(np.sort(plan[:3].reshape(-1)), np.arange(T * B))
    assert len(np.unique(plan[3])) == 8


def test_no_rollout_is_kept(rows):
    memory = RolloutMemory(T, B, MINIBATCHES)
    assert memory.init(rows) == () and memory.retain(memory.add((), rows, jnp.int32(3))) == ()


@pytest.mark.parametrize("n", [1, 2, 3, 64, 1000, 2**14 + 1])
def test_permutations_are_permutations(n, key):
    order = np.asarray(permutations(key, 3, n))
    assert order.shape == (3, n) and order.dtype == np.int32
    np.testing.assert_array_equal(np.sort(order, axis=1), np.tile(np.arange(n), (3, 1)))


def test_a_permutation_too_large_for_packing_falls_back_to_jaxs(monkeypatch, key):
    called = []
    monkeypatch.setattr(jax.random, "permutation", lambda k, n: called.append(n) or jnp.arange(n))
    shape = jax.eval_shape(lambda: permutations(key, 2, 2**20 + 1))
    assert shape.shape == (2, 2**20 + 1) and called == [2**20 + 1]


def test_permutations_are_uniform(key):
    order = np.asarray(permutations(key, 24_000, 4))
    index = {p: i for i, p in enumerate(itertools.permutations(range(4)))}
    counts = np.bincount([index[tuple(p)] for p in order.tolist()], minlength=24)
    assert stats.chisquare(counts).pvalue > 1e-3


def test_every_item_is_everywhere_equally_often(key):
    order = np.asarray(permutations(key, 4000, 16))
    counts = np.stack([np.bincount(order[:, i], minlength=16) for i in range(16)])
    assert stats.chisquare(counts.reshape(-1)).pvalue > 1e-3


def test_a_lane_of_a_vmapped_plan_equals_its_single_plan(clock):
    memory = RolloutMemory(T, B, MINIBATCHES)
    keys = jax.random.split(jax.random.key(1), 3)
    plans = jax.jit(jax.vmap(lambda k: memory.plan(k, 6, jnp.int32(1), clock())))(keys)
    for i in range(3):
        np.testing.assert_array_equal(plans[i], memory.plan(keys[i], 6, jnp.int32(1), clock()))


@pytest.mark.parametrize("n", [1, 2, 3, 64, 1000])
def test_swap_or_not_makes_permutations(n, key):
    order = np.asarray(swap_or_not(key, 3, n))
    assert order.dtype == np.int32
    np.testing.assert_array_equal(np.sort(order, axis=1), np.broadcast_to(np.arange(n), (3, n)))


def test_swap_or_not_is_uniform(key):
    """Every order of four items as often as any other, and each of fifty items at each place."""
    orders = np.asarray(jax.jit(lambda key: swap_or_not(key, 24_000, 4))(key))
    counts = np.unique(orders, axis=0, return_counts=True)[1]
    assert len(counts) == 24 and stats.chisquare(counts).pvalue > 1e-3
    orders = np.asarray(jax.jit(lambda key: swap_or_not(key, 20_000, 50))(key))
    places = np.stack([np.bincount(orders[:, i], minlength=50) for i in range(50)])
    assert stats.chi2.sf(((places - 400) ** 2 / 400).sum(), 49**2) > 1e-3


@pytest.mark.usefixtures("every_platform")
def test_long_permutations_are_sorted_on_a_cpu_only(key):
    lowered = lambda n, platform: jax.jit(lambda key: permutations(key, 2, n)).trace(key).lower(
        lowering_platforms=(platform,))
    sorts = lambda n, platform: "stablehlo.sort" in lowered(n, platform).as_text()
    assert sorts(rollout.SORTED + 1, "cpu") and not sorts(rollout.SORTED + 1, "cuda")
    assert sorts(rollout.SORTED, "cpu") and sorts(rollout.SORTED, "cuda")


@pytest.mark.parametrize("shuffle", rollout.SHUFFLES)
def test_each_shuffle_hands_out_every_row_once(shuffle, key, clock):
    plan = RolloutMemory(T, B, MINIBATCHES, shuffle=shuffle).plan(key, MINIBATCHES, 1, clock())
    assert sorted(np.ravel(plan)) == list(range(T * B))
    how = rollout.swap_or_not if shuffle == "swap" else rollout.sorted_permutations
    assert np.array_equal(np.ravel(plan), np.ravel(how(key, 1, T * B)))
