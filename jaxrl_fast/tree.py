"""Decorators that make a frozen dataclass a pytree, helpers on pytrees, and short forms."""

from __future__ import annotations

import dataclasses
import functools
import inspect
import math
from collections.abc import Callable
from typing import Any, TypeVar, dataclass_transform

import jax
import jax.numpy as jnp
import numpy as np

from jaxrl_fast.errors import ConfigError, nearest
from jaxrl_fast.fields import changed_settings, offered, type_name

T = TypeVar("T")
_DYNAMIC = {"float", "Array", "Any"}
FEW = 4  # shown entries of an array
JOINED = 2**14  # numbers of a leaf that `all_finite` checks together with others


@dataclass_transform(frozen_default=True)
def settings(cls: type[T]) -> type[T]:
    """Make a class a frozen dataclass and a pytree with its `float` fields as leaves.

    Use as a decorator. A leaf is traced: it changes without recompiling, and `jax.vmap` over a
    batch of them is a sweep. Other fields (sizes, switches, names, flax modules) are static: part
    of the program, and hashable. `dataclasses.field(metadata={"static": bool})` chooses for a
    field. A class with `by_name = True`, such as an algorithm, takes settings by name alone.
    """
    by_name = getattr(cls, "by_name", False)
    cls = dataclasses.dataclass(frozen=True, repr=False, kw_only=by_name)(cls)
    if cls.__new__ is object.__new__:
        cls.__new__ = staticmethod(_new)
    found = inspect.signature(cls.__init__)  # for `help`: Python would take `__new__`'s
    cls.__signature__ = found.replace(parameters=list(found.parameters.values())[1:],
                                      return_annotation=found.empty)
    if "__repr__" not in cls.__dict__:
        cls.__repr__ = describe_changes
    data, meta = [], []
    for f in dataclasses.fields(cls):
        static = f.metadata.get("static", type_name(f) not in _DYNAMIC)
        (meta if static else data).append(f.name)
    keys = tuple(jax.tree_util.GetAttrKey(name) for name in data)

    def flatten(obj):
        return tuple(getattr(obj, n) for n in data), tuple(getattr(obj, n) for n in meta)

    def flatten_with_keys(obj):
        children, static = flatten(obj)
        return tuple(zip(keys, children, strict=True)), static

    def unflatten(static, children):
        # without __init__: its checks are for users' values, not tracers or the None of `in_axes`
        obj = object.__new__(cls)
        for name, value in (*zip(data, children, strict=True), *zip(meta, static, strict=True)):
            object.__setattr__(obj, name, value)
        return obj

    jax.tree_util.register_pytree_with_keys(cls, flatten_with_keys, unflatten, flatten)
    return cls


def _new(cls: type[T], *args: Any, **settings: Any) -> T:
    """Create a settings object; raises ConfigError for an unknown setting or a hidden one."""
    own = set(inspect.signature(cls.__init__).parameters) - {"self"}
    if args and getattr(cls, "by_name", False) and own <= cls.__dataclass_fields__.keys():
        example = f"{cls.__name__}(learning_rate=1e-3)"
        raise ConfigError(f"settings of {cls.__name__}", args[0],
                          f"given by name: {example}, and the environment to jf.train")
    for name in settings.keys() - cls.__dataclass_fields__.keys():
        _, *known = inspect.signature(cls.__init__).parameters.values()
        names = [p.name for p in known]
        if name not in names and not any(p.kind is p.VAR_KEYWORD for p in known):
            names = offered(names)
            valid = f"a setting of {cls.__name__} ({', '.join(names)}){nearest(name, names)}"
            raise ConfigError(name, settings[name], valid)
    for base, name in hidden_settings(cls):
        found = type(vars(base)[name]).__name__
        raise ConfigError(
            name, f"the {found} in class {base.__name__}",
            f"a setting, as in a class that {base.__name__} inherits from: pass "
            f"{cls.__name__}({name}=...), or give another default, with its annotation: `{name}: "
            "TYPE = VALUE`",
        )  # fmt: skip
    return object.__new__(cls)


@functools.cache
def hidden_settings(cls: type) -> tuple[tuple[type, str], ...]:
    """Return (class, name) of attributes and properties that hide an inherited setting."""
    found = []
    for base in cls.__mro__:
        inherited = {f.name for b in base.__mro__[1:] if "__dataclass_fields__" in vars(b)
                     for f in dataclasses.fields(b)}
        own = set(vars(base)) - set(getattr(base, "__annotations__", ()))
        found += [(base, name) for name in sorted(inherited & own)]
    return tuple(found)


@dataclass_transform(frozen_default=True)
def struct(cls: type[T]) -> type[T]:
    """Make a frozen dataclass with every field a pytree child."""
    cls = dataclasses.dataclass(frozen=True)(cls)
    return jax.tree_util.register_dataclass(cls, [f.name for f in dataclasses.fields(cls)], [])


def where(mask: jax.Array, on_true: T, on_false: T) -> T:
    """Return `jnp.where` on trees; `mask` [B] broadcasts over trailing axes of leaves [B, ...]."""
    one = lambda x, y: jnp.where(mask.reshape(mask.shape + (1,) * (x.ndim - mask.ndim)), x, y)
    return jax.tree.map(one, on_true, on_false)


def take(tree: T, index: Any) -> T:
    """Return `leaf[index]` of every leaf."""
    return jax.tree.map(lambda x: x[index], tree)


def merge_axes(tree: T) -> T:
    """Reshape every leaf [T, B, ...] to [T * B, ...]."""
    return jax.tree.map(lambda x: x.reshape((x.shape[0] * x.shape[1],) + x.shape[2:]), tree)


