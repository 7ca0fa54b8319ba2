"""Values that XLA computes once, where a fusion would compute them anew for each use."""

from __future__ import annotations

from collections.abc import Callable
from typing import TypeVar

import jax
import jax.numpy as jnp

T = TypeVar("T")


def materialize(wanted: jax.Array, compute: Callable[[], T]) -> T:
    """Return `compute()` where `wanted`, a scalar bool, else zeros.

    No fusion passes the conditional, and no compiler drops it, as XLA on a CPU drops an
    `optimization_barrier`.
    """
    shapes = jax.eval_shape(compute)
    zeros = lambda: jax.tree.map(lambda x: jnp.zeros(x.shape, x.dtype), shapes)
    return jax.lax.cond(wanted, compute, zeros)
