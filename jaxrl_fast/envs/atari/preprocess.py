"""Pictures for a policy: gather colors, then shrink by area as OpenCV's INTER_AREA does.

Equal to OpenCV bit by bit: its float32 products and sums in its order. A compiler may join a
product and a sum into one rounding; `_rounded` keeps them apart. `resize` takes pictures of JAX or
of NumPy, and returns the same.
"""

from __future__ import annotations

import math
from typing import Any, NamedTuple

import jax
import jax.numpy as jnp
import numpy as np

_LEAST = 1e-3  # a smaller part of a pixel does not count


class Taps(NamedTuple):
    """Source pixels of each target pixel along one axis: arrays [taps, target]."""

    index: np.ndarray
    weight: np.ndarray  # float32; 0 for no pixel


def taps(source: int, target: int) -> Taps:
    """Return the pixels that a target pixel covers, with the part of it that each fills."""
    scale, rows = source / target, []
    for i in range(target):
        begin, end = i * scale, (i + 1) * scale
        cell = min(scale, source - begin)
        last = min(math.floor(end), source - 1)
        first = min(math.ceil(begin), last)
        row = [(first - 1, (first - begin) / cell)] if first - begin > _LEAST else []
        row += [(j, 1.0 / cell) for j in range(first, last)]
        if end - last > _LEAST:
            row.append((last, min(end - last, 1.0, cell) / cell))
        rows.append(row)
    most = max(map(len, rows))
    full = np.array([row + [(0, 0.0)] * (most - len(row)) for row in rows])
    return Taps(full[..., 0].T.astype(np.int32), full[..., 1].T.astype(np.float32))


def _round_product(product: jax.Array, zero: jax.Array | None) -> jax.Array:
    """Return `product`, rounded to float32 before any sum."""
    if zero is None:
        return product
    bits = jax.lax.bitcast_convert_type(product, jnp.int32) ^ zero
    return jax.lax.bitcast_convert_type(bits, jnp.float32)


def _weighted_sum(x: Any, axis: int, target: int, zero: jax.Array | None) -> Any:
    total, xp = None, x.__array_namespace__()
    for index, weight in zip(*taps(x.shape[axis], target), strict=True):
        shape = [1] * x.ndim
        shape[axis] = target
        part = _round_product(xp.take(x, index, axis=axis) * weight.reshape(shape), zero)
        total = part if total is None else total + part
    return total


def resize(picture: Any, height: int, width: int, zero: jax.Array | None = None) -> Any:
    """Return pictures uint8 [N, height, width, C] from larger ones, by area.

    zero: for arrays of JAX, an int32 0 that the compiler does not know.
    """
    rows, columns = picture.shape[1:3]
    if (rows, columns) == (height, width):
        return picture
    if rows % height == 0 and columns % width == 0:
        return _blocks(picture, rows // height, columns // width)
    total = _weighted_sum(picture.astype(np.float32), 2, width, zero)
    total = _weighted_sum(total, 1, height, zero)
    return total.round().clip(0, 255).astype(np.uint8)


def _blocks(picture: Any, tall: int, wide: int) -> Any:
    """Return the mean of whole blocks; OpenCV rounds halves of 2 x 2 up, others to even."""
    n, rows, columns, channels = picture.shape
    blocks = picture.reshape(n, rows // tall, tall, columns // wide, wide, channels)
    total = blocks.sum((2, 4), dtype=np.int32)
    if tall == wide == 2:
        return ((total + 2) >> 2).astype(np.uint8)
    return (total.astype(np.float32) * np.float32(1 / (tall * wide))).round().astype(np.uint8)


def shade(screen: jax.Array, colors: jax.Array) -> jax.Array:
    """Return pictures uint8 [N, H, W, C] of screens uint8 [N, H, W]; colors: uint8 [256, C]."""
    return colors[screen.astype(jnp.int32)]
