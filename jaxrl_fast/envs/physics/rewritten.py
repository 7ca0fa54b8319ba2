"""A step of physics rewritten for a GPU, which launches each operation of the loop.

A loop's operations on its constants go before the loop: XLA's compiler for a GPU leaves them in.
Sums into segments at constant indices and products of a few numbers become elementwise terms,
which fuse, where a scatter and a product are launches of their own. Results are equal to rounding.
"""

from __future__ import annotations

import functools
import operator
from collections.abc import Callable, Iterator, Sequence
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
from jax.extend import core, source_info_util

new = core.gensym()  # variables
FEW, MANY = 8, 64  # numbers that a product sums over; rows that are added by slices


def rewritten(f: Callable[..., list[jax.Array]], *args: jax.Array) -> list[jax.Array]:
    """Return f(*args), its operations rewritten."""
    closed = jax.make_jaxpr(f)(*args)
    return _evaluate(closed.jaxpr, closed.consts, args)


def _evaluate(jaxpr: core.Jaxpr, consts: Sequence[Any], args: Sequence[Any]) -> list[Any]:
    values = dict(zip([*jaxpr.constvars, *jaxpr.invars], [*consts, *args], strict=True))
    _run(jaxpr.eqns, values)
    return [_read(values, x) for x in jaxpr.outvars]


def _read(values: dict, x: Any) -> Any:
    return x.val if isinstance(x, core.Literal) else values[x]


def _run(eqns: Sequence[core.JaxprEqn], values: dict) -> None:
    """Evaluate equations, in the names and the lines of their origin."""
    for eqn in eqns:
        given = [_read(values, x) for x in eqn.invars]
        names = source_info_util.current_name_stack() + eqn.source_info.name_stack
        with source_info_util.user_context(eqn.source_info.traceback,
                                           name_stack=names), eqn.ctx.manager:
            found = RULES.get(eqn.primitive.name, _plain)(eqn, given)
        values.update(zip(eqn.outvars, found, strict=True))


def _plain(eqn: core.JaxprEqn, given: list) -> list:
    if all(map(_is_concrete, given)) and not any(jnp.issubdtype(x.aval.dtype, jnp.inexact)
                                           for x in eqn.outvars):
        with jax.ensure_compile_time_eval():  # an index
            return _bound(eqn, given)
    return _bound(eqn, given)


def _is_concrete(x: Any) -> bool:
    return not isinstance(x, jax.core.Tracer)


def _bound(eqn: core.JaxprEqn, given: list) -> list:
    found = eqn.primitive.bind(*given, **eqn.primitive.get_bind_params(eqn.params))
    return list(found) if eqn.primitive.multiple_results else [found]


def _inline(eqn: core.JaxprEqn, given: list) -> list:
    inner = eqn.params["jaxpr"]
    return _evaluate(inner.jaxpr, inner.consts, given)


def _scan(eqn: core.JaxprEqn, given: list) -> list:
    """Evaluate a loop, and before it the part that needs its constants alone."""
    params, jaxpr = eqn.params, eqn.params["jaxpr"].jaxpr
    consts, carries = _counts(params)
    fixed = dict(zip([*jaxpr.constvars, *jaxpr.invars[:consts]],
                     [*params["jaxpr"].consts, *given[:consts]], strict=True))
    known, before, inside, names = {*fixed}, [], [], {}
    for one in _flat(jaxpr.eqns, names):
        constant = all(isinstance(x, core.Literal) or x in known for x in one.invars)
        ready = constant and not one.effects
        (before if ready else inside).append(one)
        known.update(one.outvars if ready else ())
    _run(before, fixed)

    def body(carry: Any, xs: Any) -> Any:
        values = fixed | dict(zip(jaxpr.invars[consts:], [*carry, *xs], strict=True))
        _run(inside, values)
        out = [_read(values, _rename(names, x)) for x in jaxpr.outvars]
        return out[:carries], out[carries:]

    start, xs = given[consts : consts + carries], given[consts + carries :]
    end, ys = jax.lax.scan(body, start, xs, params["length"], params["reverse"], params["unroll"])
    return [*end, *ys]


