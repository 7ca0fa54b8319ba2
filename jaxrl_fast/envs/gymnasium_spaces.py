"""Gymnasium's spaces as ours, and what goes between the two: observations to us, actions from us. Batched, NumPy."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any

import numpy as np

from jaxrl_fast.errors import ConfigError
from jaxrl_fast.spaces import Box, Dict, Discrete, MultiDiscrete, Space

_HELP = {
    "Text": "one without Text: a gymnasium.wrappers.TransformObservation that encodes it",
    "Graph": "one without Graph: a gymnasium.wrappers.TransformObservation that makes arrays of a fixed size of it",
    "Sequence": "one without Sequence: a gymnasium.wrappers.TransformObservation that pads it",
    "OneOf": "one without OneOf: a gymnasium.wrappers.TransformAction that chooses among the spaces",
}


_KINDS = ("Box", "Discrete", "MultiDiscrete", "MultiBinary", "Dict", "Tuple")


def _kind(space: Any) -> str:
    """Which of Gymnasium's classes it is an instance of; a library's own may be made from one."""
    from gymnasium import spaces

    return next((name for name in (*_KINDS, *_HELP) if isinstance(space, getattr(spaces, name))), type(space).__name__)


def space_of(space: Any, name: str = "environment") -> Space:
    """Our space for one of Gymnasium's; ConfigError, with the wrapper that helps, where there is none.

    Pictures [H, W] of bytes get a channel; numbers of 64 bits become 32; a Tuple is a Dict of its places.
    """
    kind = _kind(space)
    if kind == "Discrete":
        return Discrete(int(space.n))
    if kind == "MultiDiscrete":
        return MultiDiscrete(tuple(int(n) for n in np.ravel(space.nvec)))
    if kind == "MultiBinary":
        return MultiDiscrete((2,) * int(np.prod(space.shape)))
    if kind == "Box":
        low, high = (tuple(float(x) for x in np.ravel(bound)) for bound in (space.low, space.high))
        return Box(low, high, _shape(space), _narrow(space.dtype))
    if kind in ("Dict", "Tuple"):
        items = space.spaces.items() if kind == "Dict" else ((str(i), s) for i, s in enumerate(space.spaces))
        return Dict.of(**{str(key): space_of(inner, name) for key, inner in items})
    raise ConfigError(name, kind, _HELP.get(kind, f"one of {', '.join(_KINDS)}"))


def _shape(space: Any) -> tuple[int, ...]:
    """Of a Box; a grey picture has a channel."""
    return (*space.shape, 1) if len(space.shape) == 2 and space.dtype == np.uint8 else space.shape


def _narrow(dtype: Any) -> np.dtype:
    return {"float64": np.dtype("float32"), "int64": np.dtype("int32"), "uint64": np.dtype("uint32")}.get(
        np.dtype(dtype).name, np.dtype(dtype)
    )


def encoder(space: Any) -> Callable[[Any], Any]:
    """From a batch of Gymnasium's observations to ours."""
    kind = _kind(space)
    if kind in ("Dict", "Tuple"):
        keys = list(space.spaces) if kind == "Dict" else range(len(space.spaces))
        inner = {key: encoder(space.spaces[key]) for key in keys}
        return lambda obs: {str(key): encode(obs[key]) for key, encode in inner.items()}
    if kind == "Discrete":
        return lambda obs: (np.asarray(obs) - space.start).astype(np.int32)
    if kind == "MultiDiscrete":
        start = np.ravel(space.start)
        return lambda obs: (np.asarray(obs).reshape(len(obs), -1) - start).astype(np.int32)
    if kind == "MultiBinary":
        return lambda obs: np.asarray(obs).reshape(len(obs), -1).astype(np.int32)
    dtype, shape = _narrow(space.dtype), _shape(space)
    return lambda obs: np.asarray(obs, dtype).reshape(-1, *shape)


def decoder(space: Any) -> Callable[[np.ndarray], np.ndarray]:
    """From a batch of our actions to Gymnasium's: whole numbers from the space's start, others within its bounds."""
    kind = _kind(space)
    if kind in ("Discrete", "MultiDiscrete"):
        start, shape = np.asarray(space.start), space.shape
        return lambda action: (action.reshape(-1, *shape) + start).astype(space.dtype)
    if kind == "MultiBinary":
        return lambda action: action.reshape(-1, *space.shape).astype(space.dtype)
    return lambda action: np.clip(action.reshape(-1, *space.shape), space.low, space.high).astype(space.dtype)


def stack(observations: Sequence[Any]) -> Any:
    """Single observations, as an environment gives them, as a batch."""
    first = observations[0]
    if isinstance(first, dict):
        return {key: stack([obs[key] for obs in observations]) for key in first}
    if isinstance(first, tuple):
        return tuple(stack([obs[i] for obs in observations]) for i in range(len(first)))
    return np.stack([np.asarray(obs) for obs in observations])


def last_channels(space: Space) -> Space:
    """A space of pictures [C, H, W] as one of [H, W, C]; any other as it is."""
    if not isinstance(space, Box) or len(space.shape) != 3 or space.dtype != np.uint8:
        return space
    channels, height, width = space.shape
    return Box(space.low, space.high, (height, width, channels), space.dtype)


def channels_last(obs: Any) -> Any:
    """The same for a batch of observations; without a copy where there is one channel."""
    if not isinstance(obs, np.ndarray) or obs.ndim != 4 or obs.dtype != np.uint8:
        return obs
    batch, channels, height, width = obs.shape
    return obs.reshape(batch, height, width, 1) if channels == 1 else np.ascontiguousarray(np.moveaxis(obs, 1, -1))


PICTURE = 16  # pixels: what is smaller may be a grid of things


def _has_channels_first(space: Any, smallest: int) -> bool:
    """Whether it is pictures [C, H, W]: at most 4 channels, and `smallest` pixels or more either way."""
    pictures = _kind(space) == "Box" and space.dtype == np.uint8 and len(space.shape) == 3
    return pictures and space.shape[0] <= 4 and min(space.shape[1:]) >= smallest


def picture_space(space: Any, smallest: int = PICTURE) -> Space:
    """`space_of`, where pictures may have their channels first or last."""
    return last_channels(space_of(space)) if _has_channels_first(space, smallest) else space_of(space)


def picture_encoder(space: Any, smallest: int = PICTURE) -> Callable[[Any], Any]:
    """`encoder` to `picture_space`."""
    encode = encoder(space)
    return (lambda obs: channels_last(encode(obs))) if _has_channels_first(space, smallest) else encode
