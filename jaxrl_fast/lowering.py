"""Choices that depend on the platform that a program is lowered for, and what a JAXPR holds on a platform.

A GPU pays for launches and for each look of the host at a result: loops of small steps are unrolled there, and no trip
count depends on data. A CPU pays for operations. The platform is that of the lowering, not the default backend: a program
lowered for CUDA on a machine without a GPU is the one that a GPU runs, under `vmap` too.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import jax

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
