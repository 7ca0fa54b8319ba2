"""The generator: the cipher is JAX's and Random123's, and what is drawn from it is what it should
be."""

from __future__ import annotations

import jax
import jax.numpy as jnp
import numpy as np
import pytest
from scipy import stats

from jaxrl_fast import random
from jaxrl_fast.ops import lowering

# Random123's kat_vectors, "threefry2x32 20": counter, key, result
KNOWN = [
    ((0x00000000, 0x00000000), (0x00000000, 0x00000000), (0x6B200159, 0x99BA4EFE)),
    ((0xFFFFFFFF, 0xFFFFFFFF), (0xFFFFFFFF, 0xFFFFFFFF), (0x1CB996FC, 0xBB002BE7)),
    ((0x243F6A88, 0x85A308D3), (0x13198A2E, 0x03707344), (0xC4923A9C, 0x483DF7A0)),
]


def words(*numbers):
    return [jnp.uint32(n) for n in numbers]


@pytest.mark.parametrize(("counter", "key", "expected"), KNOWN)
def test_known_answers_of_the_cipher(counter, key, expected):
    out = random.threefry2x32(*words(*key), *words(*counter))
    assert tuple(int(x) for x in out) == expected


def test_the_cipher_equals_jax_randoms():
    n = 1001
    for seed in (0, 7, 2**31):
        key = jax.random.key(seed)
        counter = jnp.arange(n, dtype=jnp.uint32)
        x0, x1 = random.threefry2x32(*jax.random.key_data(key), jnp.zeros_like(counter), counter)
        np.testing.assert_array_equal(x0 ^ x1, jax.random.bits(key, (n,), jnp.uint32))


def test_bits_are_the_words_of_the_cipher_in_any_shape(key):
    counter = jnp.arange(500, dtype=jnp.uint32)
    pair = random.threefry2x32(*jax.random.key_data(key), jnp.zeros_like(counter), counter)
    expected = np.concatenate(pair)
    np.testing.assert_array_equal(random.bits(key, (1000,)), expected)
    np.testing.assert_array_equal(random.bits(key, (10, 20, 5)).reshape(-1), expected)
    assert random.bits(key, ()).shape == () and random.bits(key, (0, 3)).shape == (0, 3)
    assert len(np.unique(random.bits(key, (999,)))) == 999


def draws(key):
    """One of everything, by name."""
    a, b = random.split(key)
    return {
        "bits": random.bits(key, (7,)),
        "uniform": random.uniform(a, (3, 2), -1.0, 2.0),
        "normal": random.normal(b, (5,)),
        "gumbel": random.gumbel(random.fold_in(key, 3), (4,)),
        "randint": random.randint(random.fold_in(key, jnp.uint32(4)), (6,), -3, 11),
        "split": jax.random.key_data(random.split(key, (2, 3))),
    }


@pytest.mark.parametrize(("platform", "of_bits", "of_keys"), [("cpu", 2, 1), ("cuda", 1, 1)])
def test_a_gpu_draws_the_same_and_copies_no_key_to_use_it(platform, of_bits, of_keys, key):
    barriers = lambda f: str(jax.make_jaxpr(f)(key)).count("optimization_barrier")
    expected = draws(key)
    with lowering.known(platform):
        assert barriers(lambda key: random.bits(key, (4,))) == of_bits
        for numbers in (random.uniform, random.gumbel):  # no kernel behind the bits
            assert barriers(lambda key, f=numbers: f(key, (4,))) == of_bits
        assert barriers(random.split) == of_keys
        found = jax.jit(draws)(key)
    for name, x in expected.items():
        np.testing.assert_array_equal(found[name], x)


def test_a_lane_of_a_vmap_equals_its_single_run():
    keys = random.split(jax.random.key(5), 4)
    batched = jax.jit(jax.vmap(draws))(keys)
    single = jax.jit(draws)
    for i in range(4):
        one = single(keys[i])
        for name, x in one.items():
            # a logarithm may round differently in another loop
            exact = name not in ("normal", "gumbel")
            (np.testing.assert_array_equal if exact
             else np.testing.assert_allclose)(x, batched[name][i])


def test_streams_of_one_key_are_apart(key):
    """split, fold_in and bits of one key share no word, and no two children are the same."""
    children = np.asarray(jax.random.key_data(random.split(key, 300)))
    folded = np.asarray(
        jax.random.key_data(jax.vmap(lambda i: random.fold_in(key, i))(jnp.arange(300))))
    direct = np.asarray(random.bits(key, (600,))).reshape(300, 2)
    rows = np.concatenate([children, folded, direct])
    assert len(np.unique(rows, axis=0)) == 900
    assert len(np.unique(np.concatenate([children[:, 0], folded[:, 0], direct[:, 0]]))) == 900


