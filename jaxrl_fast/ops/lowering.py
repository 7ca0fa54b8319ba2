"""Choices by the platform that a program is lowered for.

A GPU pays for launches and for each wait of the host: loops of small steps are unrolled there, and
few branches and trip counts depend on data (docs/decisions/gpu-programs.md). A CPU pays for
operations. The platform is the lowering's, not the default backend: a program lowered for CUDA
without a GPU is the one that a GPU runs, under `vmap` too.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import jax
from jax.extend import core

from jaxrl_fast import tree

GPUS = ("cuda", "rocm")


def on_gpu(gpu: Callable, other: Callable, *args: Any) -> Any:
    """Return gpu(*args) in programs for a GPU and other(*args) in programs for a CPU or a TPU.

    Both are traced, one is compiled. Their results have equal shapes and dtypes.
    """
    return jax.lax.platform_dependent(*args, **dict.fromkeys(GPUS, gpu), default=other)


def when(due: jax.Array, then: Callable, otherwise: Callable) -> Any:
    """Return then() if the scalar `due`, else otherwise(): a branch, on a GPU a selection.

    On a GPU a branch outside of a CUDA graph makes the host wait for `due`. Both sides must be
    cheap and without faults: a GPU computes both.
    """
    select = lambda: tree.where(due, then(), otherwise())
    return on_gpu(select, lambda: jax.lax.cond(due, then, otherwise))


def scan(step: Callable, carry: Any, xs: Any, reverse: bool = False, most: int = 8) -> tuple[Any, Any]:
    """Return `jax.lax.scan` of `step`, on a GPU with up to `most` steps in a row.

    Each turn of a GPU's loop costs launches: its counter, slices of `xs`, a write of each output,
    and lost fusion with the next step. On a CPU these are instructions, and a longer body only
    compiles longer.
    """
    step = jax.jit(step, inline=True)  # traced once for both
    first = jax.tree.map(lambda x: x[0], xs)
    length = jax.tree.leaves(xs)[0].shape[0]
    unroll = steps_in_a_row(length, operations(step.trace(carry, first).jaxpr), most)
    loop = lambda carry, xs: jax.lax.scan(step, carry, xs, reverse=reverse)
    if unroll == 1:
        return loop(carry, xs)
    return on_gpu(lambda carry, xs: jax.lax.scan(step, carry, xs, reverse=reverse, unroll=unroll), loop, carry, xs)


LARGEST_BODY = 4096  # operations in a GPU's loop body: a second or two of compilation


def steps_in_a_row(length: int, size: int, most: int) -> int:
    """Return the steps in a GPU's loop body for `size` operations a step: a divisor of `length`."""
    fitting = max(1, min(most, LARGEST_BODY // max(size, 1)))
    return max(n for n in range(1, fitting + 1) if length % n == 0)


def operations(jaxpr: Any) -> int:
    """Return the number of operations in a JAXPR; a loop's body counts once."""
    inner = lambda eqn: [x for x in jax.tree.leaves(eqn.params, is_leaf=_is_jaxpr) if _is_jaxpr(x)]
    return sum(sum(map(operations, found)) if (found := inner(eqn)) else 1 for eqn in getattr(jaxpr, "jaxpr", jaxpr).eqns)


def _is_jaxpr(x: Any) -> bool:
    return isinstance(x, (core.Jaxpr, core.ClosedJaxpr))
