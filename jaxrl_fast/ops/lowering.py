"""Choices by the platform that a program is traced for.

A GPU pays for launches and for each wait of the host: loops of small steps are unrolled there, and
few branches and trip counts depend on data (docs/decisions/gpu-programs.md). A CPU pays for
operations. The platform is the default device's, or a `known` one: `with known("cuda")` a process
without a GPU traces the program that a GPU runs. On another platform such a program gives the same
numbers to rounding, more slowly.
"""

from __future__ import annotations

import functools
import itertools
import math
from collections.abc import Callable, Sequence
from typing import Any

import jax
import jax.numpy as jnp

from jaxrl_fast import runtime, tree
from jaxrl_fast.ops import sums

GPUS = ("cuda", "rocm")
ALL = "all"
# `with known("cpu")`, "cuda", "rocm" or "tpu"; ALL: trace for each; None: the default device's
known = jax.make_user_context(None)


def platform_of(device: Any) -> str:
    """Return the platform that a device's programs are lowered for: a GPU's is "cuda" or "rocm"."""
    if device.platform != "gpu":
        return device.platform
    return "rocm" if "rocm" in device.client.platform_version.lower() else "cuda"


def platform() -> str | None:
    """Return the platform to trace for; None: every one."""
    if known.value is not None:
        return None if known.value == ALL else known.value
    chosen = jax.config.jax_default_device  # a device, the name of a platform, or None
    return platform_of(chosen if hasattr(chosen, "platform") else jax.devices(chosen)[0])


def on_gpu(gpu: Callable, other: Callable, *args: Any) -> Any:
    """Return gpu(*args) in programs for a GPU and other(*args) in programs for a CPU or a TPU.

    For `ALL` platforms both are traced. Their results have equal shapes and dtypes.
    """
    return by_platform(dict.fromkeys(GPUS, gpu), other, *args)


def on_cpu(cpu: Callable, other: Callable, *args: Any) -> Any:
    """Return cpu(*args) in programs for a CPU and other(*args) in others, see `on_gpu`."""
    return by_platform({"cpu": cpu}, other, *args)


SMALL_PRODUCT = 1 << 22  # multiplications up to which threads cost a CPU more than they gain


