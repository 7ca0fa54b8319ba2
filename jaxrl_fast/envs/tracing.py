"""What can be read off a traced function."""

from __future__ import annotations

from typing import Any


def depends_on_inputs(jaxpr: Any, first: int | None = None) -> list[bool]:
    """For each output of a jaxpr, whether it may depend on an input: False is a promise, True is not.

    first: only so many inputs, from the front, are asked about; None: all.
    """
    touched = set(jaxpr.invars[:first])
    for equation in jaxpr.eqns:
        if any(not hasattr(v, "val") and v in touched for v in equation.invars):
            touched.update(equation.outvars)
    return [not hasattr(v, "val") and v in touched for v in jaxpr.outvars]


def used_inputs(jaxpr: Any) -> list[bool]:
    """For each input of a jaxpr, whether anything is computed from it: False is a promise, True is not."""
    used = {v for equation in jaxpr.eqns for v in equation.invars if not hasattr(v, "val")} | {
        v for v in jaxpr.outvars if not hasattr(v, "val")
    }
    return [v in used for v in jaxpr.invars]
