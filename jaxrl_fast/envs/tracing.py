"""What can be read off a traced function, into the functions that are jitted or scanned inside of it."""

from __future__ import annotations

from typing import Any

from jax.interpreters.partial_eval import dce_jaxpr


def depends_on_inputs(jaxpr: Any, first: int | None = None) -> list[bool]:
    """For each output of a jaxpr, whether it may depend on an input: False is a promise, True is not.

    first: only so many inputs, from the front, are asked about; None: all.
    """
    jaxpr = jaxpr.replace(eqns=[e for e in jaxpr.eqns if e.outvars])  # a print reads for no output
    outputs = range(len(jaxpr.outvars))
    return [any(dce_jaxpr(jaxpr, [i == j for j in outputs])[1][:first]) for i in outputs]


def used_inputs(jaxpr: Any) -> list[bool]:
    """For each input of a jaxpr, whether anything that it returns is computed from it: False is a promise, True is not."""
    return dce_jaxpr(jaxpr, [True] * len(jaxpr.outvars))[1]
