"""Synchronous advantage actor-critic (Mnih et al. 2016, algorithm S3, in one batch)."""

from __future__ import annotations

from typing import Any, ClassVar, NamedTuple

import jax

from jaxrl_fast import tree
from jaxrl_fast.algorithms.common.descent import agent_step, rmsprop_or_adam
from jaxrl_fast.algorithms.common.normalize import normalize_obs
from jaxrl_fast.algorithms.common.policy_gradient import PolicyGradient, sampled_actions
from jaxrl_fast.fields import setting
from jaxrl_fast.memory import RolloutMemory
from jaxrl_fast.ops import distributions, losses, returns, stacking
from jaxrl_fast.ops.optimizer_settings import schedule_setting
from jaxrl_fast.types import Mean


class Rows(NamedTuple):
    obs: Any  # raw; `finish` updates the statistics of its acting
    action: Any
    value: jax.Array
    advantage: jax.Array

    __repr__ = tree.summary


@tree.settings
class A2C(PolicyGradient):
    """Advantage actor-critic (Mnih et al. 2016, algorithm S3): one step a short rollout.

    Advantages are n-step returns or GAE.
    """

    name: ClassVar[str] = "a2c"
    takes_older_rollouts: ClassVar[bool] = False

    num_steps: int = setting(5)
    """steps of each environment in a rollout"""
    learning_rate: float = setting(7e-4, low=0, convert=schedule_setting)
    """the optimizer's step size"""
    gae_lambda: float = setting(1.0, low=0, high=1)
    """lambda of the advantage estimate; 1: n-step returns to the rollout's end"""
    normalize_advantage: bool = setting(False)
    """zero mean and unit variance in every update"""
    rmsprop: bool = setting(True)
    """RMSProp instead of Adam"""
    rms_decay: float = setting(0.99, low=0, high=1)
    """decay of RMSProp's mean of squares"""
    optimizer_epsilon: float = setting(1e-5, low=0, open_low=True)
    """epsilon of RMSProp (within the root) or Adam"""

    @property
    def updates(self) -> int:
        return 1

    def memory(self) -> RolloutMemory:
        return RolloutMemory(self.num_steps, self.num_envs, num_minibatches=1)

    default_optimizer = property(rmsprop_or_adam)

    def prepare(self, agent, trajectory) -> Rows:
        """Compute values and advantages of the whole rollout in one batch."""
        value_of = lambda obs: self.networks.value(
            agent.params, normalize_obs(self.spec.observation, agent.moments, obs)
        )
        steps, obs = trajectory.steps, stacking.observations(trajectory, self.spec.stack)
        value, next_value = returns.rollout_values(value_of, trajectory, obs, self.spec.stack)
        reward = self.learned_reward(agent, steps.reward)
        advantage = returns.gae(
            reward, steps.terminated, steps.done, value, next_value, self.discount, self.gae_lambda
        )
        return Rows(obs, sampled_actions(trajectory, self.spec.action)[0], value, advantage)

    def update(self, agent, batch, key, clock):
        networks, bonus = self.networks, self.entropy_weight(clock)

        def loss_fn(params):
            obs = normalize_obs(self.spec.observation, agent.moments, batch.obs)
            dist, value = networks.policy_and_value(params, obs)
            log_prob = dist.log_prob(batch.action)
            advantage = (returns.standardize(batch.advantage) if self.normalize_advantage
                         else batch.advantage)
            policy_loss = losses.policy_gradient(log_prob, advantage)
            value_loss = losses.value_loss(value, batch.advantage + batch.value)
            policy_loss, value_loss = policy_loss.mean(), value_loss.mean()
            entropy = distributions.entropy(dist, key).mean()
            loss = policy_loss + self.value_coefficient * value_loss - bonus * entropy
            return loss, {"policy_loss": policy_loss, "value_loss": value_loss, "entropy": entropy}

        agent, (_, metrics) = agent_step(self, clock, agent, loss_fn, networks.layers)
        return agent, {name: Mean.of(x) for name, x in metrics.items()}, ()
