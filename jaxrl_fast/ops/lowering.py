"""Choices that depend on the platform that a program is lowered for, and what a JAXPR holds on a platform.

A GPU pays for launches and for each look of the host at a result: loops of small steps are unrolled there, and few
branches and trip counts depend on data (docs/decisions/gpu-programs.md). A CPU pays for operations. The platform is that
of the lowering, not the default backend: a program lowered for CUDA on a machine without a GPU is the one that a GPU runs,
under `vmap` too.
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
    """Return then() where the scalar `due` is True, otherwise() elsewhere: a branch, but in programs for a GPU a selection.

    On a GPU a branch outside of a CUDA graph makes the host wait for `due`. Both sides must be cheap, and without faults:
    a GPU computes both.
    """
    select = lambda: tree.where(due, then(), otherwise())
    return on_gpu(select, lambda: jax.lax.cond(due, then, otherwise))


def scan(step: Callable, carry: Any, xs: Any, reverse: bool = False, most: int = 8) -> tuple[Any, Any]:
    """Return `jax.lax.scan(step, carry, xs, reverse=reverse)`; in programs for a GPU with up to `most` steps in a row.

    There each turn of a loop costs launches of its own: its counter, slices of `xs`, a write of each output, and what could be
    fused with the next step. On a CPU they are instructions, and a longer body only takes longer to compile.
    """
    step = jax.jit(step, inline=True)  # traced once for both
    first = jax.tree.map(lambda x: x[0], xs)
    length = jax.tree.leaves(xs)[0].shape[0]
    unroll = steps_in_a_row(length, operations(step.trace(carry, first).jaxpr), most)
    loop = lambda carry, xs: jax.lax.scan(step, carry, xs, reverse=reverse)
    if unroll == 1:
        return loop(carry, xs)
    return on_gpu(lambda carry, xs: jax.lax.scan(step, carry, xs, reverse=reverse, unroll=unroll), loop, carry, xs)


LARGEST_BODY = 4096  # operations of a loop's body on a GPU: a second or two of compilation


def steps_in_a_row(length: int, size: int, most: int) -> int:
    """Return how many steps of `size` operations a GPU's loop of `length` steps has in its body: a divisor of `length`."""
    fitting = max(1, min(most, LARGEST_BODY // max(size, 1)))
    return max(n for n in range(1, fitting + 1) if length % n == 0)


def operations(jaxpr: Any) -> int:
    """Return how many operations a JAXPR writes down; those of a loop's body count once."""
    inner = lambda eqn: [x for x in jax.tree.leaves(eqn.params, is_leaf=_is_jaxpr) if _is_jaxpr(x)]
    return sum(sum(map(operations, found)) if (found := inner(eqn)) else 1 for eqn in getattr(jaxpr, "jaxpr", jaxpr).eqns)


def _is_jaxpr(x: Any) -> bool:
    return isinstance(x, (core.Jaxpr, core.ClosedJaxpr))
