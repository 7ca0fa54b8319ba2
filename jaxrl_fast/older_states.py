"""States as older versions wrote them, for checkpoints that are read today: what the state has gained is filled in."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import jax
import numpy as np

from jaxrl_fast.types import RunState


def as_written(like: Any, written: Mapping[str, Any]) -> Any:
    """`like` (shapes) without the fields that the checkpoint lacks. written: the names of its leaves as nested dicts."""
    if not isinstance(like, RunState) or "lost" in written["episodes"]:
        return like
    return like._replace(episodes={"ret": like.episodes.ret, "length": like.episodes.length})


def completed(state: Any, like: Any) -> Any:
    """A state of the form that `as_written` gave, as `like`."""
    if not isinstance(like, RunState) or not isinstance(state.episodes, dict):
        return state
    lost = like.episodes.lost
    zeros = jax.device_put(np.zeros(lost.shape, lost.dtype), lost.sharding)
    return state._replace(episodes=type(like.episodes)(state.episodes["ret"], state.episodes["length"], zeros))
