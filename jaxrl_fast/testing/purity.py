"""Whether tracing a function twice gives one program, without callbacks and side effects."""

from __future__ import annotations

import hashlib
import re
from typing import Any

import jax
import numpy as np
from jax.extend import core

from jaxrl_fast import random


def digest(jaxpr: Any, known: dict[Any, str]) -> str:
    """Return a hash of a program that does not depend on which parts JAX shares."""
    if jaxpr in known:
        return known[jaxpr]
    numbers: dict[Any, int] = {}

    def variable(v: Any) -> str:
        if isinstance(v, core.Literal):
            return f"{v.val!r}"
        return f"{numbers.setdefault(v, len(numbers))}:{v.aval}"

    def parameter(x: Any) -> str:
        if isinstance(x, core.ClosedJaxpr):
            consts = "".join(str(np.asarray(random.as_data(c)).tobytes()) for c in x.consts)
            return digest(x.jaxpr, known) + consts
        if isinstance(x, core.Jaxpr):
            return digest(x, known)
        if isinstance(x, (tuple, list)):
            return f"({','.join(map(parameter, x))})"
        return re.sub(r"0x[0-9a-f]+", "", str(x))

    lines = [" ".join(map(variable, (*jaxpr.constvars, *jaxpr.invars)))]
    for e in jaxpr.eqns:
        parameters = " ".join(f"{k}={parameter(v)}" for k, v in sorted(e.params.items()))
        lines.append(f"{' '.join(map(variable, e.outvars))} = {e.primitive} "
                     f"{' '.join(map(variable, e.invars))} {parameters}")
    lines.append(" ".join(map(variable, jaxpr.outvars)))
    known[jaxpr] = hashlib.sha256("\n".join(lines).encode()).hexdigest()
    return known[jaxpr]


def check_purity(first: Any, second: Any, what: str = "environment") -> None:
    """Assert that two traces are the same program without callbacks or prints."""
    for closed in (first, second):
        assert not closed.effects, (
            f"purity: the {what} has side effects in the program: {closed.effects}"
        )
    assert "callback" not in str(first), (
        f"purity: the {what} calls back into Python from inside the program"
    )
    one, two = first.consts, second.consts
    alike = len(one) == len(two) and find_difference(one, two) is None
    assert digest(first.jaxpr, {}) == digest(second.jaxpr, {}) and alike, (
        f"purity: tracing the {what} twice gives two programs; it draws from NumPy or Python's "
        "random, or keeps something between calls. All randomness comes from the key, all memory "
        "lives in the state"
    )


def compile_for_one_call(traced: Any) -> Any:
    """Compile a traced function, on a CPU without optimization."""
    options = {"xla_backend_optimization_level": 0} if jax.default_backend() == "cpu" else None
    return traced.lower().compile(compiler_options=options)


def find_difference(a: Any, b: Any) -> str | None:
    """Return the path of the first leaf in which two trees of one structure differ, or None."""
    for (path, x), y in zip(jax.tree.leaves_with_path(a), jax.tree.leaves(b), strict=True):
        x, y = np.asarray(random.as_data(x)), np.asarray(random.as_data(y))
        if not np.array_equal(x, y, equal_nan=x.dtype.kind == "f"):
            return jax.tree_util.keystr(path)
    return None
