"""Dependencies in traced functions, jitted and scanned ones included."""

from __future__ import annotations

from typing import Any

from jax.interpreters.partial_eval import dce_jaxpr


def depends_on_inputs(jaxpr: Any, first: int | None = None) -> list[bool]:
    """Return for each output whether it may depend on the `first` inputs; False is certain."""
    jaxpr = jaxpr.replace(eqns=[e for e in jaxpr.eqns if e.outvars])  # a print reads for no output
    outputs = range(len(jaxpr.outvars))
    return [any(dce_jaxpr(jaxpr, [i == j for j in outputs])[1][:first]) for i in outputs]
