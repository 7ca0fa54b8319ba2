"""A GPU's loop over steps of equal code, which XLA compiles once.

Each step of a turn reads one array and writes one array: the state, the step's number and the row.
The number comes from memory, so the code of a step does not say which one it is. Without it the
steps of a turn are kernels that differ by an index, and the kernel that stores their rows computes
all of them again (docs/decisions/gpu-programs.md).
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import jax
import jax.numpy as jnp

from jaxrl_fast import tree
from jaxrl_fast.ops import lowering

MOST = 2  # steps in a row: more cost fewer launches and longer compilation


def scan(step: Callable, carry: Any, xs: Any, most: int, apart: Any = True) -> tuple[Any, Any]:
    """Return `lowering.scan` of `step`, on a GPU by steps of equal code where all is small.

    Args:
      carry, xs: trees of arrays [B, ...] and [T, ...]; `step` returns rows [B, ...]. The arrays of
          B must lie on one device.
      most, apart: for `lowering.scan`, where an array is too large to pack.
    """
    plain = lambda carry, xs: lowering.scan(step, carry, xs, most=most, apart=apart)
    if lowering.platform() not in (None, *lowering.GPUS):
        return plain(carry, xs)
    step = jax.jit(step, inline=True)  # traced once for both
    jaxpr = step.trace(carry, tree.take(xs, 0)).jaxpr
    like, structure = jax.tree.flatten(jax.eval_shape(step, carry, tree.take(xs, 0)))
    origins, state = _origins(jaxpr.jaxpr), len(jax.tree.leaves(carry))
    places = {origin: i for i, origin in reversed([*enumerate(origins)])}  # equal outputs once
    # but arrays of the state that a step sets alike may start apart
    at = [i if i < state else places[origin] for i, origin in enumerate(origins)]
    once = sorted(set(at))
    batch = jax.tree.leaves(carry)[0].shape[:1]
    number = jnp.zeros(batch, jnp.int32)
    some = [like[i] for i in once], number
    pack, unpack = lowering.packing(some, lead=1)
    if jax.eval_shape(pack, some)[1]:  # something stays apart
        return plain(carry, xs)

    def packed(outputs, number):
        leaves = jax.tree.leaves(outputs)
        return pack(([leaves[i] for i in once], number))

    def restore(array):
        some, number = unpack((array, {}))
        found = dict(zip(once, some, strict=True))
        return structure.unflatten([found[i] for i in at]), number

    def equal(carry, xs):
        def turn(array, _):
            (carry, _), number = restore(array)
            here = _shared(number)
            of_step = lambda x: jax.lax.dynamic_index_in_dim(x, here, 0, keepdims=False)
            array = packed(step(carry, jax.tree.map(of_step, xs)), number + 1)[0]
            array = jax.lax.optimization_barrier(array)
            return array, array

        length = len(jax.tree.leaves(xs)[0])
        unroll = lowering.steps_in_a_row(length, lowering.operations(jaxpr), MOST)
        rows = jax.tree.map(lambda x: jnp.zeros(x.shape, x.dtype), structure.unflatten(like)[1])
        start, _ = packed((carry, rows), number)
        end, rows = jax.lax.scan(turn, start, None, length, unroll=unroll)
        return restore(end)[0][0], restore(rows)[0][1]

    return lowering.on_gpu(equal, plain, carry, xs)


@jax.custom_batching.custom_vmap
def _shared(number: jax.Array) -> jax.Array:
    """Return the number that all entries [B] are: unbatched under `vmap`, so slices stay slices."""
    return number[0]


@_shared.def_vmap
def _(size: int, batched: list[bool], number: jax.Array) -> tuple[jax.Array, bool]:
    return _shared(number[0] if batched[0] else number), False


def _origins(jaxpr: Any) -> list[Any]:
    """Return an origin of each output of a JAXPR: equal outputs have equal origins."""
    names, made = {}, {}
    text = lambda x: (str(x.aval), str(x.val))  # of a literal, a scalar
    name = lambda x: text(x) if hasattr(x, "val") else names.get(id(x), id(x))
    for eqn in jaxpr.eqns:
        params = tuple((key, id(value) if _unhashable(value) else value)
                       for key, value in sorted(eqn.params.items()))
        key = eqn.primitive, tuple(map(name, eqn.invars)), params
        for i, out in enumerate(eqn.outvars):
            names[id(out)] = id(out) if eqn.effects else made.setdefault((key, i), id(out))
    return [name(out) for out in jaxpr.outvars]


def _unhashable(value: Any) -> bool:
    try:
        hash(value)
    except TypeError:
        return True
    return False
