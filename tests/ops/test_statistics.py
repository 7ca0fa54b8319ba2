"""Running moments against NumPy on everything seen so far; means of several arrays."""

from __future__ import annotations

import jax
import jax.numpy as jnp
import numpy as np
import pytest

from jaxrl_fast.ops import statistics
from jaxrl_fast.ops.statistics import LONGEST, Moments, means


def check(moments, seen):
    np.testing.assert_allclose(moments.count, len(seen))
    np.testing.assert_allclose(moments.mean, seen.mean(0), rtol=1e-5, atol=1e-5)
    np.testing.assert_allclose(moments.m2 / moments.count, seen.var(0), rtol=1e-4, atol=1e-6)


def test_batches_of_several_sizes_and_ranks_add_up(rng):
    moments = Moments.init(jnp.zeros(3))
    seen = np.zeros((0, 3))
    update = jax.jit(Moments.update)
    for shape in ((1,), (7,), (4, 5), (2, 3, 4), (1, 1)):
        batch = rng.normal(2.0, 3.0, (*shape, 3)).astype(np.float32)
        seen = np.concatenate([seen, batch.reshape(-1, 3).astype(np.float64)])
        moments = update(moments, batch)
        check(moments, seen)


def test_a_large_offset_does_not_cancel(rng):
    """Sums of squares in float32 would lose a variance of 1 at a mean of 10^4."""
    data = (1e4 + rng.normal(size=(200, 50, 1))).astype(np.float32)
    moments = jax.lax.scan(lambda m, x: (m.update(x), None), Moments.init(jnp.zeros(1)), data)[0]
    variance = data.astype(np.float64).reshape(-1).var()
    np.testing.assert_allclose(float(moments.m2[0] / moments.count), variance, rtol=0.02)


def test_trees_scalars_images_and_integers(rng):
    example = {"a": jnp.zeros(()), "b": (jnp.zeros((2, 2, 1), jnp.uint8), jnp.zeros(3))}
    batch = {
        "a": rng.normal(size=(6, 4)).astype(np.float32),
        "b": (rng.integers(0, 255, (6, 4, 2, 2, 1)).astype(np.uint8),
              rng.normal(size=(6, 4, 3)).astype(np.float32)),
    }
    moments = Moments.init(example).update(batch).update(batch)
    assert (
        jax.tree.structure(moments.mean) == jax.tree.structure(example)
        == jax.tree.structure(moments.m2)
    )
    assert float(moments.count) == 48
    for mean, m2, x in zip(*map(jax.tree.leaves, (moments.mean, moments.m2, batch)), strict=True):
        x = x.reshape((24, *mean.shape)).astype(np.float64)
        np.testing.assert_allclose(mean, x.mean(0), rtol=1e-5, atol=1e-5)
        np.testing.assert_allclose(m2 / 48, x.var(0), rtol=1e-4)


def test_counts_beyond_float32():
    """A long run of one environment left this before counts had a limit: the count stood still, the
    variance grew."""
    moments = Moments(jnp.float32(2.0**24), jnp.zeros(1), jnp.full(1, 2.0**24))
    blocks = jax.random.split(jax.random.key(0), 2**8)

    def block(moments, key):
        return jax.lax.scan(lambda m, x: (m.update(x), None), moments,
                            jax.random.normal(key, (2**14, 1, 1)))[0], None

    moments = jax.jit(lambda m: jax.lax.scan(block, m, blocks)[0])(moments)
    assert moments.count == LONGEST
    np.testing.assert_allclose(moments.m2 / moments.count, 1.0, rtol=0.02)
    np.testing.assert_allclose(moments.mean, 0.0, atol=2e-3)


def test_the_past_counts_for_a_limited_number_of_rows(rng):
    moments, (count, mean, m2) = Moments.init(jnp.zeros(2)), (0.0, np.zeros(2), np.zeros(2))
    for i, n in enumerate([50, 14, 1, 5, 1, 200, *[7] * 30]):
        batch = rng.normal(i, 1.0 + i, (n, 2)).astype(np.float32)
        moments = moments.update(batch, longest=64.0)
        delta, total = batch.mean(0) - mean, count + n
        m2 = m2 + n * batch.var(0) + delta**2 * count * n / total
        count, mean, m2 = min(total, 64.0), mean + delta * n / total, m2 * min(total, 64.0) / total
        for got, want in ((moments.count, count), (moments.mean, mean), (moments.m2, m2)):
            np.testing.assert_allclose(got, want, rtol=1e-4)
    # of the last batches, not of all
    assert np.abs(moments.mean - i).max() < 15 and moments.m2.min() / 64 > 15**2


def test_normalize_clips_and_is_the_identity_without_data(rng):
    data = rng.normal(5.0, 2.0, (1000, 2)).astype(np.float32)
    moments = Moments.init(jnp.zeros(2))
    # nothing seen
    np.testing.assert_array_equal(moments.normalize(jnp.asarray(data[:3])),
                                  np.clip(data[:3], -10, 10))
    np.testing.assert_array_equal(moments.normalize(jnp.array([3.5, -99.0])), [3.5, -10.0])
    moments = moments.update(data)
    out = np.asarray(moments.normalize(data))
    np.testing.assert_allclose(out.mean(0), 0, atol=1e-4)
    np.testing.assert_allclose(out.std(0), 1, rtol=1e-4)
    np.testing.assert_array_equal(moments.normalize(jnp.array([1e9, -1e9])), [10.0, -10.0])
    assert moments.normalize(jnp.zeros(2, jnp.uint8)).dtype == jnp.float32


def test_a_feature_that_never_changes_stays_finite():
    moments = Moments.init(jnp.zeros(1)).update(jnp.full((5, 1), 3.0)).update(jnp.full((5, 1), 3.0))
    np.testing.assert_array_equal(moments.normalize(jnp.array([[3.0]])), [[0.0]])


@pytest.mark.parametrize("size", [40, statistics.TWO_STAGES // 8])
@pytest.mark.usefixtures("every_platform")
def test_several_means_and_their_gradients(size, rng, both_forms):
    """A CPU gives every bit of separate means, under `vmap` too."""
    x = jnp.asarray(rng.normal(size=(3, 8, size)), jnp.float32)
    values = lambda x: (jnp.square(x), jnp.sin(x), (x > 0).astype(jnp.float32))

    def numbers(mean):
        weighed = lambda x: (found := mean(*values(x)))[0] - 2.0 * found[1] + found[2]
        return lambda x: (jax.vmap(lambda x: jnp.stack(mean(*values(x))))(x),
                          jax.vmap(jax.value_and_grad(weighed))(x))

    expected = jax.tree.map(np.asarray, jax.jit(numbers(lambda *xs: [x.mean() for x in xs]))(x))
    ours, gpus = both_forms(numbers(means), x)
    jax.tree.map(np.testing.assert_array_equal, ours, expected)
    close = lambda a, b: np.testing.assert_allclose(a, b, rtol=1e-5, atol=1e-6)
    jax.tree.map(close, gpus, expected)
    reductions = lambda on: jax.jit(means).trace(x, x).lower(
        lowering_platforms=(on,)).as_text().count("stablehlo.reduce(")
    assert (reductions("cpu"), reductions("cuda")) == (2, 2 if size == 40 else 1)
