"""The algorithms' optimizers: global-norm clipping, then Adam, RMSProp or any of optax's.

They are built inside methods from traced settings, so rate, epsilon and clip norm can be swept; the
state is optax's.
"""

from __future__ import annotations

import itertools
from collections.abc import Callable
from typing import Any, NamedTuple

import jax
import jax.numpy as jnp
import optax

from jaxrl_fast import tree
from jaxrl_fast.errors import ConfigError
from jaxrl_fast.ops import lowering
from jaxrl_fast.ops.precision import products
from jaxrl_fast.ops.scopes import OPTIMIZER, scope


class Optimizer(NamedTuple):
    """A descent step. The learning rate is an argument of the step, so it can be traced."""

    init: Callable[..., Any]  # (params, first rate) -> state; ours need no rate
    step: Callable[..., tuple[Any, Any]]  # (rate, params, grads, state) -> (params, state)


class View(NamedTuple):
    """How an optimizer sees a tree of parameters or gradients, and the way back."""

    to: Callable[[Any], Any]
    back: Callable[[Any, Any], Any]  # (seen, a tree like the original) -> the original's form


def adam(max_grad_norm: Any = None, epsilon: Any = 1e-8, b1: Any = 0.9) -> Optimizer:
    """Return Adam (Kingma & Ba 2015) after clipping by global norm (None: no clipping)."""
    return _packed(max_grad_norm, optax.scale_by_adam(b1=b1, eps=epsilon))


def radam(max_grad_norm: Any = None, epsilon: Any = 1e-8) -> Optimizer:
    """Return rectified Adam (Liu et al. 2020), which needs no warm-up; clipping as `adam`."""
    return _packed(max_grad_norm, optax.scale_by_radam(eps=epsilon))


def rmsprop(max_grad_norm: Any = None, epsilon: Any = 1e-5, decay: Any = 0.99) -> Optimizer:
    """Return RMSProp, g / sqrt(v + epsilon) (Tieleman & Hinton 2012); clipping as `adam`.

    TensorFlow's form: epsilon within the root, v starts at 1. No momentum, not centred.
    """
    return _packed(max_grad_norm, optax.scale_by_rms(decay, epsilon, initial_scale=1.0))


def _clip(max_grad_norm: Any) -> list[optax.GradientTransformation]:
    return [] if max_grad_norm is None else [optax.clip_by_global_norm(max_grad_norm)]


def _packed(max_grad_norm: Any, direction: optax.GradientTransformation) -> Optimizer:
    """Return steps of rate times `direction` (ascent), small leaves in one vector."""
    tx = optax.chain(*_clip(max_grad_norm), direction)

    def step(rate: Any, params: Any, grads: Any, state: Any) -> tuple[Any, Any]:
        packed = pack(grads)
        moved = lambda p, d: p - (rate * d).astype(p.dtype)
        clips = max_grad_norm is not None and len(packed) > 1
        one_vector = clips and sum(x.size for x in packed) <= VECTOR
        if one_vector:  # `tx` in two steps: its state is (the clip's, the direction's)
            empty, moments = state
            clip = lambda grads: _clip(max_grad_norm)[0].update(grads, empty)[0]
            clipped = lowering.on_gpu(_join_vectors(clip), clip, packed)
            way, moments = direction.update(clipped, moments)
            state = empty, moments
        else:
            way, state = tx.update(packed, state)
        apart = lambda params, way: jax.tree.map(moved, params, unpack(way, grads))
        alike = len({x.dtype for x in jax.tree.leaves(params)}) == 1
        if not (one_vector and alike and lowering.reaches_a_gpu()):
            return apart(params, way), state
        # a kernel that writes a packed carry has a branch for each of its parts
        together = lambda params, way: unpack(list(map(moved, _vectors(params), way)), grads)
        return lowering.on_gpu(together, apart, params, way), state

    return Optimizer(lambda params, rate=None: tx.init(pack(params)), step)


def _join_vectors(clip: Callable) -> Callable:
    """Return `clip`(vectors) on one vector: one norm instead of several."""

    def at_once(grads: list[jax.Array]) -> list[jax.Array]:
        ends = [*itertools.accumulate(x.size for x in grads)][:-1]
        return jnp.split(*clip([jnp.concatenate(grads)]), ends)

    return at_once