def divides_small(rows: int, params: Any) -> bool:
    """Return whether a CPU divides small products in vain: stacked params [n, ...], `rows` each."""
    largest = max(x.size // len(x) for x in jax.tree.leaves(params))
    return runtime.divides_batches() and rows * largest < SMALL_PRODUCT


def over_networks(f: Callable, params: Any, count: int, rows: int) -> Any:
    """Return f(params) of each of `count` networks, stacked along a new first axis.

    One batched product a layer; a CPU whose jaxlib divides it among threads gets small products
    apart.

    Args:
      params: a tree of arrays [count, ...].
      rows: of the batch that each network takes.
    """

    def apart(params: Any) -> Any:
        found = [f(tree.take(params, i)) for i in range(count)]
        return jax.tree.map(lambda *x: jnp.stack(x), *found)

    special = {"cpu": apart} if divides_small(rows, params) else {}
    return by_platform(special, jax.vmap(f), params)


def by_platform(special: dict[str, Callable], default: Callable, *args: Any) -> Any:
    """Return special[platform](*args), or default(*args) on other platforms."""
    here = platform()
    if here is not None or not special:
        return special.get(here, default)(*args)
    return jax.lax.platform_dependent(*args, **special, default=default)


def reaches_a_gpu() -> bool:
    """Return whether a GPU may run the traced program; for ALL: whether this process has a GPU."""
    return (platform() or platform_of(jax.devices()[0])) in GPUS


def when(due: jax.Array, then: Callable, otherwise: Callable) -> Any:
    """Return then() if the scalar `due`, else otherwise(): a branch, on a GPU a selection.

    On a GPU a branch outside of a CUDA graph makes the host wait for `due`. Both sides must be
    cheap and without faults: a GPU computes both.
    """
    select = lambda: tree.where(due, then(), otherwise())
    return on_gpu(select, lambda: jax.lax.cond(due, then, otherwise))


def while_at_most(
    goes_on: Callable, step: Callable, carry: Any, turns: int, draw: Callable = lambda i: (),
    parts: int = 1, part: Callable = lambda x, j: x,
) -> Any:  # fmt: skip
    """Return the carry after step(carry, draw(i)), i = 0, 1, ... < turns, while goes_on(carry).

    On a GPU a loop of `turns` turns, and in each a loop over the parts of draw(i), whose branch
    steps or does nothing: XLA records a branch without loops in a CUDA graph, so the host never
    waits. Under `vmap` it steps while any lane goes on.

    Args:
      turns, parts: static.
      part: (draw(i), j) -> the j-th of its `parts`: a branch of fewer steps in a row compiles
          faster.
    """

    def plain(carry):
        one = lambda state: (state[0] + 1, step(state[1], draw(state[0])))
        more = lambda state: (state[0] < turns) & goes_on(state[1])
        return jax.lax.while_loop(more, one, (jnp.int32(0), carry))[1]

    def bounded(carry):
        pack, unpack = packing(carry)

        def some(j, packed, drawn):
            # unpacked within, where slices are free
            onward = lambda packed: pack(step(unpack(packed), part(drawn, j)))
            return jax.lax.cond(_anywhere(goes_on(unpack(packed))), onward, lambda x: x, packed)

        def turn(i, packed):
            return jax.lax.fori_loop(0, parts, functools.partial(some, drawn=draw(i)), packed)

        return unpack(jax.lax.fori_loop(0, turns, turn, pack(carry)))

    return on_gpu(bounded, plain, carry)


@jax.custom_batching.custom_vmap
def _anywhere(flag: jax.Array) -> jax.Array:
    """Return whether a flag is set in any lane: unbatched under `vmap`, so a branch stays one."""
    return flag


@_anywhere.def_vmap
def _(size: int, batched: list[bool], flag: jax.Array) -> tuple[jax.Array, bool]:
    return _anywhere(jnp.any(flag)) if batched[0] else flag, False


def scan(step: Callable, carry: Any, xs: Any, reverse: bool = False,
         most: int = 8, apart: Any = True) -> tuple[Any, Any]:
    """Return `jax.lax.scan` of `step`, on a GPU with up to `most` steps in a row.

    Each turn of a GPU's loop costs launches: its counter, slices of `xs`, each output, lost fusion
    with the next step. On a CPU a longer body only compiles longer. A GPU packs small outputs and
    its carry, [B, ...], except floats of parts that are `apart`: products would copy slices.
    """
    if platform() not in (None, *GPUS):
        return jax.lax.scan(step, carry, xs, reverse=reverse)
    step = jax.jit(step, inline=True)  # traced once for both
    first = jax.tree.map(lambda x: x[0], xs)
    length = jax.tree.leaves(xs)[0].shape[0]
    unroll = steps_in_a_row(length, operations(step.trace(carry, first).jaxpr), most)
    plain = lambda carry, xs: jax.lax.scan(step, carry, xs, reverse=reverse)
    if unroll == 1:
        return plain(carry, xs)
    pack, unpack = packing(jax.eval_shape(step, carry, first)[1], lead=1)
    floats = jax.tree.map(lambda out, x: out and x.dtype == jnp.float32,
                          jax.tree.broadcast(apart, carry), carry)
    keep, restore = packing(carry, jax.tree.leaves(floats), lead=1)

    def packed(carry, x):
        carry, row = step(restore(carry), x)
        return keep(carry), pack(row)

    def unrolled(carry, xs):
        carry, rows = jax.lax.scan(packed, keep(carry), xs, reverse=reverse, unroll=unroll)
        return restore(carry), unpack(rows)

    return on_gpu(unrolled, plain, carry, xs)


def scan_sum(step: Callable, carry: Any, xs: Any, apart: Any = False,
             most: int = 1) -> tuple[Any, jax.Array]:
    """Return (carry, sum of y) of a `jax.lax.scan` of step(carry, x) -> (carry, y [n]).

    A GPU's loop writes each leaf of its carry by a launch of its own, and reads a slice for
    nothing: there small leaves are packed, with the sum so far. Elsewhere y are summed at the end.

    Args:
      apart: bools, a prefix of the carry's tree: parts that stay as they are.
      most: steps in a row: the second writes where the first has read, so no carry is copied. One
        if a part that is `apart` changes: XLA would copy it.
    """

    def plain(carry, xs):
        carry, ys = jax.lax.scan(step, carry, xs)
        return carry, sums.pairwise(ys)

    if platform() not in (None, *GPUS):
        return plain(carry, xs)
    step, length = jax.jit(step), len(jax.tree.leaves(xs)[0])  # traced once for both
    jaxpr = step.trace(carry, tree.take(xs, 0)).jaxpr.jaxpr
    given = {*map(id, jaxpr.invars)}
    same = [id(x) in given for x in jaxpr.outvars[:-1]]  # unchanged leaves are free
    apart = jax.tree.leaves(jax.tree.broadcast(apart, carry))
    stores = any(out and not kept for out, kept in zip(apart, same, strict=True))
    unroll = 1 if stores else steps_in_a_row(length, operations(jaxpr), most)
    apart = [out or kept for out, kept in zip(apart, same, strict=True)]
    zeros = jnp.zeros((2, *jaxpr.outvars[-1].aval.shape), jnp.float32)  # sums, and their errors
    pack, unpack = packing((carry, zeros), [*apart, False])

    def packed(packed, x):
        carry, before = unpack(packed)
        carry, y = step(carry, x)  # stacked sums would compute y again in each packed part
        return pack((carry, jnp.where(jnp.array([[True], [False]]), *sums.add(*before, y)))), ()

    def on_vectors(carry, xs):
        if length == 1:
            return step(carry, tree.take(xs, 0))
        after, found = unpack(jax.lax.scan(packed, pack((carry, zeros)), xs, unroll=unroll)[0])
        return after, found[0]

    return on_gpu(on_vectors, plain, carry, xs)


SMALL = 4095  # numbers of a leaf that is packed; a product would copy a slice of 64 x 64
VECTOR = 8192  # the same without a product that would read it, as of an optimizer's
INTEGERS = ("bool", "int8", "uint8", "int16", "uint16", "int32", "uint32")


def packing(like: Any, apart: Sequence[bool] = (), lead: int = 0) -> tuple[Callable, Callable]:
    """Return (pack, unpack) of trees like `like`: its small leaves as one float32 array.

    Large leaves and those of other dtypes than float32 and integers stay as they are. Integers are
    bit casts, so that floats keep their gradients; no operation but a copy sees them as floats.

    Args:
      apart: for each leaf, whether it stays too.
      lead: first axes that stay, equal in all packed leaves; `unpack` takes more axes before them.
    """
    leaves, structure = jax.tree.flatten(like)
    batch = leaves[0].shape[:lead] if leaves else ()
    small = lambda x: x.size <= (SMALL if x.ndim > lead + 1 else VECTOR)
    fits = lambda x: small(x) and x.shape[:lead] == batch and str(x.dtype) in (*INTEGERS, "float32")
    group = [i for i, out in itertools.zip_longest(range(len(leaves)), apart) if not out
             and fits(leaves[i])]
    if len(group) < 2:
        return lambda tree: tree, lambda tree: tree
    ends = list(itertools.accumulate(leaves[i].size // math.prod(batch) for i in group))
    bits = lambda x: x.dtype if x.dtype.itemsize == 4 else jnp.uint32

    def flat(x):
        if x.dtype != jnp.float32:
            x = jax.lax.bitcast_convert_type(x.astype(bits(x)), jnp.float32)
        return x.reshape(*batch, -1)

    def shaped(part, like):
        if like.dtype != jnp.float32:
            part = jax.lax.bitcast_convert_type(part, bits(like)).astype(like.dtype)
        return part.reshape(*part.shape[:-1], *like.shape[lead:])

    def pack(tree):
        found = dict(enumerate(structure.flatten_up_to(tree)))
        return jnp.concatenate([flat(found.pop(i)) for i in group], axis=-1), found

    def unpack(packed):
        array, found = packed
        parts = jnp.split(array, ends[:-1], axis=-1)
        found = found | {i: shaped(part, leaves[i]) for i, part in zip(group, parts, strict=True)}
        return structure.unflatten([found[i] for i in range(len(leaves))])

    return pack, unpack


LARGEST_BODY = 6400  # operations in a GPU's loop body: a second or two of compilation


def steps_in_a_row(length: int, size: int, most: int) -> int:
    """Return the steps in a GPU's loop body for `size` operations a step: a divisor of `length`."""
    fitting = max(1, min(most, LARGEST_BODY // max(size, 1)))
    return max(n for n in range(1, fitting + 1) if length % n == 0)


def operations(jaxpr: Any) -> int:
    """Return the number of operations in a JAXPR; a loop's body counts once, the longest branch."""
    from jax.extend import core  # imports Pallas

    values = lambda eqn: (x for p in eqn.params.values() for x in (p if type(p) is tuple else (p,)))
    inner = lambda eqn: [x for x in values(eqn) if isinstance(x, (core.Jaxpr, core.ClosedJaxpr))]
    eqns = getattr(jaxpr, "jaxpr", jaxpr).eqns
    joined = lambda eqn: max if eqn.primitive.name == "cond" else sum
    return sum(joined(eqn)(map(operations, found)) if (found := inner(eqn)) else 1 for eqn in eqns)
