"""Convert numbers to another dtype only if none of them changes."""

from __future__ import annotations

import warnings
from typing import Any

import numpy as np

from jaxrl_fast.errors import ConfigError


class Misfit(ConfigError):
    """A value outside a space or interface; built from its message, as other processes do."""

    def __init__(self, message: Any):
        Exception.__init__(self, str(message))
        self.argument, _, self.valid = str(message).partition(" must be ")
        self.value = None


def misfit(name: str, wanted: str, got: str) -> Misfit:
    return Misfit(f"{name} must be {wanted}, got {got}")


def kind_of(dtype: np.dtype) -> str:
    """Return NumPy's kind of a dtype, "f" for bfloat16 and float8 too."""
    return "f" if dtype.kind == "V" and "float" in dtype.name else dtype.kind


def exact(values: Any, dtype: Any, name: str) -> np.ndarray:
    """Return `values` as an array of `dtype`, the same array if it has that dtype.

    Floats are rounded to another width. Raises Misfit, with `name`, if any other number would
    change or is no number.
    """
    found = np.asarray(values)
    if found.dtype == dtype:
        return found
    dtype, kind = np.dtype(dtype), kind_of(found.dtype)
    if kind == kind_of(dtype) == "f":  # infinite results are named where numbers must be finite
        with np.errstate(over="ignore"):
            return found.astype(dtype)
    if kind not in "biuf":
        raise misfit(name, _valid_text(dtype), _describe(found))
    with np.errstate(invalid="ignore", over="ignore"):
        out = found.astype(dtype)
        same = _same(found, out)
    if np.count_nonzero(same) != same.size:
        raise misfit(name, _valid_text(dtype), _describe(found[~same]))
    return out


def _same(found: np.ndarray, out: np.ndarray) -> np.ndarray:
    """Return where `out`, cast from `found`, is the same number, bool."""
    # in `found`'s dtype: both may round to the same in a common one; not where hardware overflows
    same = out.astype(found.dtype) == found
    kinds = kind_of(found.dtype) + kind_of(out.dtype)
    if kinds in ("if", "uf"):
        return same & _in_limits(out, found.dtype)
    if kinds in ("fi", "fu"):
        return same & _in_limits(found, out.dtype)
    return same & ((found < 0) == (out < 0)) if kinds in ("iu", "ui") else same


def _in_limits(values: np.ndarray, dtype: np.dtype) -> np.ndarray:
    """Return where floats are within an integer `dtype`'s limits, bool."""
    past = np.float64(2.0) ** (8 * dtype.itemsize - (dtype.kind == "i"))
    return (values >= np.float64(np.iinfo(dtype).min)) & (values < past)


def within(values: np.ndarray, low: Any, high: Any, name: str) -> np.ndarray:
    """Return integers `values`; raises Misfit if one is not from `low` to `high` (broadcast)."""
    outside = (values < low) | (values > high)
    if np.count_nonzero(outside):  # half as long as `any`
        least, most = (np.broadcast_to(bound, values.shape)[outside][0] for bound in (low, high))
        raise misfit(name, f"integers from {least} to {most}", str(values[outside][0]))
    return values


def warn_within(values: np.ndarray, low: Any, high: Any, name: str) -> np.ndarray:
    """Return `values` as `within`, with a warning instead of an error."""
    try:
        return within(values, low, high, name)
    except Misfit as error:
        # the caller of Agent.act
        warnings.warn(f"{error}: the policy has never seen such a number", stacklevel=6)
        return values


def ends(terminated: Any, truncated: Any) -> tuple[np.ndarray, np.ndarray]:
    """Return copies of both as bool; a terminated step is not truncated."""
    terminated = np.array(exact(terminated, bool, "terminated"))
    return terminated, exact(truncated, bool, "truncated") & ~terminated


def _valid_text(dtype: np.dtype) -> str:
    if dtype.kind == "b":
        return "True or False"
    if dtype.kind not in "iu":
        return f"numbers that {dtype} holds"
    limits = np.iinfo(dtype)
    return f"integers from {limits.min} to {limits.max} ({dtype})"


def _describe(found: np.ndarray) -> str:
    return f"{found.dtype} {found.ravel()[0]}" if found.size else f"{found.dtype}, empty"
