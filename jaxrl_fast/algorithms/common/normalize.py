"""Running normalisation of observations and rewards, for algorithms that offer it: the statistics are part of the agent."""

from __future__ import annotations

from typing import Any, NamedTuple

import jax
import jax.numpy as jnp
import numpy as np

from jaxrl_fast import tree
from jaxrl_fast.algorithms.base import Algorithm
from jaxrl_fast.fields import setting
from jaxrl_fast.ops import returns
from jaxrl_fast.ops.stacking import along
from jaxrl_fast.ops.statistics import Moments
from jaxrl_fast.spaces import Box, Dict, Space
from jaxrl_fast.summary import summary
from jaxrl_fast.types import Trajectory


@tree.settings
class Normalizing(Algorithm):
    """An agent with a field `moments`: statistics of the observations, () without normalisation."""

    normalize_observations: bool = setting(False, "by running mean and variance, updated after the update")

    def init_moments(self, obs: Any) -> Any:
        """Empty statistics for observations like the batch `obs`."""
        return Moments.init(jax.tree.map(lambda x: x[0], obs)) if self.normalize_observations else ()

    def view(self, moments: Any, obs: Any) -> Any:
        """The observation as the networks see it: what has no scale of its own normalised, the rest as it is."""
        return normalized(self.spec.observation, moments.normalize(obs), obs) if self.normalize_observations else obs

    def finish(self, agent, rows):
        """Not before the updates: a rollout is normalised with the statistics it was acted with (a replay with today's)."""
        return agent._replace(moments=agent.moments.update(rows.obs)) if self.normalize_observations else agent


def normalized(space: Space, normal: Any, raw: Any) -> Any:
    """`normal` for the entries that have no scale of their own (`Box.unscaled`), `raw` for the others."""
    if isinstance(space, Dict):
        return {name: normalized(child, normal[name], raw[name]) for name, child in space.items}
    unscaled = space.unscaled if isinstance(space, Box) else np.zeros((), bool)
    if unscaled.all():
        return normal
    return jnp.where(along(unscaled, raw), normal, raw) if unscaled.any() else raw


class Rewards(NamedTuple):
    """What rewards are normalised by."""

    moments: Moments  # of the discounted return so far, at every step
    running: jax.Array  # float32 [num_envs]: that return in each environment, 0 where an episode begins

    __repr__ = summary


@tree.settings
class RewardNormalizing(Algorithm):
    """An agent with a field `rewards`: statistics of the discounted return, () without normalisation.

    reward_t / std(G), clipped to +-10, where G_t = r_t + gamma (1 - done_{t-1}) G_{t-1} over all steps so far. OpenAI
    baselines' `VecNormalize` has this G and this clip. PureJaxRL and Gymnasium multiply by 1 minus the end of step t
    itself, and do not clip.
    """

    normalize_reward: bool = setting(
        False, "rewards over the running deviation of the discounted return, clipped to +-10", kw_only=True
    )

    def init_rewards(self) -> Any:
        """Empty statistics."""
        if not self.normalize_reward:
            return ()
        return Rewards(Moments.init(jnp.float32(0)), jnp.zeros(self.num_envs, jnp.float32))

    def observe(self, agent, trajectory: Trajectory):
        """Before the rewards are learned from: a rollout's own are among those that its rewards are divided by."""
        if not self.normalize_reward:
            return agent
        steps, before = trajectory.steps, agent.rewards
        running, so_far = returns.returns_so_far(before.running, steps.reward, steps.done, self.discount)
        real = None if isinstance(steps.reset_only, tuple) else ~steps.reset_only
        return agent._replace(rewards=Rewards(before.moments.update(so_far, real), running))

    def seam(self, agent):
        if not self.normalize_reward:
            return agent
        return agent._replace(rewards=agent.rewards._replace(running=jnp.zeros_like(agent.rewards.running)))

    def scaled(self, agent: Any, reward: jax.Array, clip: float = 10.0) -> jax.Array:
        """Rewards as they are learned from; not divided while the return does not vary (to float32's precision)."""
        if not self.normalize_reward:
            return reward
        count, mean, m2 = agent.rewards.moments
        variance = m2 / jnp.maximum(count, 1.0)
        varies = variance > jnp.square(1e-6 * mean)
        return jnp.clip(reward / jnp.sqrt(jnp.where(varies, variance, 1.0)), -clip, clip)
