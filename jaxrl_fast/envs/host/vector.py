"""A `Vector` is some environments on the host, stepped together. Everything is NumPy.

    reset()                 -> obs [B]        fresh episodes in all of them
    send(action [B])                          begin a step
    receive()               -> HostStep       its outcome, and fresh episodes where one ended
    close()                                   kill() where they hang

Whatever a package calls its auto-reset, `receive` returns what `Env.step` of a device environment does: the true
successor (`next_obs`), both kinds of end apart, and what the agent sees next (`obs`).
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any, NamedTuple

import jax
import numpy as np


class HostStep(NamedTuple):
    """What one step of B environments brought. `next_obs` is `obs` itself where no episode ended."""

    obs: Any  # [B, ...] what the agent sees next, after a reset where the episode ended
    next_obs: Any  # [B, ...] the true successors
    reward: np.ndarray  # float32 [B], what is learned from
    terminated: np.ndarray  # bool [B]; a lost life too, where that ends an episode for the learner
    truncated: np.ndarray  # bool [B]
    score: np.ndarray  # float32 [B], the reward as the game counts it
    over: np.ndarray  # bool [B]: the game itself has ended
    real: np.ndarray | None = None  # bool [B]: False where the row is only a reset that could not be skipped; None: all are
    ids: np.ndarray | None = None  # int [B]: which environments of a vector that has `at_once`; None: all, in their order
    info: Mapping[str, np.ndarray] = {}  # numbers for the log [B], NaN where one is not reported (`reports`)


def at(tree: Any, mask: np.ndarray) -> Any:
    """The entries of a batch (NumPy arrays [B, ...]) where `mask` [B] is True."""
    return jax.tree.map(lambda x: x[mask], tree)


def put(tree: Any, mask: np.ndarray, values: Any) -> Any:
    """A copy of the batch with `values` where `mask` is True."""

    def one(x, values):
        x = np.array(x)
        x[mask] = values
        return x

    return jax.tree.map(one, tree, values)


class Vector:
    """`num_envs` environments on the host; see the text of the module."""

    num_envs: int
    name: str = "the environment"
    at_once: int | None = None  # how many environments a step is of, at most, where it is of those that come first
    steps_apart: bool = True  # whether the step goes on between `send` and `receive`, beside the thread that waits

    def reset(self) -> Any:
        raise NotImplementedError

    def send(self, action: np.ndarray, ids: np.ndarray | None = None) -> None:
        """ids: of which environments, of a vector that has `at_once`."""
        raise NotImplementedError

    def receive(self) -> HostStep:
        raise NotImplementedError

    def failed(self, error: BaseException) -> str:
        """What an error of one of its functions means, where that is known here: processes that are no more."""
        return ""

    def kill(self) -> None:
        """End the processes that a step may hang in, at once: the thread that waits for it gets an error. From any thread."""

    def close(self) -> None:
        pass

    def render(self) -> np.ndarray | None:
        """The first environment as uint8 [H, W, 3] as its last step left it, before any reset.

        None where it cannot be drawn, or has begun the next episode already.
        """
        return None


class Wrapped(Vector):
    """Everything as in `vector`."""

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
    """A lost life ends an episode for the learner; the game goes on. `vector` has `lives` [B], those of its last step."""

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
    """`vector` with its rewards scaled, then clipped to [-clip, clip]; its scores stay."""

    def __init__(self, vector: Vector, scale: float, clip: float | None):
        super().__init__(vector)
        self.scale, self.clip = scale, clip

    def receive(self):
        step = self.vector.receive()
        reward = step.reward * np.float32(self.scale)
        if self.clip is not None:
            reward = np.clip(reward, -self.clip, self.clip)
        return step._replace(reward=reward.astype(np.float32))


def picture(obs: np.ndarray, scale: int = 3) -> np.ndarray | None:
    """The newest frame [H, W, 1 or 3] of the first environment as it is seen by the agent, enlarged; None for no picture."""
    if not isinstance(obs, np.ndarray) or obs.ndim != 4 or obs.dtype != np.uint8 or obs.shape[-1] not in (1, 3):
        return None
    return np.broadcast_to(obs[0].repeat(scale, 0).repeat(scale, 1), (*np.multiply(obs.shape[1:3], scale), 3)).copy()
