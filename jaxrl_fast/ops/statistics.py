"""Means, and running mean and variance (Welford 1962; Chan, Golub & LeVeque 1979), float32."""

from __future__ import annotations

from typing import Any, NamedTuple

import jax
import jax.numpy as jnp

from jaxrl_fast.ops.lowering import on_gpu
from jaxrl_fast.tree import summary

# Rows of the past that count. At 2^24 a float32 count stands still while the squares grow; at
# 2^22 a row exceeds rounding (updates of one row: a variance off by 0.7%; of four: by nothing).
LONGEST = 2.0**22
TWO_STAGES = 1 << 14  # numbers from which on XLA sums on a GPU twice; it joins the first sums alone


class Moments(NamedTuple):
    """Statistics of a tree of features over all rows; from `LONGEST` on, an exponential average."""

    count: jax.Array
    mean: Any
    m2: Any  # sums of squared deviations

    @classmethod
    def init(cls, example: Any) -> Moments:
        """Return empty statistics for features like one `example` (no batch axis)."""
        zeros = jax.tree.map(lambda x: jnp.zeros(jnp.shape(x), jnp.float32), example)
        return cls(jnp.float32(0.0), zeros, zeros)

    def update(self, batch: Any, use: jax.Array | None = None, longest: float = LONGEST) -> Moments:
        """Merge a batch with leaves [*batch, *feature], or its rows `use`, bool [*batch]."""
        first_batch, first_mean = jax.tree.leaves(batch)[0], jax.tree.leaves(self.mean)[0]
        axes = tuple(range(first_batch.ndim - first_mean.ndim))
        n = (jnp.float32(first_batch.size / max(first_mean.size, 1)) if use is None
             else jnp.sum(use, dtype=jnp.float32))
        total = self.count + n
        count = jnp.minimum(total, longest)
        forgotten = (total - count) / total
        among = lambda x: (
            None if use is None else use.reshape(use.shape + (1,) * (x.ndim - use.ndim))
        )

        def one(mean, m2, x):
            x = x.astype(jnp.float32)
            new_mean = jnp.mean(x, axes, where=among(x))
            delta = new_mean - mean
            spread = jnp.sum(jnp.square(x - new_mean), axes, where=among(x))
            gain = spread + delta**2 * self.count * n / total
            # small terms first: a product with 1 - forgotten would lose them in float32
            return mean + delta * n / total, m2 + (gain - (m2 + gain) * forgotten)

        pairs = jax.tree.map(one, self.mean, self.m2, batch)
        is_pair = lambda x: isinstance(x, tuple) and len(x) == 2 and isinstance(x[0], jax.Array)
        mean = jax.tree.map(lambda p: p[0], pairs, is_leaf=is_pair)
        m2 = jax.tree.map(lambda p: p[1], pairs, is_leaf=is_pair)
        return Moments(count, mean, m2)

    def normalize(self, features: Any, clip: float = 10.0) -> Any:
        """Return (x - mean) / std in float32, clipped to +-clip; at first mean 0 and std 1."""

        def one(mean, m2, x):
            std = jnp.sqrt(jnp.maximum(m2 / jnp.maximum(self.count, 1.0), 1e-8))
            std = jnp.where(self.count > 0, std, 1.0)
            return jnp.clip((x.astype(jnp.float32) - mean) / std, -clip, clip)

        return jax.tree.map(one, self.mean, self.m2, features)

    __repr__ = summary


def means(*xs: jax.Array) -> tuple[jax.Array, ...]:
    """Return the mean of each float32 array, all of one shape; on a GPU long ones in one go."""
    apart = lambda *xs: tuple(x.mean() for x in xs)
    return on_gpu(_means if xs[0].size >= TWO_STAGES else apart, apart, *xs)


@jax.custom_jvp
def _means(*xs: jax.Array) -> tuple[jax.Array, ...]:
    joined = lambda a, b: tuple(x + y for x, y in zip(a, b, strict=True))
    sums = jax.lax.reduce(xs, (jnp.float32(0.0),) * len(xs), joined, range(xs[0].ndim))
    return tuple(x / xs[0].size for x in sums)


@_means.defjvp
def _(xs, tangents):
    return _means(*xs), tuple(x.mean() for x in tangents)
