"""A `Vector`: environments on the host, stepped together. Everything is NumPy.

    reset()                 -> obs [B]        new episodes in all environments
    send(action [B])                          begin a step
    receive()               -> HostStep       its outcome, with new episodes after an end
    close()                                   kill() for hanging environments

`receive` returns what `Env.step` of a device environment does, with any auto-reset of a package.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any, NamedTuple

import jax
import numpy as np


class HostStep(NamedTuple):
    """The outcome of a step of B environments; `next_obs` is `obs` if no episode ended."""

    obs: Any  # [B, ...] the agent's next observation, after a reset at an end
    next_obs: Any  # [B, ...] the true successors
    reward: np.ndarray  # float32 [B], the learner's reward
    terminated: np.ndarray  # bool [B]; also a lost life that ends the learner's episode
    truncated: np.ndarray  # bool [B]
    score: np.ndarray  # float32 [B], the game's own reward
    over: np.ndarray  # bool [B]: the game itself has ended
    real: np.ndarray | None = None  # bool [B]: False for a row that is only a reset; None: all True
    # int [B]: environments of a vector with `at_once`; None: all, in order
    ids: np.ndarray | None = None
    info: Mapping[str, np.ndarray] = {}  # numbers for the log [B], NaN if not reported (`reports`)


def put(tree: Any, mask: np.ndarray, values: Any) -> Any:
    """Return a copy of the batch with `values` where `mask` is True."""

    def one(x, values):
        x = np.array(x)
        x[mask] = values
        return x

    return jax.tree.map(one, tree, values)


class Vector:
    """`num_envs` environments on the host; the module's text lists the methods."""

    num_envs: int
    name: str = "the environment"
    at_once: int | None = None  # environments of a step at most, if they come first
    # whether the step continues between `send` and `receive`, beside the thread
    steps_apart: bool = True
    shown: Any = None  # observations of the last step, before any reset

    def reset(self) -> Any:
        raise NotImplementedError

    def send(self, action: np.ndarray, ids: np.ndarray | None = None) -> None:
        """Begin a step; ids: the environments, for a vector with `at_once`."""
        raise NotImplementedError

    def receive(self) -> HostStep:
        raise NotImplementedError

    def failed(self, error: BaseException) -> str:
        """Explain an error of one of its functions, if known: dead processes, for example."""
        return ""

    def kill(self) -> None:
        """End the processes of a hanging step, from any thread; the waiting one gets an error."""

    def close(self) -> None:
        pass

    def render(self) -> np.ndarray | None:
        """Draw the first environment, uint8 [H, W, 3]; None if not possible or after a reset."""
        return picture(self.shown)


class Wrapped(Vector):
    """Forwards everything to `vector`."""

    def __init__(self, vector: Vector):
        self.vector, self.num_envs = vector, vector.num_envs
        self.steps_apart, self.at_once = vector.steps_apart, vector.at_once

    def reset(self):
        return self.vector.reset()

    def send(self, action, *ids):
        self.vector.send(action, *ids)

    def receive(self):
        return self.vector.receive()

    def kill(self):
        self.vector.kill()

    def close(self):
        self.vector.close()

    def render(self):
        return self.vector.render()


class Lives(Wrapped):
    """A lost life ends an episode for the learner (vector's `lives` [B]); the game continues."""

    def reset(self):
        obs = self.vector.reset()
        self.before = self.vector.lives
        return obs

    def receive(self):
        step = self.vector.receive()
        lives = self.vector.lives
        if lives is None:
            return step
        which = slice(None) if step.ids is None else step.ids
        lost = (lives < self.before[which]) & ~step.over
        self.before = put(self.before, which, lives)
        return step._replace(terminated=step.terminated | lost)


class Rewards(Wrapped):
    """Scales, then clips the vector's rewards to [-clip, clip]; its scores stay."""

    def __init__(self, vector: Vector, scale: float, clip: float | None):
        super().__init__(vector)
        self.scale, self.clip = scale, clip

    def receive(self):
        step = self.vector.receive()
        reward = step.reward * np.float32(self.scale)
        if self.clip is not None:
            reward = np.clip(reward, -self.clip, self.clip)
        return step._replace(reward=reward.astype(np.float32))


def picture(obs: Any, scale: int = 3) -> np.ndarray | None:
    """Enlarge the first environment's newest frame [H, W, 1 or 3]; None for other observations."""
    if not isinstance(obs, np.ndarray) or obs.ndim != 4 or obs.dtype != np.uint8 or obs.shape[
        -1
    ] not in (1, 3):
        return None
    shape = (*np.multiply(obs.shape[1:3], scale), 3)
    return np.broadcast_to(obs[0].repeat(scale, 0).repeat(scale, 1), shape).copy()
