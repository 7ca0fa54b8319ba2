"""Count the work of a program: arithmetic, bytes and the operations that a GPU launches."""

from __future__ import annotations

import math
from collections import Counter
from collections.abc import Callable, Iterable
from typing import Any

import jax
from jax.extend import core

from jaxrl_fast.profiling.flops import of_convolution, of_product

REDUCING = ("reduce_", "argm", "cum", "sort", "top_k")
MOVING = ("gather", "dynamic_slice", "concatenate", "pad")
WRITING = {"scatter": 2, "dynamic_update_slice": 1}  # into an array, in place: which operand
FUSED = 8  # terms of a product that a GPU computes within another kernel
CALLS = ("jaxpr", "call_jaxpr", "fun_jaxpr")


def of(fn: Callable, *args: Any, platform: str) -> Counter:
    """Return the counts of fn(*args), traced with shapes, for "cuda", "tpu" or "cpu".

    Counts: `products` and convolutions with their `flops`; `tiny` products, of few terms;
    `reductions`; `turns` of loops; `open` loops without a known number of turns; `bytes` that
    products, reductions, gathers and their kin read and write.
    """
    return count(jax.make_jaxpr(fn)(*args), platform)


def count(jaxpr: Any, platform: str) -> Counter:
    """Return the counts of a JAXPR; a loop's body counts once a turn."""
    found, chosen = Counter(), {}
    for eqn in getattr(jaxpr, "jaxpr", jaxpr).eqns:
        inputs = [x for x in eqn.invars if not isinstance(x, core.Literal)]
        if eqn.primitive.name == "platform_index":
            chosen[eqn.outvars[0]] = branch_of(eqn.params["platforms"], platform)
        elif inputs and all(x in chosen for x in inputs):  # a clamp of the index
            chosen[eqn.outvars[0]] = chosen[inputs[0]]
        else:
            _add(found, equation(eqn, platform, chosen.get(inputs[0]) if inputs else None))
    return found


def branch_of(platforms: Iterable[tuple[str, ...] | None], platform: str) -> int:
    """Return the index of the first entry that names a platform, or of the default, None."""
    return next(i for i, names in enumerate(platforms) if names is None or platform in names)


def _add(total: Counter, counts: Counter, times: float = 1) -> None:
    for name, value in counts.items():
        total[name] += value * times


def equation(eqn: Any, platform: str, branch: int | None) -> Counter:
    """Return the counts of one equation. branch: of a `cond` that chooses by the platform."""
    name, found = eqn.primitive.name, Counter()
    if name == "scan":
        turns = eqn.params["length"]
        _add(found, count(eqn.params["jaxpr"], platform), turns)
        if turns > 1:
            found["turns"] += turns / min(eqn.params["unroll"], turns)
    elif name == "while":
        _add(found, count(eqn.params["body_jaxpr"], platform))
        found["open"] += 1
    elif name == "cond":
        sides = [count(side, platform) for side in eqn.params["branches"]]
        sides = sides if branch is None else [sides[min(branch, len(sides) - 1)]]
        _add(found, max(sides, key=lambda side: (side["flops"], sum(side.values()))))
    elif inner := next((eqn.params[key] for key in CALLS if eqn.params.get(key) is not None), None):
        _add(found, count(inner, platform))
    else:
        _add(found, plain(eqn))
    return found


def plain(eqn: Any) -> Counter:
    """Return the counts of an operation without a program inside."""
    name = eqn.primitive.name
    moved = lambda: _bytes(eqn.invars) + _bytes(eqn.outvars)
    if name in ("dot_general", "conv_general_dilated"):
        arithmetic = flops(eqn)
        terms = arithmetic // (2 * max(math.prod(eqn.outvars[0].aval.shape), 1))
        if terms <= FUSED:
            return Counter({"tiny": 1, "flops": arithmetic})
        return Counter({"products": 1, "flops": arithmetic, "bytes": moved()})
    if name.startswith(REDUCING):
        return Counter({"reductions": 1, "bytes": moved()})
    for writing, operand in WRITING.items():
        if name.startswith(writing):
            return Counter({"bytes": 2 * _bytes(eqn.invars[operand : operand + 1])})
    if name.startswith(MOVING):
        return Counter({"bytes": 2 * _bytes(eqn.outvars)})
    return Counter()  # elementwise: part of another kernel


def flops(eqn: Any) -> int:
    """Return the multiplications and additions of a product or a convolution."""
    left, right = (x.aval.shape for x in eqn.invars[:2])
    out = eqn.outvars[0].aval.shape
    if eqn.primitive.name == "dot_general":
        (contracted, _), _ = eqn.params["dimension_numbers"]
        return of_product(out, [left[axis] for axis in contracted])
    return of_convolution(out, right, right[eqn.params["dimension_numbers"].rhs_spec[0]])


def _bytes(variables: Iterable[Any]) -> int:
    size = lambda aval: math.prod(aval.shape) * aval.dtype.itemsize
    return sum(size(x.aval) for x in variables)
