"""Spaces of observations and actions: frozen, hashable, sampled on the device."""

from __future__ import annotations

import dataclasses
import math
from collections.abc import Mapping
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np

from jaxrl_fast.errors import ConfigError, check_int
from jaxrl_fast.tree import describe

COUNTABLE = 2.0**24  # integers that float32 distinguishes


@dataclasses.dataclass(frozen=True)
class Discrete:
    """The integers 0 .. n-1."""

    n: int

    shape = ()
    dtype = jnp.dtype("int32")

    def __post_init__(self):
        check_int("Discrete: n", self.n)
        object.__setattr__(self, "n", int(self.n))

    def sample(self, key: jax.Array, batch: tuple[int, ...] = ()) -> jax.Array:
        """Draw uniform values, int32 [*batch]."""
        return jax.random.randint(key, batch, 0, self.n, jnp.int32)


@dataclasses.dataclass(frozen=True)
class MultiDiscrete:
    """A vector of independent integers, entry i in 0 .. nvec[i]-1."""

    nvec: tuple[int, ...]

    dtype = jnp.dtype("int32")

    def __post_init__(self):
        object.__setattr__(self, "nvec", _integers("MultiDiscrete: nvec", self.nvec, empty=False))

    @property
    def shape(self) -> tuple[int, ...]:
        return (len(self.nvec),)

    def sample(self, key: jax.Array, batch: tuple[int, ...] = ()) -> jax.Array:
        """Draw uniform values, int32 [*batch, len(nvec)]."""
        return jax.random.randint(key, (*batch, len(self.nvec)), 0,
                                  jnp.asarray(self.nvec, jnp.int32), jnp.int32)


@dataclasses.dataclass(frozen=True)
class Box:
    """Arrays of `shape` within bounds.

    A bound is one float, or a tuple of `prod(shape)` floats. Networks leave floats unchanged and
    scale each integer entry by its bounds (`networks.layers.scale`).
    """

    low: float | tuple[float, ...]
    high: float | tuple[float, ...]
    shape: tuple[int, ...]
    dtype: Any = jnp.dtype("float32")

    def __post_init__(self):
        object.__setattr__(self, "dtype", _dtype(self.dtype))
        object.__setattr__(self, "shape", _integers("Box: shape", self.shape))
        for name in ("low", "high"):
            bound = self._bound(name)
            uniform = (bound == bound[0]).all()
            object.__setattr__(self, name, float(bound[0]) if uniform else tuple(map(float, bound)))
        above = np.asarray(self.low) > np.asarray(self.high)
        if above.any():
            raise ConfigError("Box: low", self.low, f"at most high, which is {self.high}")

    def _bound(self, name: str) -> np.ndarray:
        """Return a bound as float64 [1], or [prod(shape)]."""
        given = getattr(self, name)
        try:
            bound = np.asarray(given, np.float64)
        except jax.errors.JAXTypeError:  # traced: a space is static
            raise
        except (TypeError, ValueError):
            bound = np.full((), np.nan)
        size = math.prod(self.shape)
        if bound.size not in (1, size) or np.isnan(bound).any():
            raise ConfigError(f"Box: {name}", given,
                              f"a number, or {size} of them as shape {self.shape} has, and not NaN")
        return bound.reshape(-1)

    def __repr__(self) -> str:
        low, high = describe(self.low), describe(self.high)
        return f"Box(low={low}, high={high}, shape={self.shape}, dtype={self.dtype.name})"

    def bounds(self, dtype: Any = np.float32) -> tuple[np.ndarray, np.ndarray]:
        """Return low and high as NumPy arrays of `shape` and `dtype`."""
        with np.errstate(over="ignore"):  # beyond `dtype` means infinite
            ends = [np.asarray(bound, dtype).reshape(-1) for bound in (self.low, self.high)]
        return tuple(np.broadcast_to(end, (math.prod(self.shape),)).reshape(self.shape)
                     for end in ends)

    @property
    def unscaled(self) -> np.ndarray:
        """Return bool [*shape]: floats, and integers with bounds 2^24 or more apart."""
        if not jnp.issubdtype(self.dtype, jnp.integer):
            return np.full(self.shape, jnp.issubdtype(self.dtype, jnp.floating))
        low, high = self.bounds(np.float64)
        return ~(high - low < COUNTABLE)

    @property
    def bounded(self) -> bool:
        """Return whether all bounds are finite (and not float32's largest number)."""
        low, high = self.bounds()
        return bool(np.all(np.abs(low) < 1e30) and np.all(np.abs(high) < 1e30))

    def from_unit(self, unit: jax.Array) -> jax.Array:
        """Scale [-1, 1]^d [..., prod(shape)] linearly to the (finite) bounds [..., *shape]."""
        low, high = self.bounds()
        unit = unit.reshape(unit.shape[:-1] + self.shape)
        value = low + 0.5 * (high - low) * (unit + 1.0)
        return jnp.clip(value, low, high).astype(self.dtype)  # rounding may leave the bounds

    def to_unit(self, value: jax.Array) -> jax.Array:
        """Invert `from_unit`."""
        low, high = self.bounds()
        unit = 2.0 * (value - low) / (high - low) - 1.0
        return unit.reshape(unit.shape[: unit.ndim - len(self.shape)] + (-1,))

    def sample(self, key: jax.Array, batch: tuple[int, ...] = ()) -> jax.Array:
        """Draw uniform values [*batch, *shape]; of an unbounded space clipped standard normals."""
        shape = (*batch, *self.shape)
        if not self.bounded:
            return jnp.clip(jax.random.normal(key, shape), *self.bounds()).astype(self.dtype)
        if jnp.issubdtype(self.dtype, jnp.integer) or self.dtype == jnp.bool_:
            most = np.iinfo(np.int32)
            low, high = self.bounds(np.float64)
            low, past = (np.clip(b, most.min, most.max).astype(np.int32) for b in (low, high + 1))
            return jax.random.randint(key, shape, low, past, jnp.int32).astype(self.dtype)
        low, high = self.bounds()
        return (low + (high - low) * jax.random.uniform(key, shape)).astype(self.dtype)


