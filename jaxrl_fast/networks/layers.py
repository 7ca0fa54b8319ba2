"""Layers for small batches on a CPU, and the embedding of observations."""

from __future__ import annotations

import functools
import math
from typing import Any

import flax.linen as nn
import jax
import jax.numpy as jnp
import numpy as np
from jax.custom_derivatives import SymbolicZero

from jaxrl_fast import random
from jaxrl_fast.networks.orthogonal import orthogonal
from jaxrl_fast.ops.lowering import on_cpu, on_gpu
from jaxrl_fast.ops.precision import multiplies_exactly, rounds_operands
from jaxrl_fast.ops.scopes import PREPROCESS, scope
from jaxrl_fast.ops.stacking import along
from jaxrl_fast.spaces import COUNTABLE, Box, Dict, Discrete, MultiDiscrete, Space


def random_param(module: nn.Module, name: str, shape: tuple[int, ...],
                 make: Any, draw: Any = random.normal) -> jax.Array:
    """Return the parameter `make(numbers)`, numbers [*shape] from the network's one draw.

    In a user's network, which has no such draw (`initialize`), from flax's key.
    """
    if module.has_variable("params", name):  # `module.param` would trace the initializer again
        return module.get_variable("params", name)
    if module.has_variable("rows", name):  # made for all layers together
        rows = module.get_variable("rows", name)
        return module.param(name, lambda _: make.of_rows(rows, shape))
    if module.has_variable("drawn", name):
        numbers = module.get_variable("drawn", name)
        return module.param(name, lambda _: make(numbers))
    return module.param(name, lambda key: make(draw(key, shape)))


class Dense(nn.Module):
    """y = x W + b, float32; orthogonal W of gain `scale`, b = 0; `dtype` is the product's.

    drawn: an action is drawn from the outputs (see `affine`).
    """

    features: int
    scale: float = math.sqrt(2)
    drawn: bool = False

    @nn.compact
    def __call__(self, x: jax.Array) -> jax.Array:
        kernel = random_param(self, "kernel", (x.shape[-1], self.features), orthogonal(self.scale))
        bias = self.param("bias", nn.initializers.zeros, (self.features,), jnp.float32)
        return affine(x, kernel, bias) if self.drawn else product(x, kernel) + bias


FEW_INPUTS, FEW_OUTPUTS = 8, 2  # rows and columns of a kernel that a GPU multiplies by terms
# of a batch: XLA fuses a product of so few with its consumers, not with slices of its inputs
FEW_ROWS = 8


def affine(x: jax.Array, kernel: jax.Array, bias: jax.Array) -> jax.Array:
    """Return product(x, kernel) + bias [F]; a GPU computes two outputs in one kernel.

    For draws in a rollout alone: in updates and for a mode XLA joins more reductions by itself.
    """
    plain = lambda x, kernel, bias: product(x, kernel) + bias
    sums = _has_terms(x, kernel) and kernel.shape[0] > FEW_INPUTS and kernel.shape[1] > 1
    return on_gpu(_biased_sums if sums else plain, plain, x, kernel, bias)


def product(x: jax.Array, kernel: jax.Array) -> jax.Array:
    """Return x [..., K] @ kernel [K, F].

    A GPU multiplies few inputs or outputs by terms: XLA fuses them with the bias, the activation
    and the parameters' slices, where a product is a launch of its own.
    """
    return on_gpu(_by_terms if _has_terms(x, kernel) else jnp.matmul, jnp.matmul, x, kernel)


def _has_terms(x: jax.Array, kernel: jax.Array) -> bool:
    """Return whether a GPU multiplies by terms."""
    inputs, outputs = kernel.shape
    few = x.size > FEW_ROWS * inputs if outputs <= FEW_OUTPUTS else inputs <= FEW_INPUTS
    return few and multiplies_exactly()


@jax.custom_jvp
def _by_terms(x: jax.Array, kernel: jax.Array) -> jax.Array:
    inputs, outputs = kernel.shape
    if inputs <= FEW_INPUTS:
        return sum(x[..., i, None] * kernel[i] for i in range(inputs))
    return jnp.stack([jnp.sum(x * kernel[:, i], axis=-1) for i in range(outputs)], axis=-1)


@functools.partial(_by_terms.defjvp, symbolic_zeros=True)
def _(primals, tangents):
    (x, kernel), (dx, dkernel) = primals, tangents
    parts = [] if isinstance(dx, SymbolicZero) else [_by_terms(dx, kernel)]
    if not isinstance(dkernel, SymbolicZero):
        # Transposed it sums over rows: a product is better. JAX may trace it outside the context.
        parts.append(jnp.matmul(x, dkernel, precision=jax.lax.Precision.HIGHEST))
    return _by_terms(x, kernel), sum(parts)


