"""Short forms of objects with arrays, for a notebook's output."""

from __future__ import annotations

import dataclasses
from typing import Any

import jax
import numpy as np

FEW = 4  # shown entries of an array


def summary(value: Any) -> str:
    """Return `Name(field=..., ...)` of a named tuple or dataclass; use it as `__repr__`."""
    names = getattr(value, "_fields", None) or [f.name for f in dataclasses.fields(value) if f.repr]
    return f"{type(value).__name__}({', '.join(f'{name}={describe(getattr(value, name))}' for name in names)})"


def describe(value: Any) -> str:
    """Return a short form: small arrays by numbers, others by dtype and shape, trees by size."""
    if hasattr(value, "shape") and hasattr(value, "dtype"):
        return _array(value)
    leaves = [] if isinstance(value, (str, bytes)) else jax.tree.leaves(value)
    if not any(hasattr(x, "shape") for x in leaves):
        return _plain(value)
    if type(value).__repr__ is not tuple.__repr__ and type(value).__repr__ is summary and len(leaves) <= FEW:
        return summary(value)
    if dataclasses.is_dataclass(value) and not isinstance(value, type):  # settings have their own short forms
        return repr(value)
    sizes = [x.size * x.dtype.itemsize for x in leaves if hasattr(x, "dtype")]
    return f"<{len(leaves)} arrays, {bytes_text(sum(sizes))}>" if len(leaves) > 1 else _array(leaves[0])


def bytes_text(size: int) -> str:
    """`36.8 kB`."""
    unit = next((i for i, limit in enumerate((1e3, 1e6, 1e9)) if size < limit), 3)
    return f"{size} B" if unit == 0 else f"{size / 1e3**unit:.3g} {('kB', 'MB', 'GB')[unit - 1]}"


def _array(x: Any) -> str:
    kind = f"{x.dtype}{list(x.shape)}"
    unknown = isinstance(x, (jax.core.Tracer, jax.ShapeDtypeStruct)) or jax.dtypes.issubdtype(x.dtype, jax.dtypes.extended)
    if unknown or x.size > FEW:
        return kind
    if isinstance(x, jax.Array) and (x.is_deleted() or not x.is_fully_addressable):  # donated, or of other processes
        return kind
    return str(np.asarray(x)) if x.ndim == 0 else str(np.asarray(x).tolist())


def _plain(value: Any) -> str:
    """Return the short form of a value without arrays; long sequences by their ends."""
    if type(value) in (tuple, list) and len(value) > 2 * FEW and all(isinstance(x, (int, float)) for x in value):
        start, end = (", ".join(map(repr, part)) for part in (value[:2], value[-1:]))
        return f"({start}, ... {end})"
    return repr(value)