@dataclasses.dataclass(frozen=True)
class Dict:
    """Named spaces, `Dict.of(position=Box(...), ...)`; a value is a dict with the same names."""

    items: tuple[tuple[str, Any], ...]

    def __post_init__(self):
        valid = (
            "spaces of jaxrl_fast by name, at least one, such as Dict.of(position=Box(-1.0, 1.0, "
            "(3,)), ...)"
        )
        if isinstance(self.items, Mapping):
            object.__setattr__(self, "items", tuple(self.items.items()))
        pairs = isinstance(self.items, (tuple, list))
        pairs = pairs and all(isinstance(x, tuple) and len(x) == 2 for x in self.items)
        if not pairs or not len(self.items):
            raise ConfigError("Dict", self.items, valid)
        for name, space in self.items:
            if not isinstance(name, str) or not isinstance(space, Space):
                raise ConfigError(f"Dict: {name}", space, valid)
        if len(dict(self.items)) < len(self.items):
            raise ConfigError("Dict", self.items, "spaces of different names")
        object.__setattr__(self, "items", tuple(sorted(self.items, key=lambda item: item[0])))

    @classmethod
    def of(cls, **spaces: Any) -> Dict:
        return cls(tuple(spaces.items()))

    def __getitem__(self, name: str) -> Any:
        return dict(self.items)[name]

    def __contains__(self, name: str) -> bool:
        return name in dict(self.items)

    def sample(self, key: jax.Array, batch: tuple[int, ...] = ()) -> dict[str, Any]:
        keys = jax.random.split(key, len(self.items))
        return {name: space.sample(k, batch)
                for k, (name, space) in zip(keys, self.items, strict=True)}


def _integers(name: str, given: Any, empty: bool = True) -> tuple[int, ...]:
    """Return a sequence of positive integers as a tuple."""
    found = tuple(given.tolist() if isinstance(given, np.ndarray)
                  and given.ndim == 1 else given) if np.iterable(given) else None
    positive = lambda x: isinstance(x, (int, np.integer)) and not isinstance(x, bool) and x > 0
    if found is None or not all(map(positive, found)) or not (found or empty):
        raise ConfigError(name, given, "a tuple of integers above 0, such as (2,)")
    return tuple(map(int, found))


def _dtype(given: Any) -> Any:
    try:
        found = jnp.dtype(given)
    except TypeError:
        found = None
    if found is None or not (found.kind in "biuf" or jnp.issubdtype(found, jnp.floating)):
        raise ConfigError("Box: dtype", given,
                          "a dtype of real numbers, such as 'float32' or 'uint8'")
    return found


Space = Discrete | MultiDiscrete | Box | Dict


def zeros(space: Space, batch: tuple[int, ...] = ()) -> Any:
    """Return zeros of the space's shape and dtype, a dict for a Dict."""
    if isinstance(space, Dict):
        return {name: zeros(child, batch) for name, child in space.items}
    return jnp.zeros((*batch, *space.shape), space.dtype)