def test_fold_in_takes_ints_and_tracers_alike(key):
    expected = jax.random.key_data(random.fold_in(key, 12))
    np.testing.assert_array_equal(jax.random.key_data(random.fold_in(key, jnp.int32(12))), expected)
    np.testing.assert_array_equal(jax.random.key_data(jax.jit(random.fold_in)(key, 12)), expected)
    random.fold_in(key, 2**32 - 1)


def test_split_shapes(key):
    assert random.split(key).shape == (2,)
    grid = random.split(key, (2, 3))
    np.testing.assert_array_equal(
        jax.random.key_data(grid).reshape(6, 2), jax.random.key_data(random.split(key, 6))
    )


def test_uniform_is_uniform(key):
    x = np.asarray(random.uniform(key, (200_000,)))
    assert x.min() >= 0.0 and x.max() < 1.0
    assert stats.kstest(x, "uniform").pvalue > 1e-3
    # pairs: no serial dependence
    counts = np.bincount((x.reshape(-1, 2) * 16).astype(int) @ [16, 1], minlength=256)
    assert stats.chisquare(counts).pvalue > 1e-3
    # the cipher's two words
    halves = np.bincount((x.reshape(2, -1).T * 16).astype(int) @ [16, 1], minlength=256)
    assert stats.chisquare(halves).pvalue > 1e-3
    y = np.asarray(random.uniform(key, (1000,), -3.0, 5.0))
    assert y.min() >= -3.0 and y.max() < 5.0


def test_every_bit_is_fair(key):
    bits = np.asarray(random.bits(key, (20_000,)))
    ones = ((bits[:, None] >> np.arange(32)) & 1).sum(0)
    assert np.all(np.abs(ones - 10_000) < 4.5 * np.sqrt(5000))


def test_draws_of_sibling_keys_are_uncorrelated(key):
    keys = random.split(key, 2000)
    x = np.asarray(jax.vmap(lambda k: random.uniform(k, (8,)))(keys))
    assert stats.kstest(x.reshape(-1), "uniform").pvalue > 1e-3
    # within a key and with the next key
    correlation = np.corrcoef(np.concatenate([x[:-1], x[1:]], axis=1).T)
    off = correlation[~np.eye(16, dtype=bool)]
    assert np.abs(off).max() < 5 / np.sqrt(2000)


def test_normal_and_gumbel_follow_their_laws(key):
    x = np.asarray(random.normal(key, (200_000,)))
    assert np.isfinite(x).all() and stats.kstest(x, "norm").pvalue > 1e-3
    assert abs(x.mean()) < 0.01 and abs(x.std() - 1) < 0.01 and abs(stats.kurtosis(x)) < 0.05
    g = np.asarray(random.gumbel(key, (200_000,)))
    assert np.isfinite(g).all() and stats.kstest(g, "gumbel_r").pvalue > 1e-3
    assert abs(g.mean() - np.euler_gamma) < 0.01 and abs(g.var() - np.pi**2 / 6) < 0.03


def test_the_ends_of_the_range_stay_finite():
    """The smallest and the largest mantissa."""
    low, high = ends = random.to_uniform(jnp.array([0, 2**32 - 1], jnp.uint32))
    assert low == 0.0 and high < 1.0
    for change in (random.to_normal, random.to_gumbel):
        assert np.isfinite(change(ends)).all()


def test_randint_covers_its_range_evenly(key):
    x = np.asarray(random.randint(key, (70_000,), -3, 4))
    counts = np.bincount(x + 3, minlength=7)
    assert x.dtype == np.int32 and len(counts) == 7 and stats.chisquare(counts).pvalue > 1e-3


def test_keys_of_another_implementation_are_passed_on():
    key = jax.random.key(0, impl="rbg")
    np.testing.assert_array_equal(random.bits(key, (4,)), jax.random.bits(key, (4,), jnp.uint32))
    assert str(jax.random.key_impl(random.split(key)[0])) == "rbg"
    assert str(jax.random.key_impl(random.fold_in(key, 1))) == "rbg"


@pytest.mark.parametrize("impl", ["threefry2x32", "rbg"])
def test_draws_for_several_keys_equal_draws_for_each(impl):
    root, sizes = jax.random.key(5, impl=impl), [7, 1, 12, 0]
    keys = random.fold_in(root, np.arange(4, dtype=np.uint32))
    for i in range(4):
        one = random.fold_in(root, i)
        np.testing.assert_array_equal(jax.random.key_data(keys[i]), jax.random.key_data(one))
    drawn = random.each_from_bits(keys, sizes, random.to_uniform)
    for key, size, found in zip(keys, sizes, drawn, strict=True):
        np.testing.assert_array_equal(found, random.uniform(key, (size,)))
