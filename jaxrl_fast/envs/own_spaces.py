"""Values between an environment's own spaces and ours: observations in, actions out.

Another library's environment may count its actions from 5, bound them in float64, or put the
channels of a picture first. `Own` translates batches [B, ...], NumPy or traced.
"""

from __future__ import annotations

import dataclasses
import functools
from collections.abc import Callable
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np

from jaxrl_fast.envs.exact import exact, kind_of, warn_within, within
from jaxrl_fast.errors import expected
from jaxrl_fast.spaces import Box, Dict, Space


@dataclasses.dataclass(frozen=True)
class Own:
    """How an environment writes the values of `space` (no Dict), with its `shape` and `dtype`.

    start: its lowest integers (ours: 0).  channels_first: pictures [C, H, W] (ours: [H, W, C]).
    """

    space: Space
    shape: tuple[int, ...]
    dtype: np.dtype
    start: int | tuple[int, ...] = 0
    channels_first: bool = False

    def encode(self, values: Any, name: str = "observations",
               check: Callable[..., np.ndarray] = within) -> Any:
        """Return the environment's values [B, *shape] as ours [B, *space.shape].

        Raises Misfit for a number outside the space. check: `within` or `warned`.
        """
        values = values if isinstance(values, jax.Array) else np.asarray(values)
        if not isinstance(self.space, Box):
            least, most = self.integers
            values = values.reshape((values.shape[0], *self.space.shape))
            if not isinstance(values, jax.Array):
                values = check(exact(values, np.int64, name), least, most, name)
            return (values - least).astype(np.int32)
        return self._ordered(self._narrowed(values, name)).reshape(-1, *self.space.shape)

    def _narrowed(self, values: Any, name: str) -> Any:
        """Return `values` in the dtype of `space`; raises Misfit if a number would change."""
        if isinstance(values, jax.Array):
            return values.astype(self.space.dtype)
        return exact(values, self.space.dtype, name)

    def _ordered(self, pictures: Any) -> Any:
        """Return pictures with channels last, without a copy if there is one channel."""
        if not self.channels_first:
            return pictures
        if isinstance(pictures, jax.Array):
            return jnp.moveaxis(pictures, 1, -1)
        last = np.moveaxis(pictures, 1, -1)
        return pictures.reshape(last.shape) if last.shape[-1] == 1 else np.ascontiguousarray(last)

    def decode(self, values: Any) -> Any:
        """Return our values [B, *space.shape] as the environment's [B, *shape]."""
        xp = jnp if isinstance(values, jax.Array) else np
        dtype = self.dtype if xp is np else jax.dtypes.canonicalize_dtype(self.dtype)
        values = values.reshape(-1, *self.shape)
        if isinstance(self.space, Box):
            wide = self._wide(values)
            found = xp.clip(values.astype(wide), *self.bounds(wide, dtype)).astype(dtype)
            if xp is np or dtype.kind not in "iu" or kind_of(values.dtype) != "f":
                return found
            # NaN is outside, as for Discrete
            return jnp.where(jnp.isnan(values), self._outside(dtype), found)
        start = np.asarray(self.start).reshape(self.shape if isinstance(self.start, tuple) else ())
        return (values + start).astype(dtype)

    def _outside(self, dtype: np.dtype) -> np.ndarray:
        """Return integers outside the bounds, for NaN; the lowest if the dtype has none outside."""
        low, high = self.bounds(np.dtype(np.int64), dtype)
        least, most = np.iinfo(dtype).min, min(np.iinfo(dtype).max, np.iinfo(np.int64).max)
        above = np.where(high < most, np.minimum(high, most - 1) + 1, low)
        return np.where(low > least, np.maximum(low, least + 1) - 1, above).astype(dtype)

    def _wide(self, actions: Any) -> np.dtype:
        """Return the dtype for clipping actions: as wide as theirs, whole if the space is."""
        both = actions.dtype.kind in "biu" and self.dtype.kind in "biu"
        if not isinstance(actions, jax.Array):
            return np.dtype(np.int64 if both else np.float64)
        return actions.dtype if both or kind_of(actions.dtype) == "f" else np.dtype(np.float32)

    @functools.cached_property
    def integers(self) -> tuple[np.ndarray, np.ndarray]:
        """Return the lowest and highest of a Discrete or MultiDiscrete, int64."""
        least = np.asarray(self.start, np.int64)
        return least, least + np.asarray(getattr(self.space, "nvec", None) or self.space.n,
                                         np.int64) - 1

    @functools.cache  # noqa: B019 - one form an environment
    def bounds(self, dtype: np.dtype, final: np.dtype) -> tuple[np.ndarray, np.ndarray]:
        """Return a Box's low and high, `dtype` [*shape] or []: the nearest that `final` holds."""
        ends = [np.asarray(bound, np.float64) for bound in (self.space.low, self.space.high)]
        if kind_of(self.dtype) == "f":  # its own bounds have its dtype
            with np.errstate(over="ignore"):
                ends = [end.astype(self.dtype).astype(np.float64) for end in ends]
        for held in (final, dtype):
            if held.kind in "biu" or held.itemsize < dtype.itemsize:
                ends = [np.clip(end, *_limits(held)) for end in ends]
        low, high = (_inward(end, dtype, up) for end, up in zip(ends, (True, False), strict=True))
        return tuple(bound.reshape(self.shape) if bound.ndim else bound for bound in (low, high))

    def read(self, values: Any, stack: int = 1,
             name: str = "observation") -> tuple[Any, bool, bool]:
        """Check observations -> (ours [B, ...], whether one without batch axis, whether stacks).

        They may have the environment's form or ours, and be single frames or, with `stack` > 1,
        stacks along the channels. Raises ConfigError for another shape and for a dtype that would
        lose numbers; warns of an integer outside its space.
        """
        dtype, forms = np.dtype(self.space.dtype), self._forms(stack)
        traced = isinstance(values, jax.core.Tracer)
        stays = traced or (isinstance(values, jax.Array) and values.dtype == dtype)
        try:
            values = values if stays else np.asarray(values)
        except ValueError as error:
            got = f"a {type(values).__name__} whose parts have different shapes"
            raise expected(name, f"{dtype.name} numbers of shape {forms[0][0]}", got) from error
        kind = kind_of(values.dtype)
        if kind not in "biuf" or (kind == "f" and dtype.kind in "biu"):
            raise expected(name, f"{dtype.name} numbers of shape {forms[0][0]}",
                           f"{values.dtype.name} {values.shape}")
        fits = lambda shape: shape in (values.shape, values.shape[1:] if values.ndim else None)
        found = next((form for form in forms if fits(form[0])), None)
        if found is None:
            shapes = " or ".join(dict.fromkeys(str(shape) for shape, _, _ in forms))
            raise expected(name, f"of shape {shapes}, or a batch [B, ...] of these",
                           f"shape {values.shape}")
        shape, own, stacked = found
        single = values.shape == shape
        if not single and isinstance(values.shape[0], int) and not values.shape[0]:
            raise expected(name, "one observation, or a batch of at least one",
                           f"shape {values.shape}")
        values = values[None] if single else values
        if own and not stacked:
            return self.encode(values, name, warn_within), single, False
        values = self._narrowed(values, name)
        return self._ordered(values) if own else values, single, stacked

    def _forms(self, stack: int) -> list[tuple[tuple[int, ...], bool, bool]]:
        """Return (shape, environment's form?, stack?) of valid inputs of `read`, in order."""
        ours, forms = tuple(self.space.shape), [(self.shape, True, False)]
        along = lambda shape, axis: tuple(n * stack if i == axis % len(shape) else n
                                          for i, n in enumerate(shape))
        if stack > 1:
            forms.append((along(self.shape, 0), True, True) if self.channels_first
                         else (along(ours, -1), False, True))
        if ours != self.shape and isinstance(self.space, Box):
            forms += (
                [(ours, False, False)] + ([(along(ours, -1), False, True)] if stack > 1 else [])
            )
        return forms


