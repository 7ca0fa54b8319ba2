"""Accurate long sums: float32 one by one is off by 0.3% after 300,000 terms of 0.1."""

from __future__ import annotations

import jax
import jax.numpy as jnp


def add(total: jax.Array, lost: jax.Array, x: jax.Array) -> tuple[jax.Array, jax.Array]:
    """Add a term -> (total, lost): the float32 nearest to the sum, and its rounding error.

    Knuth's two-sum, the smaller part folded back in (Dekker 1971): a term loses about 2^-48.
    """
    rough = total + x
    added = rough - total
    lost = lost + ((total - (rough - added)) + (x - added))
    exact = rough + lost
    return exact, lost - (exact - rough)


def pairwise(x: jax.Array) -> jax.Array:
    """Sum over the leading axis in pairs: log2(n) roundings instead of n."""
    while x.shape[0] > 1:
        half = x.shape[0] // 2
        paired = x[:half] + x[half : 2 * half]
        x = paired if x.shape[0] % 2 == 0 else paired.at[0].add(x[-1])
    return x[0] if x.shape[0] else jnp.zeros(x.shape[1:], x.dtype)


def by_eights(x: jax.Array) -> jax.Array:
    """Sum [B] by neighbours, eight at a time: nothing moves if B is divided over devices."""
    while x.shape[0] > 8 and x.shape[0] % 8 == 0:
        x = jnp.sum(x.reshape(-1, 8), axis=1)
    return jnp.sum(x)