def copy(tree: T) -> T:
    """Copy every leaf on the device, safe from later donation; call it inside `jit`."""
    return jax.tree.map(lambda x: jnp.copy(x), tree)


def strong(tree: T) -> T:
    """Return every leaf with its dtype and no weak type (a weak leaf costs a retrace)."""
    return jax.tree.map(lambda x: jax.lax.convert_element_type(x, jnp.asarray(x).dtype), tree)


def as_float32(tree: T, asarray: Callable = jnp.asarray) -> T:
    """Return numbers among the leaves as strong float32 or int32 arrays, by `asarray`."""

    kinds = {np.bool_: (bool, np.bool_), np.int32: (int, np.integer),
             np.float32: (float, np.floating)}
    one = lambda x: next(
        (asarray(x, dtype) for dtype, kind in kinds.items() if isinstance(x, kind)), x
    )
    return jax.tree.map(one, tree)


def as_numbers(tree: T) -> T:
    """Return scalar arrays among the leaves as Python numbers, as a person would type them.

    The shortest decimals of a float32 give it again: 0.2, not 0.20000000298023224.
    """
    plain = lambda x: float(str(x)) if x.dtype == np.float32 else x.item()
    one = lambda x: plain(np.asarray(x)[()]) if getattr(x, "shape", None) == () else x
    return jax.tree.map(one, tree)


def nbytes(tree: Any) -> int:
    """Return the bytes of all array leaves (shapes are enough)."""
    return sum(math.prod(x.shape) * x.dtype.itemsize for x in jax.tree.leaves(tree))


def all_finite(tree: Any, join: bool = True) -> jax.Array:
    """Return a scalar bool: every floating leaf is finite.

    join: check small leaves as one vector. XLA would divide it over the devices of a mesh.
    """
    leaves = [x for x in jax.tree.leaves(tree) if jnp.issubdtype(x.dtype, jnp.floating)]
    joins = [join and x.size <= JOINED and x.dtype == jnp.float32 for x in leaves]
    small = [x.reshape(-1) for x, joined in zip(leaves, joins, strict=True) if joined]
    parts = [x for x, joined in zip(leaves, joins, strict=True) if not joined]
    # one check to compile for all of them; without the barrier XLA takes them apart again
    if small:
        parts.append(jax.lax.optimization_barrier(jnp.concatenate(small)))
    # x * 0 is NaN unless x is finite; XLA compiles a sum for a CPU faster than a conjunction
    zeros = [jnp.sum(x * jnp.zeros((), x.dtype)).astype(jnp.float32) for x in parts]
    return functools.reduce(jnp.add, zeros, jnp.float32(0)) == 0


def summary(value: Any) -> str:
    """Return `Name(field=..., ...)` of a named tuple or dataclass; use it as `__repr__`."""
    names = getattr(value, "_fields", None) or [f.name for f in dataclasses.fields(value) if f.repr]
    shown = ", ".join(f"{name}={describe(getattr(value, name))}" for name in names)
    return f"{type(value).__name__}({shown})"


def describe_changes(value: Any) -> str:
    """Return `Name(setting=..., ...)` of the settings that differ from their defaults."""
    shown = ", ".join(f"{name}={describe(one)}" for name, one in changed_settings(value).items())
    return f"{type(value).__name__}({shown})"


def describe(value: Any) -> str:
    """Return a short form: small arrays by numbers, others by dtype and shape, trees by size."""
    if hasattr(value, "shape") and hasattr(value, "dtype"):
        return _array(value)
    leaves = [] if isinstance(value, (str, bytes)) else jax.tree.leaves(value)
    if not any(hasattr(x, "shape") for x in leaves):
        return _plain(value)
    if type(value).__repr__ is not tuple.__repr__ and type(value).__repr__ is summary and len(
        leaves
    ) <= FEW:
        return summary(value)
    # settings have their own short forms
    if dataclasses.is_dataclass(value) and not isinstance(value, type):
        return repr(value)
    sizes = [x.size * x.dtype.itemsize for x in leaves if hasattr(x, "dtype")]
    if len(leaves) > 1:
        return f"<{len(leaves)} arrays, {bytes_text(sum(sizes))}>"
    return _array(leaves[0])


def bytes_text(size: int) -> str:
    """Return a size as text, `36.8 kB`."""
    unit = next((i for i, limit in enumerate((1e3, 1e6, 1e9)) if size < limit), 3)
    return f"{size} B" if unit == 0 else f"{size / 1e3**unit:.3g} {('kB', 'MB', 'GB')[unit - 1]}"


def _array(x: Any) -> str:
    kind = f"{x.dtype}{list(x.shape)}"
    unknown = isinstance(x, (jax.core.Tracer, jax.ShapeDtypeStruct))
    unknown = unknown or jax.dtypes.issubdtype(x.dtype, jax.dtypes.extended)
    if unknown or x.size > FEW:
        return kind
    # donated, or of other processes
    if isinstance(x, jax.Array) and (x.is_deleted() or not x.is_fully_addressable):
        return kind
    return str(np.asarray(x)) if x.ndim == 0 else str(np.asarray(x).tolist())


def _plain(value: Any) -> str:
    """Return the short form of a value without arrays; long sequences by their ends."""
    if type(value) in (tuple, list) and len(value) > 2 * FEW and all(
        isinstance(x, (int, float)) for x in value
    ):
        start, end = (", ".join(map(repr, part)) for part in (value[:2], value[-1:]))
        return f"({start}, ... {end})"
    return repr(value)


def used_inputs(jaxpr: Any) -> list[bool]:
    """Return for each input of a jaxpr whether an output uses it; False is certain."""
    from jax.interpreters.partial_eval import dce_jaxpr

    return dce_jaxpr(jaxpr, [True] * len(jaxpr.outvars))[1]
