"""Layer norm, in the form of each platform."""

from __future__ import annotations

import flax.linen as nn
import jax
import jax.numpy as jnp

from jaxrl_fast.ops.lowering import on_gpu, reaches_a_gpu


class LayerNorm(nn.Module):
    """Layer norm of the last axis (Ba et al. 2016), float32; on a CPU bit for bit flax's."""

    @nn.compact
    def __call__(self, x: jax.Array) -> jax.Array:
        scale = self.param("scale", nn.initializers.ones, x.shape[-1:], jnp.float32)
        bias = self.param("bias", nn.initializers.zeros, x.shape[-1:], jnp.float32)
        return on_gpu(normalize_centered, normalize_fast, x, scale, bias)


NORM_EPSILON = 1e-6


def normalize_fast(x: jax.Array, scale: jax.Array, bias: jax.Array) -> jax.Array:
    """Normalise with Var x = E x^2 - (E x)^2, so that a CPU reads x once for both."""
    mean, square = (y.mean(axis=-1, keepdims=True) for y in (x, jnp.square(x)))
    variance = jnp.maximum(0.0, square - jnp.square(mean))
    return (x - mean) * (jax.lax.rsqrt(variance + NORM_EPSILON) * scale) + bias


def normalize_centered(x: jax.Array, scale: jax.Array, bias: jax.Array) -> jax.Array:
    """Normalise with Var x = E (x - E x)^2, which XLA makes one kernel of, as of a softmax."""
    x = x - x.mean(axis=-1, keepdims=True)
    variance = jnp.square(x).mean(axis=-1, keepdims=True)
    x = x * jax.lax.rsqrt(variance + NORM_EPSILON)
    return _affine(x, scale, bias) if reaches_a_gpu() else x * scale + bias


@jax.custom_vjp
def _affine(x: jax.Array, scale: jax.Array, bias: jax.Array) -> jax.Array:
    """Return x * scale + bias; the gradients of scale and bias are one reduction over rows.

    Without a forward-mode derivative, so only where a GPU may gain by it.
    """
    return x * scale + bias


def _affine_gradients(saved: tuple, dy: jax.Array) -> tuple[jax.Array, jax.Array, jax.Array]:
    x, scale = saved
    joined = lambda a, b: (a[0] + b[0], a[1] + b[1])
    zeros = (jnp.zeros((), dy.dtype),) * 2
    return dy * scale, *jax.lax.reduce((dy * x, dy), zeros, joined, range(x.ndim - 1))


_affine.defvjp(lambda x, scale, bias: (_affine(x, scale, bias), (x, scale)), _affine_gradients)