def stock(make: Callable[[Any], Any], max_grad_norm: Any = None,
          view: View | None = None) -> Optimizer:
    """Return an optimizer of optax's kind after clipping by global norm.

    make: of the learning rate (`optax.adamw`).  view: how it sees parameters; None: as they are.
    """
    view = view or View(lambda x: x, lambda seen, like: seen)

    def chain(rate: Any) -> optax.GradientTransformation:
        tx = make(rate)
        return optax.chain(*_clip(max_grad_norm), optax.GradientTransformation(tx.init, tx.update))

    def init(params: Any, rate: Any) -> Any:
        # a copy: some states hold the parameters, which are donated beside them
        return tree.strong(tree.copy(chain(rate).init(view.to(params))))

    def step(rate: Any, params: Any, grads: Any, state: Any) -> tuple[Any, Any]:
        with products():
            updates, state = chain(rate).update(view.to(grads), state, view.to(params))
        updates = view.back(updates, params)
        return jax.tree.map(lambda p, u: p + u.astype(p.dtype), params, updates), tree.strong(state)

    return Optimizer(init, step)


def split(stack: Any, count: int) -> list[Any]:
    """Split leaves [count, ...] into `count` trees."""
    return [tree.take(stack, i) for i in range(count)]


def join(trees: list[Any]) -> Any:
    """Join trees: the inverse of `split`."""
    return jax.tree.map(lambda *x: jnp.stack(x), *trees)


SMALL = 4096  # elements; concatenating a larger leaf costs more than a kernel of its own
# elements of one member that a GPU moves in the time of a launch: one vector within a step
VECTOR = 1 << 18


def pack(params: Any) -> list[jax.Array]:
    """Return the large leaves as vectors, then one vector of all others."""
    # else XLA computes each element of the concatenation by itself
    return _vectors(params, jax.lax.optimization_barrier)


def _vectors(params: Any, fence: Callable = lambda small: small) -> list[jax.Array]:
    """Return large leaves as vectors [n], then one of all others; `fence` wraps those first."""
    flat = [x.reshape(-1) for x in jax.tree.leaves(params)]
    small = fence([x for x in flat if x.size <= SMALL])
    return [x for x in flat if x.size > SMALL] + ([jnp.concatenate(small)] if small else [])


def unpack(packed: list[jax.Array], like: Any) -> Any:
    """Unpack into the shapes of `like`: the inverse of `pack`."""
    leaves, structure = jax.tree.flatten(like)
    large, at, parts = iter(packed), 0, []
    for x in leaves:
        if x.size > SMALL:
            parts.append(next(large).reshape(x.shape))
        else:
            parts.append(packed[-1][at : at + x.size].reshape(x.shape))
            at += x.size
    return structure.unflatten(parts)


PACKED = View(pack, unpack)  # for elementwise optimizers


def check_optimizer(name: str, optimizer: Any) -> Optimizer:
    """Raise ConfigError for anything but an `Optimizer`: optax's own updates have another sign."""
    if not isinstance(optimizer, Optimizer):
        what = f"the optimizer {type(optimizer).__name__}"
        raise ConfigError(name, what,
                          "an optimizer of jaxrl_fast.ops.optim: adam(), radam(), rmsprop(), or "
                          "stock(optax.adamw) for optax's")
    return optimizer


def apply(optimizer: Optimizer, learning_rate: Any, params: Any,
          grads: Any, opt_state: Any) -> tuple[Any, Any]:
    """Take one descent step -> (params, opt_state)."""
    with scope(OPTIMIZER):
        return check_optimizer("optimizer", optimizer).step(learning_rate, params, grads, opt_state)


def polyak(target: Any, params: Any, tau: Any) -> Any:
    """Return (1 - tau) target + tau params; tau = 1 copies bit for bit."""
    with scope(OPTIMIZER):
        return jax.tree.map(lambda t, p: (1 - tau) * t + tau * p, target, params)


def move_target(due: jax.Array, target: Any, params: Any, tau: Any) -> Any:
    """Return `polyak` where the scalar `due`, else `target`."""
    apart = lambda target, params: lowering.when(due, lambda: polyak(target, params, tau),
                                                 lambda: target)
    if len({x.dtype for x in jax.tree.leaves((target, params))}) > 1:
        return apart(target, params)
    # a kernel that writes a packed carry has a branch for each of its parts
    move = lambda t, p: jnp.where(due, (1 - tau) * t + tau * p, t).astype(t.dtype)

    def together(target, params):
        with scope(OPTIMIZER):
            return unpack(list(map(move, _vectors(target), _vectors(params))), target)

    return lowering.on_gpu(together, apart, target, params)


def global_norm(tree: Any) -> jax.Array:
    return jnp.sqrt(sum(jnp.sum(jnp.square(x)) for x in jax.tree.leaves(tree)))
