"""Gymnasium's spaces as ours, and their values: observations in, actions out."""

from __future__ import annotations

import dataclasses
import warnings
from typing import Any

import numpy as np

from jaxrl_fast.envs.own_spaces import Own, OwnDict
from jaxrl_fast.errors import ConfigError
from jaxrl_fast.spaces import Box, Dict, Discrete, MultiDiscrete, Space
from jaxrl_fast.types import EnvSpec

_HELP = {
    "Text": "one without Text: a gymnasium.wrappers.TransformObservation that encodes it",
    "Graph": "one without Graph: a gymnasium.wrappers.TransformObservation that makes arrays of a "
             "fixed size of it",
    "Sequence": "one without Sequence: a gymnasium.wrappers.TransformObservation that pads it",
    "OneOf": "one without OneOf: gymnasium.wrappers.TransformAction can choose among the spaces",
}
_KINDS = ("Box", "Discrete", "MultiDiscrete", "MultiBinary", "Dict", "Tuple")
_NARROW = {"float64": "float32", "int64": "int32", "uint64": "uint32"}
PICTURE = 16  # pixels: smaller arrays may be grids of objects


def _kind(space: Any) -> str:
    """Return the name of its Gymnasium class; libraries may subclass one."""
    from gymnasium import spaces

    return next((name for name in (*_KINDS, *_HELP) if isinstance(space, getattr(spaces, name))),
                type(space).__name__)


def space_of(space: Any, name: str = "environment") -> Space:
    """Return our space for Gymnasium's; raises ConfigError, with the wrapper that helps.

    Byte pictures [H, W] get a channel; 64 bits become 32; a Tuple is a Dict of its places.
    """
    kind = _kind(space)
    if kind == "Discrete":
        return Discrete(int(space.n))
    if kind == "MultiDiscrete":
        return MultiDiscrete(tuple(int(n) for n in np.ravel(space.nvec)))
    if kind == "MultiBinary":
        return MultiDiscrete((2,) * int(np.prod(space.shape)))
    if kind == "Box":
        if 0 in space.shape:
            raise ConfigError(name, str(space), "a Box with at least one entry")
        low, high = (tuple(float(x) for x in np.ravel(bound)) for bound in (space.low, space.high))
        grey = len(space.shape) == 2 and space.dtype == np.uint8
        return Box(low, high, (*space.shape, 1) if grey else space.shape, _narrow(space.dtype))
    if kind in ("Dict", "Tuple"):
        return Dict.of(**{str(key): space_of(inner, f"{name}[{key!r}]")
                          for key, inner in _items(space)})
    raise ConfigError(name, kind, _HELP.get(kind, f"one of {', '.join(_KINDS)}"))


def _items(space: Any) -> list[tuple[Any, Any]]:
    """Return the spaces of a Dict by name, or of a Tuple by place."""
    return list(space.spaces.items() if _kind(space) == "Dict" else enumerate(space.spaces))


def _narrow(dtype: Any) -> np.dtype:
    return np.dtype(_NARROW.get(np.dtype(dtype).name, dtype))


def own_form(space: Any, smallest: int | None = None, name: str = "environment") -> Own | OwnDict:
    """Return how values of a Gymnasium space are written there.

    smallest: pixels a side from which an array of at most 4 bytes [C, H, W] is a picture; None:
    never. name: for errors.
    """
    kind = _kind(space)
    if kind in ("Dict", "Tuple"):
        found = OwnDict(tuple((key, own_form(x, name=f"{name}[{key!r}]"))
                              for key, x in _items(space)), kind == "Tuple")
        if not found.items:
            raise ConfigError(name, str(space), "one with at least one space in it")
        return found
    ours, shape = space_of(space, name), tuple(space.shape)
    pictures = kind == "Box" and space.dtype == np.uint8 and len(shape) == 3 and shape[0] <= 4
    first = pictures and smallest is not None and min(shape[1:]) >= smallest
    if first:
        ours = dataclasses.replace(ours, shape=(*shape[1:], shape[0]))
    start = getattr(space, "start", 0)
    start = tuple(int(x) for x in np.ravel(start)) if np.ndim(start) else int(start)
    return Own(ours, shape, np.dtype(space.dtype), start, first)


def _warn_of_wide(name: str, space: Any) -> None:
    """Warn of bounds beyond int32. The limits of the space's own dtype mean no bounds."""
    kind = _kind(space)
    if kind in ("Dict", "Tuple"):
        for _, inner in _items(space):
            _warn_of_wide(name, inner)
    if kind != "Box" or space.dtype.kind not in "iu" or _narrow(space.dtype) == space.dtype:
        return
    own, limits = np.iinfo(space.dtype), np.iinfo(_narrow(space.dtype))
    wide = [int(x) for x in (*np.ravel(space.low), *np.ravel(space.high))
            if x not in (own.min, own.max)]
    wide = [x for x in wide if not limits.min <= x <= limits.max]
    if wide:
        warnings.warn(
            f"{name}: observations of {space.dtype} may reach {max(wide, key=abs)}, devices hold "
            f"{limits.min} to {limits.max}: a run ends at the first one beyond; "
            "gymnasium.wrappers.TransformObservation scales them",
            stacklevel=2,
        )


def spec_of(name: str, observation: Any, action: Any, limit: int | None,
            smallest: int = PICTURE) -> EnvSpec:
    """Return the spec of an environment with these spaces."""
    seen = own_form(observation, smallest, f"{name}: observation_space")
    done = own_form(action, name=f"{name}: action_space")
    _warn_of_wide(name, observation)
    return EnvSpec(name, seen.space, done.space, limit, own_observation=seen, own_action=done)
