"""The optimizers: global-norm clipping, then Adam or RMSProp; the learning rate is applied at the update.

Built inside methods from traced settings, so learning rate, epsilon and clip norm can be swept; state is only optax's.
`flatten` turns the many small kernels of a small network into one.
"""

from __future__ import annotations

from typing import Any

import jax
import jax.numpy as jnp
import optax


def adam(max_grad_norm: Any = None, epsilon: Any = 1e-8, b1: Any = 0.9) -> optax.GradientTransformation:
    """Clip by global norm (None: no clipping), then Adam's direction (Kingma & Ba 2015), without the learning rate."""
    steps = [] if max_grad_norm is None else [optax.clip_by_global_norm(max_grad_norm)]
    return flatten(optax.chain(*steps, optax.scale_by_adam(b1=b1, eps=epsilon)))


def radam(max_grad_norm: Any = None, epsilon: Any = 1e-8) -> optax.GradientTransformation:
    """As `adam`, rectified (Liu et al. 2020): the variance of its first steps is held down, no warm-up is needed."""
    steps = [] if max_grad_norm is None else [optax.clip_by_global_norm(max_grad_norm)]
    return flatten(optax.chain(*steps, optax.scale_by_radam(eps=epsilon)))


def rmsprop(max_grad_norm: Any = None, epsilon: Any = 1e-5, decay: Any = 0.99) -> optax.GradientTransformation:
    """As `adam`, with RMSProp's direction g / sqrt(v + epsilon) (Tieleman & Hinton 2012; no momentum, not centred).

    As TensorFlow has it, with which A3C's successors were tuned: epsilon within the root, and v starts at 1, so that
    the first hundred steps or so are small.
    """
    steps = [] if max_grad_norm is None else [optax.clip_by_global_norm(max_grad_norm)]
    return flatten(optax.chain(*steps, optax.scale_by_rms(decay, epsilon, initial_scale=1.0)))


SMALL = 4096  # elements; concatenating a larger leaf costs more than a kernel of its own


def flatten(tx: optax.GradientTransformation) -> optax.GradientTransformation:
    """`tx` with all small leaves in one vector and each large one as a vector of its own."""

    def update(grads: Any, state: Any, params: Any = None) -> tuple[Any, Any]:
        direction, state = tx.update(pack(grads), state)
        return unpack(direction, grads), state

    return optax.GradientTransformation(lambda params: tx.init(pack(params)), update)


def pack(tree: Any) -> list[jax.Array]:
    """The large leaves as vectors, then one vector of all others."""
    flat = [x.reshape(-1) for x in jax.tree.leaves(tree)]
    small = [x for x in flat if x.size <= SMALL]
    small = jax.lax.optimization_barrier(small)  # or XLA computes each element of the concatenation by itself
    return [x for x in flat if x.size > SMALL] + ([jnp.concatenate(small)] if small else [])


def unpack(packed: list[jax.Array], like: Any) -> Any:
    """The inverse of `pack`, with the shapes of `like`."""
    leaves, structure = jax.tree.flatten(like)
    large, at, parts = iter(packed), 0, []
    for x in leaves:
        if x.size > SMALL:
            parts.append(next(large).reshape(x.shape))
        else:
            parts.append(packed[-1][at : at + x.size].reshape(x.shape))
            at += x.size
    return structure.unflatten(parts)


def apply(tx: optax.GradientTransformation, learning_rate: Any, params: Any, grads: Any, opt_state: Any):
    """One descent step -> (params, opt_state)."""
    direction, opt_state = tx.update(grads, opt_state, params)
    return jax.tree.map(lambda p, d: p - (learning_rate * d).astype(p.dtype), params, direction), opt_state


def polyak(target: Any, params: Any, tau: Any) -> Any:
    """(1 - tau) target + tau params; tau = 1 copies, bit for bit."""
    return jax.tree.map(lambda t, p: (1 - tau) * t + tau * p, target, params)


def global_norm(tree: Any) -> jax.Array:
    return jnp.sqrt(sum(jnp.sum(jnp.square(x)) for x in jax.tree.leaves(tree)))