def _counts(params: dict[str, Any]) -> tuple[int, int]:
    """Return how many of a loop's inputs are constants and carries."""
    if "ft_in" in params:  # from jax 0.11 on
        consts, carry, _ = map(len, params["ft_in"].unpack())
        return consts, carry
    return params["num_consts"], params["num_carry"]


def _flat(eqns: Sequence[core.JaxprEqn], names: dict) -> Iterator[core.JaxprEqn]:
    """Yield equations, those of functions inside too; names: new variables by the old ones."""
    for eqn in eqns:
        given = [_rename(names, x) for x in eqn.invars]
        inner = eqn.params.get("jaxpr") if eqn.primitive.name == "jit" else None
        if inner is not None and not inner.consts:
            inside = dict(zip(inner.jaxpr.invars, given, strict=True))
            yield from _flat(inner.jaxpr.eqns, inside)
            names.update((old, _rename(inside, x))
                         for old, x in zip(eqn.outvars, inner.jaxpr.outvars, strict=True))
        else:
            made = [new(x.aval) for x in eqn.outvars]
            names.update(zip(eqn.outvars, made, strict=True))
            yield eqn.replace(invars=given, outvars=made)


def _rename(names: dict, x: Any) -> Any:
    return x if isinstance(x, core.Literal) else names.get(x, x)


def _scatter_add(eqn: core.JaxprEqn, given: list) -> list:
    """Add rows at constant indices of one axis by slices."""
    (operand, indices, updates), where = given, eqn.params["dimension_numbers"]
    axes = where.scatter_dims_to_operand_dims
    rows = [d for d in range(updates.ndim) if d not in where.update_window_dims]
    plain = where.inserted_window_dims == axes and not where.operand_batching_dims
    if (len(axes), len(rows)) != (1, 1) or not plain or not _is_concrete(indices):
        return _plain(eqn, given)
    axis, index = axes[0], np.asarray(indices).ravel()
    updates = jnp.moveaxis(updates, rows[0], axis)
    whole = all(a == b for d, (a, b) in enumerate(zip(updates.shape, operand.shape, strict=True))
                if d != axis)
    drops = eqn.params["mode"] != jax.lax.GatherScatterMode.CLIP  # those out of bounds
    if not whole or not drops or max(len(index), operand.shape[axis]) > MANY:
        return _plain(eqn, given)
    at = lambda x, i: jax.lax.slice_in_dim(x, i, i + 1, axis=axis)
    added = lambda i: functools.reduce(
        operator.add, [at(updates, j) for j in np.flatnonzero(index == i)], at(operand, i)
    )
    return [jnp.concatenate([added(i) for i in range(operand.shape[axis])], axis)]


def _product(eqn: core.JaxprEqn, given: list) -> list:
    """Sum a product over few numbers by terms."""
    (left, right), ((lc, rc), (lb, rb)) = given, eqn.params["dimension_numbers"]
    if len(lc) != 1 or left.shape[lc[0]] > FEW or not jnp.issubdtype(
        eqn.outvars[0].aval.dtype, jnp.inexact
    ):
        return _plain(eqn, given)
    free = lambda x, *taken: [d for d in range(x.ndim) if d not in (*taken[0], *taken[1])]
    lf, rf = free(left, lc, lb), free(right, rc, rb)
    left, right = jnp.transpose(left, (*lb, *lf, *lc)), jnp.transpose(right, (*rb, *rf, *rc))
    left = jnp.expand_dims(left, [*range(left.ndim - 1, left.ndim - 1 + len(rf))])
    right = jnp.expand_dims(right, [*range(len(rb), len(rb) + len(lf))])
    terms = [left[..., k] * right[..., k] for k in range(left.shape[-1])]
    return [functools.reduce(operator.add, terms).astype(eqn.outvars[0].aval.dtype)]


RULES = {"jit": _inline, "scan": _scan, "scatter-add": _scatter_add, "dot_general": _product}
