"""The loop over a run's log rows."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import jax
import jax.numpy as jnp

from jaxrl_fast.ops.lowering import on_gpu, packing


def scan_rows(row: Callable, state: Any, count: int) -> tuple[Any, dict[str, jax.Array]]:
    """Return `jax.lax.scan` of row(state, r) -> (state, {name: scalar}) over rows r < count.

    A GPU's program holds all rows as one float32 array [n, count] if they are float32 or bool: each
    array that a loop writes is a kernel to compile, and a row of an array is copied out.
    """
    plain = lambda state: jax.lax.scan(row, state, jnp.arange(count, dtype=jnp.int32))

    def together(state):
        one = jax.jit(row, inline=True)  # traced once for shapes and use
        shapes = jax.eval_shape(one, state, jax.ShapeDtypeStruct((), jnp.int32))[1]
        like, structure = jax.tree.flatten(shapes)
        exact = [x.shape == () and x.dtype in (jnp.float32, jnp.bool_) for x in like]
        if not exact or not all(exact):  # float32 may lose digits of others
            return plain(state)

        pack, unpack = packing(state)  # as the loops within: their slices become one

        def body(r, carry):
            packed, table = carry
            state, found = one(unpack(packed), jax.lax.convert_element_type(r, jnp.int32))
            found = jnp.stack([x.astype(jnp.float32) for x in jax.tree.leaves(found)])
            return pack(state), jax.lax.dynamic_update_slice(table, found[:, None], (0, r))

        table = jnp.zeros((len(like), count), jnp.float32)
        packed, table = jax.lax.fori_loop(0, count, body, (pack(state), table))
        state = unpack(packed)
        columns = [x if y.dtype == jnp.float32 else x.astype(y.dtype)
                   for x, y in zip(table, like, strict=True)]
        return state, jax.tree.unflatten(structure, columns)

    return on_gpu(together, plain, state)
