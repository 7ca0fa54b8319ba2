"""IMPALA's learner (Espeholt et al. 2018): an actor-critic with V-trace for older rollouts."""

from __future__ import annotations

from typing import Any, ClassVar, NamedTuple

import jax
import jax.numpy as jnp

from jaxrl_fast import tree
from jaxrl_fast.algorithms.common.descent import agent_step, rmsprop_or_adam
from jaxrl_fast.algorithms.common.normalize import normalize_obs
from jaxrl_fast.algorithms.common.policy_gradient import (
    PolicyGradient,
    approx_kl,
    check_minibatches,
    sampled_actions,
)
from jaxrl_fast.fields import setting
from jaxrl_fast.memory import SHUFFLES, RolloutMemory
from jaxrl_fast.ops import distributions, losses, returns, stacking
from jaxrl_fast.ops.optimizer_settings import schedule_setting
from jaxrl_fast.types import Mean


class Rows(NamedTuple):
    obs: Any  # raw
    action: Any
    log_prob: jax.Array  # of the action under the policy that acted
    reward: jax.Array
    terminated: jax.Array
    truncated: jax.Array
    next_obs: Any  # true successors, stacked; the learner computes their values

    __repr__ = tree.summary


@tree.settings
class IMPALA(PolicyGradient):
    """IMPALA (Espeholt et al. 2018): an actor-critic with V-trace for older rollouts.

    A minibatch is whole environments over a rollout; each update computes its targets.
    """

    name: ClassVar[str] = "impala"

    num_envs: int = setting(32)
    """environments stepped together"""
    num_steps: int = setting(20)
    """steps of each environment in a rollout"""
    learning_rate: float = setting(6e-4, low=0, convert=schedule_setting)
    """the optimizer's step size"""
    gae_lambda: float = setting(1.0, low=0, high=1)
    """lambda of V-trace; on policy, the lambda of GAE"""
    normalize_advantage: bool = setting(False)
    """zero mean and unit variance in every update"""
    rmsprop: bool = setting(True)
    """RMSProp instead of Adam"""
    rms_decay: float = setting(0.99, low=0, high=1)
    """decay of RMSProp's mean of squares"""
    optimizer_epsilon: float = setting(1e-5, low=0, open_low=True)
    """epsilon of RMSProp (within the root) or Adam"""
    num_epochs: int = setting(1)
    """passes over a rollout"""
    num_minibatches: int = setting(1)
    """minibatches a pass; must divide num_envs"""
    shuffle: str = setting("auto", choices=SHUFFLES)
    """permutations by one sort or by swap-or-not; auto: on a GPU swaps for long ones"""
    rho_bar: float = setting(1.0, low=0, open_low=True)
    """rho-bar: clips importance weights; decides which policy V converges to"""
    c_bar: float = setting(1.0, low=0)
    """c-bar: clips traces; decides how far corrections reach back"""

    def __post_init__(self):
        super().__post_init__()
        check_minibatches(self, self.num_minibatches, whole=True)

    @property
    def off_policy(self) -> bool:
        return True

    @property
    def updates(self) -> int:
        return self.num_epochs * self.num_minibatches

    def memory(self) -> RolloutMemory:
        return RolloutMemory(self.num_steps, self.num_envs, self.num_minibatches,
                             True, self.shuffle)

    default_optimizer = property(rmsprop_or_adam)

    def prepare(self, agent, trajectory) -> Rows:
        """Return the rows; they do not depend on the agent, so an older one may have acted."""
        steps, obs = trajectory.steps, stacking.observations(trajectory, self.spec.stack)
        action, log_prob = sampled_actions(trajectory, self.spec.action)
        next_obs = stacking.push(obs, steps.next_obs, self.spec.stack)
        reward = self.learned_reward(agent, steps.reward)
        return Rows(obs, action, log_prob, reward, steps.terminated, steps.truncated, next_obs)

    def update(self, agent, batch, key, clock):
        """Take one step on a batch [T, b]."""
        networks, bonus = self.networks, self.entropy_weight(clock)
        normalized = lambda obs: normalize_obs(self.spec.observation, agent.moments, obs)
        value_of = lambda obs: networks.value(agent.params, normalized(obs))  # [b], no gradient
        successors = lambda t: batch.next_obs if t is None else tree.take(batch.next_obs, t)

        def loss_fn(params):
            # step by step: modules take one batch axis, and b may be divided over devices
            dist, value = jax.vmap(lambda obs: networks.policy_and_value(params, normalized(obs)))(
                batch.obs
            )
            log_prob = dist.log_prob(batch.action)
            baseline, log_ratio = jax.lax.stop_gradient((value, log_prob - batch.log_prob))
            ratio = jnp.exp(log_ratio)
            next_value = returns.bootstrap_values(
                baseline, value_of(successors(-1)), batch.truncated, value_of, successors
            )
            target, advantage = returns.vtrace(
                batch.reward, batch.terminated, batch.terminated | batch.truncated,
                baseline, next_value, ratio,
                self.discount, self.gae_lambda, self.rho_bar, self.c_bar,
            )  # fmt: skip
            advantage = returns.standardize(advantage) if self.normalize_advantage else advantage
            policy_loss = losses.policy_gradient(log_prob, advantage)
            metrics = {
                "rho": ratio.mean(),
                # rounding lifts ratios of 1 above it
                "rho_clipped": jnp.mean(ratio > 1.001 * self.rho_bar),
                "approx_kl": approx_kl(ratio, log_ratio).mean(),
            }
            value_loss = losses.value_loss(value, target)
            policy_loss, value_loss = policy_loss.mean(), value_loss.mean()
            entropy = distributions.entropy(dist, key).mean()
            loss = policy_loss + self.value_coefficient * value_loss - bonus * entropy
            return loss, {"policy_loss": policy_loss, "value_loss": value_loss,
                          "entropy": entropy} | metrics

        agent, (_, metrics) = agent_step(self, clock, agent, loss_fn, networks.layers)
        return agent, {name: Mean.of(x) for name, x in metrics.items()}, ()
