"""Our spaces as Gymnasium's, and their values: actions in, observations out.

`envs.host.gymnasium_spaces` translates the other way.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Any

import numpy as np
from gymnasium import spaces

from jaxrl_fast.envs.own_spaces import own_of
from jaxrl_fast.errors import ConfigError
from jaxrl_fast.spaces import Box, Dict, Discrete, MultiDiscrete, Space


def to_space(space: Space, stack: int = 1) -> spaces.Space:
    """Return a space as Gymnasium's; stack: frames along a Box's last axis. Integers are int64."""
    if isinstance(space, Dict):
        return spaces.Dict({name: to_space(child, stack) for name, child in space.items})
    if isinstance(space, Discrete):
        return spaces.Discrete(space.n)
    if isinstance(space, MultiDiscrete):
        return spaces.MultiDiscrete(space.nvec)
    return spaces.Box(*(np.concatenate([b] * stack, -1) if stack > 1 else b
                        for b in _bounds(space)), dtype=space.dtype)


def _bounds(space: Space) -> tuple[np.ndarray, np.ndarray]:
    """Return the lowest and highest value, of the space's shape and dtype."""
    own = own_of(space)
    ends = own.bounds(own.dtype, own.dtype) if isinstance(space, Box) else own.integers
    return tuple(np.broadcast_to(end, space.shape).astype(space.dtype) for end in ends)


def reader(space: Space, num_envs: int | None, name: str) -> Callable[[Any], Any]:
    """Return a function that checks actions and returns them as [B, ...]; None: one action."""
    if isinstance(space, Dict):
        readers = {key: reader(child, num_envs, f"{name}[{key!r}]") for key, child in space.items}

        def read_all(value):
            if not isinstance(value, Mapping) or value.keys() != readers.keys():
                raise ConfigError(name, value, f"a dict with {', '.join(readers)}")
            return {key: read(value[key]) for key, read in readers.items()}

        return read_all

    shape = space.shape if num_envs is None else (num_envs, *space.shape)
    low, high = _bounds(space)
    smallest, largest = np.max(low).item(), np.min(high).item()
    uniform = bool(np.all(low == smallest) and np.all(high == largest))
    floating = np.issubdtype(space.dtype, np.floating)
    # slow to ask each time
    known = {np.dtype(c) for c in "?bhilqBHILQefd" if np.can_cast(c, space.dtype, "same_kind")}

    def read(value):
        try:
            value = np.asarray(value)
        except ValueError as error:  # lists of several lengths
            raise ConfigError(name, type(value).__name__,
                              f"an array of shape {shape}: {error}") from None
        if value.shape != shape:
            raise ConfigError(f"{name}.shape", value.shape, str(shape))
        if value.dtype not in known and not np.can_cast(value.dtype, space.dtype, "same_kind"):
            raise ConfigError(f"{name}.dtype", value.dtype.name,
                              f"one that goes into {space.dtype.name}")
        if floating:  # before the comparison: a bound is rounded too
            value = value.astype(space.dtype, copy=False)
        # NaN is never inside. If all entries have the same bounds, the two extremes are enough.
        extremes = (f(value, axis=None) for f in (np.minimum.reduce, np.maximum.reduce))
        if not (uniform and all(smallest <= x <= largest for x in extremes)):
            inside = (value >= low) & (value <= high)
            if not np.all(inside):
                raise _outside(name, value, np.argwhere(~inside)[0], low, high)
        value = value.astype(space.dtype, copy=False)
        return value[None] if num_envs is None else value

    return read


def _outside(name: str, value: np.ndarray, index: np.ndarray,
             low: np.ndarray, high: np.ndarray) -> ConfigError:
    """Return the error about the entry of `value` at `index`."""
    at = tuple(int(i) for i in index)
    bounds = [np.broadcast_to(b, value.shape)[at].item() for b in (low, high)]
    place = f"{name}[{', '.join(map(str, at))}]" if at else name
    return ConfigError(place, value[at].item(), f"from {bounds[0]} to {bounds[1]}")


def writer(space: Space, single: bool, copy: bool) -> Callable[[Any], Any]:
    """Return a function that takes observations [B, ...] (single: one) to the host."""
    if isinstance(space, Dict):
        writers = {name: writer(child, single, copy) for name, child in space.items}
        return lambda obs: {name: write(obs[name]) for name, write in writers.items()}
    if single:
        if isinstance(space, Discrete):
            return lambda obs: np.int64(np.asarray(obs)[0])
        dtype = space.dtype if isinstance(space, Box) else np.int64
        return lambda obs: np.array(np.asarray(obs)[0], dtype)
    if not isinstance(space, Box):
        return lambda obs: np.asarray(obs).astype(np.int64)
    return (lambda obs: np.asarray(obs).copy()) if copy else np.asarray
