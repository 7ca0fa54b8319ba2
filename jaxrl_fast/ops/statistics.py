"""Running mean and variance (Welford 1962; merged by Chan, Golub & LeVeque 1979), float32, as a pytree."""

from __future__ import annotations

from typing import Any, NamedTuple

import jax
import jax.numpy as jnp

from jaxrl_fast.tree import summary

# Rows that the past counts for at most. At 2^24 a float32 count would stand still while the squares went on adding up;
# at 2^22 a single row is still more than rounding (updates of one row: a variance off by 0.7%; of four: by nothing).
LONGEST = 2.0**22


class Moments(NamedTuple):
    """Statistics of a tree of features: `count` is a scalar, `mean` and `m2` (sum of squared deviations) are trees.

    Of everything seen, up to `LONGEST` rows; from there on an exponential average over as many.
    """

    count: jax.Array
    mean: Any
    m2: Any

    @classmethod
    def init(cls, example: Any) -> Moments:
        """Empty statistics for features shaped like one `example` (no batch axis)."""
        zeros = jax.tree.map(lambda x: jnp.zeros(jnp.shape(x), jnp.float32), example)
        return cls(jnp.float32(0.0), zeros, zeros)

    def update(self, batch: Any, use: jax.Array | None = None) -> Moments:
        """Merge a batch whose leaves are [*batch, *feature]; all leading axes are batch axes.

        use: bool [*batch], the rows that count; None: all of them.
        """
        first_batch, first_mean = jax.tree.leaves(batch)[0], jax.tree.leaves(self.mean)[0]
        axes = tuple(range(first_batch.ndim - first_mean.ndim))
        n = jnp.float32(first_batch.size / max(first_mean.size, 1)) if use is None else jnp.sum(use, dtype=jnp.float32)
        total = self.count + n
        count = jnp.minimum(total, LONGEST)
        forgotten = (total - count) / total
        among = lambda x: None if use is None else use.reshape(use.shape + (1,) * (x.ndim - use.ndim))

        def one(mean, m2, x):
            x = x.astype(jnp.float32)
            new_mean = jnp.mean(x, axes, where=among(x))
            delta = new_mean - mean
            gain = jnp.sum(jnp.square(x - new_mean), axes, where=among(x)) + delta**2 * self.count * n / total
            # all that is small first: of a product with 1 - forgotten little would be left in float32
            return mean + delta * n / total, m2 + (gain - (m2 + gain) * forgotten)

        pairs = jax.tree.map(one, self.mean, self.m2, batch)
        is_pair = lambda x: isinstance(x, tuple) and len(x) == 2 and isinstance(x[0], jax.Array)
        mean = jax.tree.map(lambda p: p[0], pairs, is_leaf=is_pair)
        m2 = jax.tree.map(lambda p: p[1], pairs, is_leaf=is_pair)
        return Moments(count, mean, m2)

    def normalize(self, features: Any, clip: float = 10.0) -> Any:
        """(x - mean) / std in float32, clipped to +-clip; while nothing was seen the mean is 0 and std 1."""

        def one(mean, m2, x):
            std = jnp.sqrt(jnp.maximum(m2 / jnp.maximum(self.count, 1.0), 1e-8))
            std = jnp.where(self.count > 0, std, 1.0)
            return jnp.clip((x.astype(jnp.float32) - mean) / std, -clip, clip)

        return jax.tree.map(one, self.mean, self.m2, features)

    __repr__ = summary