@jax.custom_jvp
def _biased_sums(x: jax.Array, kernel: jax.Array, bias: jax.Array) -> jax.Array:
    """Return x @ kernel + bias as one reduction, with no operation behind the stack of outputs.

    With a reduction an output XLA may write x before the second one, and what reads an output by
    itself reads the stack if a bias lies between. With gradients it joins them all.
    """
    terms = [x * column for column in kernel.T]
    zeros = [jnp.zeros((), x.dtype)] * len(terms)
    added = lambda one, other: [a + b for a, b in zip(one, other, strict=True)]
    sums = jax.lax.reduce(terms, zeros, added, [x.ndim - 1])
    return jnp.stack([a + b for a, b in zip(sums, bias, strict=True)], axis=-1)


_biased_sums.defjvp(lambda primals, tangents: jax.jvp(
    lambda x, kernel, bias: _by_terms(x, kernel) + bias, primals, tangents))


class Conv(nn.Module):
    """A convolution of [n, H, W, C] without padding; orthogonal kernel of gain sqrt(2)."""

    features: int
    size: int
    stride: int = 1

    @nn.compact
    def __call__(self, x: jax.Array) -> jax.Array:
        shape = (self.size, self.size, x.shape[-1], self.features)
        kernel = random_param(self, "kernel", shape, orthogonal(math.sqrt(2)))
        bias = self.param("bias", nn.initializers.zeros, (self.features,), jnp.float32)
        return convolve(x, kernel, self.stride) + bias


def convolve(x: jax.Array, kernel: jax.Array, stride: int) -> jax.Array:
    """Convolve x [n, H, W, C] with kernel [k, k, C, F] -> [n, (H - k) // stride + 1, ..., F].

    On a CPU it is a matrix product (docs/decisions/convolutions.md).
    """
    return on_cpu(lambda x, w: convolve_products(x, w, stride),
                  lambda x, w: convolve_xla(x, w, stride), x, kernel)


def convolve_xla(x: jax.Array, kernel: jax.Array, stride: int) -> jax.Array:
    layout = ("NHWC", "HWIO", "NHWC")
    rounded = (a.astype(jnp.bfloat16) if rounds_operands() else a for a in (x, kernel))
    y = jax.lax.conv_general_dilated(*rounded, (stride, stride), "VALID", dimension_numbers=layout)
    return y.astype(x.dtype)


