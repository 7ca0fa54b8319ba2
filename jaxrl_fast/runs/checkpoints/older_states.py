"""States of older versions: fill in what newer states have gained."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Any

import jax
import numpy as np

from jaxrl_fast.memory.ring import successors_of
from jaxrl_fast.types import RunState


def drop_missing(like: Any, written: Mapping[str, Any]) -> Any:
    """Return `like` (shapes) without fields missing in `written`, nested dicts of leaf names."""
    if not isinstance(like, RunState):
        return _drop_empty(like, written)
    like = like._replace(agent=_drop_empty(like.agent, written["agent"]))
    if "lost" not in written["episodes"]:
        like = like._replace(episodes={"ret": like.episodes.ret, "length": like.episodes.length})
    return like._replace(memory=_drop_successors(like.memory, written.get("memory")))


def complete(state: Any, like: Any) -> Any:
    """Return a state in the form of `like`, zeros where `drop_missing` dropped a field."""
    if not isinstance(like, RunState):
        return _complete_agent(state, like)
    state = state._replace(agent=_complete_agent(state.agent, like.agent))
    zeros = lambda x: jax.device_put(np.zeros(x.shape, x.dtype), x.sharding)
    if isinstance(state.episodes, dict):
        episodes = state.episodes["ret"], state.episodes["length"], zeros(like.episodes.lost)
        state = state._replace(episodes=type(like.episodes)(*episodes))
    return state._replace(memory=_complete_memory(state.memory, like.memory, zeros))


def _drop_empty(like: Any, written: Any) -> Any:
    """Drop an agent's empty fields without a name in the checkpoint; orbax would miss them."""
    fields = like._asdict() if hasattr(like, "_asdict") else {}
    gained = [name for name, value in fields.items() if name not in (written or {})
              and not jax.tree.leaves(value)]
    return {name: value for name, value in fields.items() if name not in gained} if gained else like


def _complete_agent(state: Any, like: Any) -> Any:
    lacks = isinstance(state, dict) and hasattr(like, "_replace")
    return like._replace(**state) if lacks else state


def _inner(memory: Any) -> str | None:
    """Return the field with a memory's rows, if they stand beside something else."""
    return next((name for name in ("rows", "row") if hasattr(memory, name)), None)


def _drop_successors(memory: Any, written: Any) -> Any:
    """Drop the successors of truncated rows if the checkpoint has none: empty, or no such name."""
    name = _inner(memory)
    if name is not None:
        return memory._replace(**{name: _drop_successors(getattr(memory, name), written[name])})
    if successors_of(memory) is None or (written or {}).get("next_obs"):
        return memory
    if "next_obs" in (written or {}):
        return memory._replace(next_obs=())
    return {field: value for field, value in memory._asdict().items() if field != "next_obs"}


def _complete_memory(memory: Any, like: Any, zeros: Callable[[Any], Any]) -> Any:
    """Return a memory with a place for successors; its old truncated rows are not learned from."""
    name = _inner(like)
    if name is not None:
        inner = _complete_memory(getattr(memory, name), getattr(like, name), zeros)
        return memory._replace(**{name: inner})
    kept = successors_of(like)
    if isinstance(memory, dict) and hasattr(like, "_replace"):
        return like._replace(**memory, next_obs=jax.tree.map(zeros, kept))
    if kept is not None and successors_of(memory) is None:
        return memory._replace(next_obs=jax.tree.map(zeros, kept))
    return memory
