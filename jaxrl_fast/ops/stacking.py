"""Frame stacks: environments emit single frames, the agent sees the last k, oldest first.

Frames are stacked along the last axis; at an episode's start its first frame is repeated. Every
function is the identity for k = 1.
"""

from __future__ import annotations

from typing import Any

import jax
import jax.numpy as jnp
import numpy as np

from jaxrl_fast import tree
from jaxrl_fast.ops.scopes import PREPROCESS, scope
from jaxrl_fast.spaces import zeros
from jaxrl_fast.types import EnvSpec, Trajectory


def start(frame: Any, k: int) -> Any:
    """Return the stack of an episode's first frame [..., C] -> [..., k C]."""
    return frame if k == 1 else jax.tree.map(lambda x: jnp.concatenate([x] * k, axis=-1), frame)


def newest(stacked: Any, k: int) -> Any:
    """Return the newest frame of a stack [..., k C] -> [..., C]."""
    return stacked if k == 1 else jax.tree.map(lambda x: x[..., -(x.shape[-1] // k) :], stacked)


def push(stacked: Any, frame: Any, k: int) -> Any:
    """Drop the oldest frame and append `frame`."""
    if k == 1:
        return frame
    return jax.tree.map(lambda s, f: jnp.concatenate([s[..., f.shape[-1] :], f], axis=-1),
                        stacked, frame)


def advance(stacked: Any, frame: Any, done: jax.Array, k: int) -> Any:
    """Return the next stack [B], new where the episode ended."""
    with scope(PREPROCESS):
        return frame if k == 1 else tree.where(done, start(frame, k), push(stacked, frame, k))


def observations(trajectory: Trajectory, k: int) -> Any:
    """Return the observations that the agent saw, [T, B, ..., k C]."""
    steps = trajectory.steps
    if k == 1:
        return steps.obs
    t = jnp.arange(len(steps.done), dtype=jnp.int32)[:, None]
    # start of row t + 1's episode; the first has its stack
    begun = jnp.where(steps.done, t + 1, 1 - k)
    begun = jax.lax.cummax(jnp.concatenate([jnp.full_like(begun[:1], 1 - k), begun[:-1]]))
    # [T, B, k] of all there are
    frame = jnp.maximum(t[..., None] + jnp.arange(k, dtype=jnp.int32), begun[..., None] + k - 1)

    # one gather: a scan that pushes frames takes three times as long on a CPU
    def one(first, frames):
        older = jnp.moveaxis(first.reshape(*first.shape[:-1], k, -1)[..., :-1, :], -2, 0)
        x = jax.vmap(lambda x, i: x[i], (1, 1), 1)(jnp.concatenate([older, frames]), frame)
        return jnp.moveaxis(x, 2, -2).reshape(*frames.shape[:-1], -1)

    with scope(PREPROCESS):
        return jax.tree.map(one, trajectory.first_obs, steps.obs)


def successors(trajectory: Trajectory, k: int, t: jax.Array | None = None) -> Any:
    """Return the true successors as the agent would see them, [T, B, ..., k C], or of time t."""
    index = lambda x: x if t is None else jax.lax.dynamic_index_in_dim(x, t, 0, keepdims=False)
    at = lambda xs: jax.tree.map(index, xs)
    frame = at(trajectory.steps.next_obs)
    return frame if k == 1 else push(at(observations(trajectory, k)), frame, k)


def example(spec: EnvSpec, batch: tuple[int, ...] = (1,)) -> Any:
    """Return zeros shaped like the agent's observation."""
    return start(zeros(spec.observation, batch), spec.stack)


def along(entries: np.ndarray, obs: Any) -> np.ndarray:
    """Repeat a property of each entry of a frame [..., C] for stacks [..., k C]."""
    if (entries == entries.flat[0]).all():
        return np.asarray(entries.flat[0])
    return np.concatenate([entries] * (obs.shape[-1] // entries.shape[-1]), axis=-1)
