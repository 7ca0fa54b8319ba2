"""Places in arrays: int32 that are never negative.

`//`, `%` and brackets of jax.numpy are up to nine operations for a negative number; these are one.
"""

from __future__ import annotations

import jax
import jax.numpy as jnp


def quotient(x: jax.Array | int, by: int) -> jax.Array:
    """Return x // by for integers x >= 0 and by > 0, in the dtype of x."""
    x = jnp.asarray(x)
    return jax.lax.div(x, jnp.full_like(x, by)) if by > 1 else x


def remainder(x: jax.Array | int, by: int | jax.Array) -> jax.Array:
    """Return x % by for integers x >= 0 and by > 0, a number or one a place, in the dtype of x."""
    x = jnp.asarray(x)
    return jax.lax.rem(x, jnp.broadcast_to(jnp.asarray(by, x.dtype), x.shape))


def take(x: jax.Array, *place: jax.Array | slice) -> jax.Array:
    """Return x[place] for places inside of x, int32 [...] for each of the first axes."""
    return x.at[place].get(mode="promise_in_bounds", wrap_negative_indices=False)


def put(x: jax.Array, values: jax.Array, *place: jax.Array) -> jax.Array:
    """Return x with `values` [...] at places inside of x; equal places need equal values."""
    return x.at[place].set(values, mode="promise_in_bounds", wrap_negative_indices=False)


def take_block(x: jax.Array, start: jax.Array, size: int) -> jax.Array:
    """Return x[start : start + size] for start >= 0, a slice."""
    starts = _starts(start, x.ndim)
    return jax.lax.dynamic_slice(x, starts, (size, *x.shape[1:]), allow_negative_indices=False)


def put_block(x: jax.Array, block: jax.Array, start: jax.Array) -> jax.Array:
    """Return x with `block` from start >= 0 on, a slice."""
    starts = _starts(start, x.ndim)
    return jax.lax.dynamic_update_slice(x, block, starts, allow_negative_indices=False)


def _starts(start: jax.Array, ndim: int) -> tuple[jax.Array, ...]:
    start = jnp.asarray(start)
    return (start, *[jnp.zeros((), start.dtype)] * (ndim - 1))  # of one dtype, also with 64 bits


def together(*places: jax.Array) -> tuple[jax.Array, ...]:
    """Return int32 scalars as entries of one array, which one CPU kernel computes."""
    return tuple(jax.lax.optimization_barrier(jnp.stack(places)))
