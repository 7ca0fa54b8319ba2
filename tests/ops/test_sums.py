"""Long sums of float32, in compiled programs: what XLA makes of them must still be exact."""

from __future__ import annotations

import math

import jax
import jax.numpy as jnp
import numpy as np
import pytest

from jaxrl_fast.engine.rollout import episode_statistics
from jaxrl_fast.ops import sums
from jaxrl_fast.types import Episodes


@pytest.mark.parametrize("rows", [1, 7])
def test_the_return_of_an_episode_of_a_million_steps(rows):
    """One environment's reward is 0.1, the other's drawn around 1; both end with the last
    rollout."""
    blocks = 1_000_002 // rows

    def block(carry, i):
        episodes, total = carry
        reward = jnp.stack(
            [jnp.full(rows, 0.1), ((i * rows + jnp.arange(rows)) * 71 % 1000) / 1000 + 0.5], axis=1)
        done = (jnp.arange(rows) == rows - 1)[:, None] & (i == blocks - 1) & jnp.ones((1, 2), bool)
        episodes, metrics = episode_statistics(episodes, reward, done)
        return (episodes, metrics["episode_return"].total + total), episodes.ret[1]

    start = Episodes(jnp.zeros(2), jnp.zeros(2, jnp.int32))
    (_, total), ret = jax.jit(lambda s: jax.lax.scan(block, (s, 0.0), jnp.arange(blocks)))(start)
    steps = np.arange(blocks * rows)
    drawn = np.float64(np.float32(steps * 71 % 1000) / np.float32(1000) + np.float32(0.5))
    exact = 0.1 * len(steps) + drawn.sum()
    assert abs(float(total) / exact - 1) < 1e-6
    assert abs(float(ret[-2]) / drawn[:-rows].sum() - 1) < 1e-6  # and while it goes on


@pytest.mark.parametrize("n", [0, 1, 2, 3, 8, 1000, 4096])
def test_pairs_and_eights_are_sums(n):
    x = np.random.default_rng(n).normal(3.0, 1.0, n).astype(np.float32)
    exact = math.fsum(x)
    for found in (jax.jit(sums.pairwise)(x), jax.jit(sums.by_eights)(x)):
        np.testing.assert_allclose(found, exact, rtol=1e-6)
    equal = np.full(4096, 29987.31, np.float32)
    np.testing.assert_allclose(jax.jit(sums.by_eights)(equal), 4096 * np.float64(equal[0]),
                               rtol=2e-7)


def test_rounding_errors_are_kept():
    """2^24 and ones, which a float32 beside it would not see; signs that cancel leave the small
    part."""
    terms = np.float32([2**24, *[1.0] * 101, -(2**24)])

    @jax.jit
    def total(xs):
        return jax.lax.scan(lambda c, x: (sums.add(*c, x), None), (jnp.float32(0), jnp.float32(0)),
                            xs)[0]

    assert float(total(terms)[0]) == 101.0
