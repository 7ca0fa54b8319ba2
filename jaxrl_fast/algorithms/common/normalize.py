"""Running normalisation of observations and rewards; agents hold the statistics, () without."""

from __future__ import annotations

from typing import Any, NamedTuple

import jax
import jax.numpy as jnp
import numpy as np

from jaxrl_fast import tree
from jaxrl_fast.ops import returns
from jaxrl_fast.ops.scopes import PREPROCESS, scope
from jaxrl_fast.ops.stacking import along
from jaxrl_fast.ops.statistics import Moments
from jaxrl_fast.spaces import Box, Dict, Space
from jaxrl_fast.types import Timestep, Trajectory


def init_moments(wanted: bool, obs: Any) -> Any:
    """Return empty statistics for observations like the batch `obs`, () if not wanted."""
    return Moments.init(tree.take(obs, 0)) if wanted else ()


def normalize_obs(space: Space, moments: Any, obs: Any) -> Any:
    """Return the observation with entries normalised that have no scale of their own."""
    with scope(PREPROCESS):
        return obs if moments == () else normalized(space, moments.normalize(obs), obs)


def update_moments(moments: Any, obs: Any, use: jax.Array | None = None) -> Any:
    """Return the statistics after observations [T, B, ...], or their rows `use`; for `finish`."""
    return moments if moments == () else moments.update(obs, use)


def normalized(space: Space, normal: Any, raw: Any) -> Any:
    """Return `normal` for entries without a scale of their own (`Box.unscaled`), else `raw`."""
    if isinstance(space, Dict):
        return {name: normalized(child, normal[name], raw[name]) for name, child in space.items}
    unscaled = space.unscaled if isinstance(space, Box) else np.zeros((), bool)
    if unscaled.all():
        return normal
    return jnp.where(along(unscaled, raw), normal, raw) if unscaled.any() else raw


class Rewards(NamedTuple):
    """Statistics that divide rewards by the running deviation of the discounted return.

    reward_t / std(G), clipped to +-10, with G_t = r_t + gamma (1 - done_{t-1}) G_{t-1} over all
    steps so far, as OpenAI baselines' `VecNormalize`.
    """

    moments: Moments  # of the discounted return so far, at every step
    running: jax.Array  # float32 [num_envs]: the running return, 0 at an episode's start

    __repr__ = tree.summary

    @classmethod
    def init(cls, wanted: bool, num_envs: int) -> Any:
        """Return empty statistics, () if not wanted."""
        return cls(Moments.init(jnp.float32(0)), jnp.zeros(num_envs, jnp.float32)) if wanted else ()

    def update(self, steps: Timestep, discount: Any) -> Rewards:
        """Return the statistics after a rollout [T, num_envs]; call it before `normalize`."""
        running, so_far = returns.returns_so_far(self.running, steps.reward, steps.done, discount)
        real = None if isinstance(steps.reset_only, tuple) else ~steps.reset_only
        return Rewards(self.moments.update(so_far, real), running)

    def seam(self) -> Rewards:
        """Return the statistics for environments that start anew."""
        return self._replace(running=jnp.zeros_like(self.running))

    def normalize(self, reward: jax.Array, clip: float = 10.0) -> jax.Array:
        """Divide and clip; a return that does not vary (in float32) divides nothing."""
        count, mean, m2 = self.moments
        variance = m2 / jnp.maximum(count, 1.0)
        varies = variance > jnp.square(1e-6 * mean)
        return jnp.clip(reward / jnp.sqrt(jnp.where(varies, variance, 1.0)), -clip, clip)


def observe_rewards(algo: Any, agent: Any, trajectory: Trajectory) -> Any:
    """Return the agent with the statistics of a new rollout: `observe` of an algorithm."""
    if not algo.normalize_reward:
        return agent
    return agent._replace(rewards=agent.rewards.update(trajectory.steps, algo.discount))


def seam_rewards(algo: Any, agent: Any) -> Any:
    """Return the agent for environments that start anew: `seam` of an algorithm."""
    return agent._replace(rewards=agent.rewards.seam()) if algo.normalize_reward else agent


def normalize_rewards(algo: Any, agent: Any, reward: jax.Array) -> jax.Array:
    """Return the learner's rewards, normalised if set."""
    return agent.rewards.normalize(reward) if algo.normalize_reward else reward