@dataclasses.dataclass(frozen=True)
class OwnDict:
    """`Own` for a dict or tuple of spaces: `items` are (the environment's key, its form)."""

    items: tuple[tuple[Any, Own | OwnDict], ...]
    is_tuple: bool = False

    @property
    def space(self) -> Dict:
        return Dict.of(**{str(key): own.space for key, own in self.items})

    def encode(self, values: Any, name: str = "observations") -> dict[str, Any]:
        return {str(key): own.encode(values[key], f"{name}[{key!r}]") for key, own in self.items}

    def read(self, values: Any, stack: int = 1,
             name: str = "observation") -> tuple[dict[str, Any], bool, bool]:
        """Check as `Own.read`; a tuple may be a dict of its places. Dicts have no stacks."""
        if self.is_tuple and isinstance(values, (tuple, list)):
            values = {str(i): x for i, x in enumerate(values)}
        keys = [str(key) if isinstance(values, dict) and str(key) in values else key
                for key, _ in self.items]
        if not isinstance(values, dict) or len(values) != len(keys) or not all(
            key in values for key in keys
        ):
            got = (f"a dict with {', '.join(map(str, values))}" if isinstance(values, dict)
                   else type(values).__name__)
            raise expected(name, f"a {'tuple' if self.is_tuple else 'dict'} with "
                                 f"{', '.join(map(str, keys))}", got)
        parts = {}
        for key, (_, own) in zip(keys, self.items, strict=True):
            parts[str(key)] = own.read(values[key], 1, f"{name}[{key!r}]")
        (single, *others) = {single for _, single, _ in parts.values()}
        if others:
            raise expected(name, "one observation or a batch of them in all entries",
                           "one in some and a batch in others")
        sizes = [jax.tree.leaves(x)[0].shape[0] for x, _, _ in parts.values()]
        if any(size != sizes[0] for size in sizes):
            raise expected(name, "a batch of one size in all entries",
                           f"batches of {', '.join(map(str, sizes))}")
        return {key: x for key, (x, _, _) in parts.items()}, single, False


def own_of(space: Space) -> Own | OwnDict:
    """Return the form of an environment of ours."""
    if isinstance(space, Dict):
        return OwnDict(tuple((name, own_of(child)) for name, child in space.items))
    return Own(space, tuple(space.shape), np.dtype(space.dtype))


def _limits(dtype: np.dtype) -> tuple[float, float]:
    """Return the lowest and highest float64 that `dtype` holds."""
    if dtype.kind == "b":
        return 0.0, 1.0
    if kind_of(dtype) == "f":
        return float(jnp.finfo(dtype).min), float(jnp.finfo(dtype).max)
    low, high = int(np.iinfo(dtype).min), int(np.iinfo(dtype).max)
    return (
        float(low),
        float(high) if int(float(high)) == high else float(np.nextafter(float(high), 0.0))
    )


def _inward(bound: np.ndarray, dtype: np.dtype, up: bool) -> np.ndarray:
    """Return the nearest numbers of `dtype` at or above float64 bounds (`up`), or below."""
    if kind_of(dtype) != "f":
        return (np.ceil(bound) if up else np.floor(bound)).astype(dtype)
    with np.errstate(over="ignore"):
        near = bound.astype(dtype)
        further = np.nextafter(near, dtype.type(np.inf if up else -np.inf))
    return np.where(near < bound if up else near > bound, further, near)
