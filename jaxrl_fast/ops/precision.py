"""The precision of matrix products and convolutions.

Left alone, an NVIDIA GPU multiplies float32 arrays in TF32 (10 bits of mantissa) and a TPU in
bfloat16 (7 bits). Here torsos multiply as the setting `precision` says (`networks.forward`);
environments, heads and optimizers multiply in float32. A CPU multiplies in float32 throughout.
"""

from __future__ import annotations

from collections.abc import Callable
from contextlib import AbstractContextManager
from typing import Any

import jax

from jaxrl_fast.ops.lowering import on_gpu

_OF_JAX = {"highest": "highest", "tf32": "tensorfloat32", "bf16": "BF16_BF16_F32"}
# TF32 to cuBLAS and cuDNN is float32 to XLA's own kernels, which know TF32 as the default alone.
_ON_A_GPU = {"tf32": "default"}
PRECISIONS = tuple(_OF_JAX)
_ROUNDED = {
    "gpu": {"tf32": "TF32", "bf16": "bfloat16"},
    "tpu": {"tf32": "three passes of bfloat16", "bf16": "bfloat16"},
}


def products(precision: str = "highest") -> AbstractContextManager:
    """Return a context in which products are traced with this precision, gradients included."""
    return jax.default_matmul_precision(_OF_JAX[precision])


def with_precision(f: Callable[[], Any], precision: str) -> Any:
    """Return f(), traced with products of this precision, gradients included."""

    def under(name: str) -> Any:
        with jax.default_matmul_precision(name):
            return f()

    gpu, other = _ON_A_GPU.get(precision), _OF_JAX[precision]
    return under(other) if gpu is None else on_gpu(lambda: under(gpu), lambda: under(other))


def rounds_operands() -> bool:
    """Return whether products are traced in bfloat16: XLA's convolutions take no such precision."""
    return jax.config.jax_default_matmul_precision == _OF_JAX["bf16"]


def multiplies_exactly() -> bool:
    """Return whether products are traced in float32 on every platform."""
    return jax.config.jax_default_matmul_precision == _OF_JAX["highest"]


def in_force(precision: str, platform: str) -> str:
    """Return how a program multiplies on a platform of JAX's, as a phrase."""
    exact = "float32 (six passes of bfloat16)" if platform == "tpu" else "float32"
    rounded = _ROUNDED.get(platform, {}).get(precision)
    return (
        f"torsos multiply in {rounded}, all else in {exact}" if rounded else f"products in {exact}"
    )
