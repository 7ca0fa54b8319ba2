"""Returns and lengths of finished episodes against a plain loop, over blocks that cut episodes
anywhere."""

from __future__ import annotations

import jax
import jax.numpy as jnp
import numpy as np

from jaxrl_fast.engine.rollout import episode_statistics
from jaxrl_fast.types import Episodes

T, B, BLOCKS = 4, 6, 5


def loop(reward, done):
    """Per block (sum of returns, sum of lengths, episodes) of those that ended in it; and what is
    still running."""
    ret, length = np.zeros(B), np.zeros(B, int)
    rows = []
    for block in range(BLOCKS):
        finished = []
        for t, b in np.ndindex(T, B):
            ret[b] += reward[block, t, b]
            length[b] += 1
            if done[block, t, b]:
                finished.append((ret[b], length[b]))
                ret[b], length[b] = 0, 0
        rows.append((sum(f[0] for f in finished), sum(f[1] for f in finished), len(finished)))
    return np.array(rows), ret, length


def test_blocks_of_random_episodes_equal_a_plain_loop():
    scan = jax.jit(
        lambda start, xs: jax.lax.scan(lambda e, x: episode_statistics(e, *x), start, xs))
    start = Episodes(jnp.zeros(B), jnp.zeros(B, jnp.int32), jnp.zeros(B))
    for seed, share in enumerate((0.0, 0.05, 0.3, 0.7, 1.0)):
        rng = np.random.default_rng(seed)
        reward = rng.normal(size=(BLOCKS, T, B)).astype(np.float32)
        done = rng.random((BLOCKS, T, B)) < share
        after, metrics = scan(start, (reward, done))
        rows, ret, length = loop(reward, done)
        np.testing.assert_allclose(metrics["episode_return"].total, rows[:, 0], rtol=1e-4,
                                   atol=1e-4)
        np.testing.assert_array_equal(metrics["episode_length"].total, rows[:, 1])
        np.testing.assert_array_equal(metrics["episode_return"].count, rows[:, 2])
        np.testing.assert_array_equal(metrics["episode_length"].count, rows[:, 2])
        np.testing.assert_allclose(after.ret, ret, rtol=1e-4, atol=1e-4)
        np.testing.assert_array_equal(after.length, length)
        assert after.length.dtype == jnp.int32  # a carry must not change its type


def test_environments_without_a_finished_episode_do_not_count():
    start = Episodes(jnp.array([100.0, 5.0]), jnp.array([50, 2], jnp.int32), jnp.zeros(2))
    reward, done = jnp.ones((3, 2)), jnp.array([[False, False], [False, True], [False, False]])
    after, metrics = episode_statistics(start, reward, done)
    assert float(metrics["episode_return"].total) == 7.0 and float(
        metrics["episode_return"].count) == 1
    assert float(metrics["episode_length"].total) == 4.0
    np.testing.assert_array_equal(after.ret, [103, 1])
    np.testing.assert_array_equal(after.length, [53, 1])
