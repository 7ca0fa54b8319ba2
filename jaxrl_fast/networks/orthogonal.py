"""Orthogonal kernels (Saxe et al. 2014) from normal numbers."""

from __future__ import annotations

import dataclasses
import functools
import math
from typing import Any

import jax
import jax.numpy as jnp

from jaxrl_fast.ops import places
from jaxrl_fast.ops.lowering import GPUS, platform


def orthogonal(scale: float) -> Orthogonal:
    """Return an initializer of gain `scale` (Saxe et al. 2014), from normals."""
    return Orthogonal(scale)


@dataclasses.dataclass(frozen=True)
class Orthogonal:
    """An initializer of orthogonal kernels: normals [..., F] -> a kernel of gain `scale`."""

    scale: float

    def __call__(self, normal: jax.Array) -> jax.Array:
        return _orthogonal(self.scale, normal)

    def of_rows(self, rows: jax.Array, shape: tuple[int, ...]) -> jax.Array:
        """Return the kernel of `shape` from its orthonormal rows, see `as_rows`."""
        return (self.scale * (rows if _is_wide(shape) else rows.T)).reshape(shape)


@functools.partial(jax.jit, static_argnums=0, inline=True)  # traced once a shape
def _orthogonal(scale: float, normal: jax.Array) -> jax.Array:
    return Orthogonal(scale).of_rows(orthonormal_rows(as_rows(normal)), normal.shape)


def _is_wide(shape: tuple[int, ...]) -> bool:
    return math.prod(shape[:-1]) < shape[-1]


def as_rows(normal: jax.Array) -> jax.Array:
    """Return the normals of a kernel as [m, n], m <= n."""
    inputs, outputs = math.prod(normal.shape[:-1]), normal.shape[-1]
    return normal.reshape(min(inputs, outputs), max(inputs, outputs))


def orthonormal_rows(a: jax.Array) -> jax.Array:
    """Orthonormalise the rows of [m, n], m <= n, by Gram-Schmidt; Haar for a Gaussian matrix.

    `jnp.linalg.qr` calls LAPACK on a CPU, which deadlocks with jaxlib 0.10 if two devices run
    batches. Each row is projected twice, so float32 rows are orthogonal up to rounding errors.
    """
    rows = a.shape[0]
    if rows == 1:  # nothing to orthogonalise, and no loop to compile
        return a / jnp.linalg.norm(a)
    product = functools.partial(jnp.matmul, precision=jax.lax.Precision.HIGHEST)

    def row(i: jax.Array, q: jax.Array) -> jax.Array:
        x = places.take_block(a, i, 1)[0]
        for _ in range(2):  # rows of q from i on are still zero
            x = x - product(product(q, x), q)
        unit = (x / jnp.linalg.norm(x))[None]
        if a.size > SMALL:
            return places.put_block(q, unit, i)
        # under vmap put_block becomes a scatter: four kernels to compile
        return jnp.where(jax.lax.broadcasted_iota(i.dtype, q.shape, 0) == i, unit, q)

    return jax.lax.fori_loop(0, rows, row, jnp.zeros_like(a))


SMALL = 1 << 14  # numbers of a kernel that are copied for each row: 64 KiB
# numbers of a member, zeros included, that a GPU orthonormalises in one loop: 2 MiB
TOGETHER = 1 << 19


def orthonormalize_together(normals: dict[Any, jax.Array]) -> dict[Any, jax.Array]:
    """Return `orthonormal_rows` of the normals of all kernels, by name, from one loop.

    {} in programs for other platforms than a GPU, and for large kernels. Each row is subtracted
    from all later ones, in two passes: two kernels a turn, compiled once for all layers.
    """
    each = {name: as_rows(x) for name, x in normals.items()}
    rows, columns = (max((x.shape[i] for x in each.values()), default=0) for i in (0, 1))
    if platform() not in GPUS or not 0 < len(each) * rows * columns <= TOGETHER:
        return {}
    padded = [jnp.pad(x, ((0, rows - len(x)), (0, columns - x.shape[1]))) for x in each.values()]

    def turn(i: jax.Array, a: jax.Array) -> jax.Array:
        i, place = jnp.where(i < rows, i, i - rows), jnp.arange(rows)[:, None]
        x = jax.lax.dynamic_slice_in_dim(a, i, 1, axis=1)
        along = jnp.sum(a * x, axis=2, keepdims=True)  # along[:, i] is the square of |x|
        square = jax.lax.dynamic_slice_in_dim(along, i, 1, axis=1)
        square = jnp.where(square == 0, 1.0, square)  # of a row of zeros
        less = a - jnp.where(place > i, along / square, 0.0) * x
        return jnp.where(place == i, x * jax.lax.rsqrt(square), less)

    found = jax.lax.fori_loop(0, 2 * rows, turn, jnp.stack(padded))
    return {name: q[: x.shape[0], : x.shape[1]]
            for (name, x), q in zip(each.items(), found, strict=True)}