def convolve_products(x: jax.Array, kernel: jax.Array, stride: int) -> jax.Array:
    k, _, channels, features = kernel.shape
    high, wide = ((n - k) // stride + 1 for n in x.shape[1:3])
    if stride > 1 and k % stride == 0:  # stride x stride blocks as pixels: fewer and longer slices
        k = k // stride
        x = x[:, : (high + k - 1) * stride, : (wide + k - 1) * stride]
        x = x.reshape(len(x), high + k - 1, stride, wide + k - 1, stride, channels).swapaxes(2, 3)
        x = x.reshape(*x.shape[:3], -1)
        kernel = kernel.reshape(k, stride, k, stride, channels, features).swapaxes(1, 2)
        stride = 1
    reach = lambda i, n: slice(i, i + (n - 1) * stride + 1, stride)
    if stride == 1 and features < x.shape[-1]:  # moves less than patches
        kernel = kernel.reshape(k, k, -1, features)
        return sum(_product(x, kernel[i, j])[:, reach(i, high), reach(j, wide)]
                   for i in range(k) for j in range(k))
    patches = [x[:, reach(i, high), reach(j, wide)] for i in range(k) for j in range(k)]
    return _product(jnp.concatenate(patches, axis=-1), kernel.reshape(-1, features))


def _product(x: jax.Array, kernel: jax.Array) -> jax.Array:
    """Return x [n, H, W, K] @ kernel [K, F]; the kernel's gradient is (dy.T x).T, not x.T dy."""
    y = x.reshape(-1, x.shape[-1]) @ jax.lax.optimization_barrier(kernel.T).T
    return y.reshape(*x.shape[:-1], kernel.shape[-1])


class NoisyDense(nn.Module):
    """y = x (W + S e) + b + s e', e factorised Gaussian noise (Fortunato et al. 2018, eq. 9-11).

    The noise is the variable "epsilon" of the collection "noise" (`noise.draw_noise`), one for all
    rows of a call; without it, the mean weights. The noisy product is f(e_out) * ((x * f(e_in)) S),
    so `vmap` over noises makes no weight matrix for each.
    """

    features: int
    scale: float = 0.5  # sigma_0

    @nn.compact
    def __call__(self, x: jax.Array) -> jax.Array:
        inputs = x.shape[-1]
        bound = inputs**-0.5
        spread = lambda uniform: bound * (2.0 * uniform - 1.0)
        constant = nn.initializers.constant(self.scale * bound)
        kernel = random_param(self, "kernel", (inputs, self.features), spread, random.uniform)
        bias = random_param(self, "bias", (self.features,), spread, random.uniform)
        kernel_sigma = self.param("kernel_sigma", constant, (inputs, self.features), jnp.float32)
        bias_sigma = self.param("bias_sigma", constant, (self.features,), jnp.float32)
        y = x @ kernel + bias
        if not self.has_variable("noise", "epsilon"):
            return y
        into, out = jnp.split(self.get_variable("noise", "epsilon"), [inputs])
        return y + out * ((x * into) @ kernel_sigma + bias_sigma)


def embed(obs: Any, space: Space, rank: int = 1) -> jax.Array:
    """Embed an observation as float32: discrete one-hot, integer boxes scaled by bounds.

    rank 1 flattens everything to [..., F], dict entries by name; rank 3 keeps an image [..., H, W,
    C]. `action_mask` is no feature. Leading batch axes are arbitrary, and stacked frames may widen
    the last axis.
    """
    with scope(PREPROCESS):
        return _embed(obs, space, rank)


def _embed(obs: Any, space: Space, rank: int = 1) -> jax.Array:
    if isinstance(space, Dict):
        parts = [_embed(obs[name], child) for name, child in space.items if name != "action_mask"]
        return jnp.concatenate(parts, axis=-1)
    if isinstance(space, Discrete):
        return jax.nn.one_hot(obs, space.n)
    if isinstance(space, MultiDiscrete):
        return jnp.concatenate([jax.nn.one_hot(obs[..., i], n) for i, n in enumerate(space.nvec)],
                               axis=-1)
    assert isinstance(space, Box)
    x = scale(obs, space)
    if rank == 3:
        return x
    batch = x.shape[: x.ndim - len(space.shape)]
    return x.reshape((*batch, -1))


FEW = 15  # ranges up to this are scaled by a fraction alone


def scale(obs: jax.Array, space: Box) -> jax.Array:
    """Return a box's values in float32, each integer scaled by the bounds of its entry.

    The bytes of pictures and integers of a short range become the fraction of the range, in [0, 1].
    Those of a longer range become d / range + sign(d) log2(1 + |d|) / 8, with d the distance from
    zero or the bound next to it. Entries without bounds (`Box.unscaled`) are unchanged.
    """
    asis = space.unscaled
    if asis.all() or space.dtype == jnp.bool_:
        return obs.astype(jnp.float32)
    low, high = (np.where(asis, 0.0, b) for b in space.bounds(np.float64))
    span = np.maximum(high - low, 1.0)
    short = ~asis & ((span <= FEW) | _picture(space))
    zero = np.where(short, low, np.clip(0.0, low, high))
    asis, short, zero, span = (along(b, obs) for b in (asis, short, zero, span))
    d = _distance(obs, zero)
    fraction = d / span.astype(np.float32)
    if short.all():
        return fraction
    far = fraction + jnp.sign(d) * jnp.log2(1.0 + jnp.abs(d)) / 8.0
    return jnp.where(asis, d, jnp.where(short, fraction, far))


def _picture(space: Box) -> bool:
    return space.dtype == jnp.uint8 and len(space.shape) > 1


def has_bytes_in_vectors(space: Space) -> bool:
    """Return whether `scale` adds a logarithm to bytes: of a longer range, outside pictures."""
    if isinstance(space, Dict):
        return any(has_bytes_in_vectors(child) for name, child in space.items
                   if name != "action_mask")
    if not isinstance(space, Box) or space.dtype != jnp.uint8 or _picture(space):
        return False
    low, high = space.bounds(np.float64)
    return bool(np.any(high - low > FEW))


def _distance(obs: jax.Array, zero: np.ndarray) -> jax.Array:
    """Return obs - zero in float32; large integers are subtracted before the conversion."""
    if not zero.any():
        return obs.astype(jnp.float32)
    if np.abs(zero).max() < COUNTABLE or not jnp.issubdtype(obs.dtype, jnp.integer):
        return obs.astype(jnp.float32) - zero.astype(np.float32)
    return (obs - zero.astype(obs.dtype)).astype(jnp.float32)
