"""States of older versions: fill in what newer states have gained."""

from __future__ import annotations

from collections.abc import Mapping
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
    if _lacks_successors(like.memory, written.get("memory")):
        like = like._replace(memory=_with_successors(like.memory, ()))
    return like


def complete(state: Any, like: Any) -> Any:
    """Return a state in the form of `like`, zeros where `drop_missing` dropped a field."""
    if not isinstance(like, RunState):
        return _complete_agent(state, like)
    state = state._replace(agent=_complete_agent(state.agent, like.agent))
    zeros = lambda x: jax.device_put(np.zeros(x.shape, x.dtype), x.sharding)
    if isinstance(state.episodes, dict):
        episodes = state.episodes["ret"], state.episodes["length"], zeros(like.episodes.lost)
        state = state._replace(episodes=type(like.episodes)(*episodes))
    kept = _successors(like.memory)
    if kept is not None and _successors(state.memory) is None:  # old truncated rows
        state = state._replace(memory=_with_successors(state.memory, jax.tree.map(zeros, kept)))
    return state


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


def _successors(memory: Any) -> Any:
    name = _inner(memory)
    return successors_of(memory) if name is None else _successors(getattr(memory, name))


def _with_successors(memory: Any, kept: Any) -> Any:
    name = _inner(memory)
    if name is None:
        return memory._replace(next_obs=kept)
    return memory._replace(**{name: _with_successors(getattr(memory, name), kept)})


def _lacks_successors(memory: Any, written: Any) -> bool:
    name = _inner(memory)
    if name is not None:
        return _lacks_successors(getattr(memory, name), written[name])
    return successors_of(memory) is not None and not (written or {}).get("next_obs")
