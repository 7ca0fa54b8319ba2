"""Whether an agent is finite, in few kernels of a CPU."""

from __future__ import annotations

from typing import Any

import jax
import jax.numpy as jnp

from jaxrl_fast import tree
from jaxrl_fast.ops.lowering import on_cpu


def all_finite(agent: Any) -> jax.Array:
    """Return a scalar bool: every floating leaf is finite.

    XLA makes of one large reduction on a CPU a chain of four, each longer to compile than a
    product: 0 x is NaN unless x is finite, and so is its square.
    """
    return on_cpu(_by_products, tree.all_finite, agent)


def _by_products(agent: Any) -> jax.Array:
    small, large = [], {}
    for x in jax.tree.leaves(agent):
        if jnp.issubdtype(x.dtype, jnp.floating):
            zeros = (x.reshape(-1) * jnp.zeros((), x.dtype)).astype(jnp.float32)
            if x.size <= tree.JOINED:
                small.append(zeros)
            else:
                large[x.size] = large.get(x.size, 0.0) + zeros
    all_zeros = [*large.values()]
    if small:
        all_zeros.append(jax.lax.optimization_barrier(jnp.concatenate(small)))
    total = sum((jnp.dot(x, x, precision="highest") for x in all_zeros), jnp.float32(0.0))
    return jnp.isfinite(total)
