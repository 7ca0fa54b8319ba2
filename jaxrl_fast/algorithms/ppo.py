"""Proximal policy optimization (Schulman et al. 2017); Huang et al. 2022's details."""

from __future__ import annotations

from typing import Any, ClassVar, NamedTuple

import jax
import jax.numpy as jnp

from jaxrl_fast import tree
from jaxrl_fast.algorithms.common.descent import agent_step
from jaxrl_fast.algorithms.common.normalize import normalize_obs
from jaxrl_fast.algorithms.common.policy_gradient import (
    PolicyGradient,
    approx_kl,
    check_minibatches,
    few_rows,
    sampled_actions,
)
from jaxrl_fast.fields import setting
from jaxrl_fast.memory import SHUFFLES, RolloutMemory
from jaxrl_fast.ops import distributions, losses, optim, returns, stacking
from jaxrl_fast.ops.statistics import means
from jaxrl_fast.types import Mean


class Rows(NamedTuple):
    obs: Any  # raw; `finish` updates the statistics of its acting
    action: Any
    log_prob: jax.Array
    value: jax.Array
    advantage: jax.Array
    steps: Any = ()  # `Steps`, if advantages are recomputed

    __repr__ = tree.summary


class Steps(NamedTuple):
    """Inputs of the targets, beside V(obs), [T, B]."""

    reward: jax.Array  # scaled
    terminated: jax.Array
    done: jax.Array
    next_value: jax.Array  # of the true successors, by the agent before the iteration's updates


@tree.settings
class PPO(PolicyGradient):
    """Proximal policy optimization (Schulman et al. 2017): a clipped policy gradient."""

    name: ClassVar[str] = "ppo"

    num_epochs: int = setting(4)
    """passes over a rollout"""
    num_minibatches: int | None = setting(None, low=1,
                                          none="4 to 16, with 128 rows where that suffices")
    """minibatches a pass; must divide num_envs * num_steps (with recompute_advantage: num_envs)"""
    shuffle: str = setting("auto", choices=SHUFFLES)
    """permutations by one sort or by swap-or-not; auto: on a GPU swaps for long ones"""
    clip_ratio: float = setting(0.2, low=0, open_low=True)
    """epsilon of the clipped surrogate"""
    clip_value: bool = setting(True)
    """clip the value's change by clip_ratio as well"""
    recompute_advantage: bool = setting(False)
    """recompute targets and advantages in every minibatch, of whole environments"""
    adam_epsilon: float = setting(1e-5, low=0, open_low=True)
    """epsilon of Adam"""

    def __post_init__(self):
        super().__post_init__()
        check_minibatches(self, self.minibatches, self.recompute_advantage)

    @property
    def minibatches(self) -> int:
        return self.num_minibatches or few_rows(self, self.recompute_advantage)

    @property
    def updates(self) -> int:
        return self.num_epochs * self.minibatches

    def memory(self) -> RolloutMemory:
        return RolloutMemory(self.num_steps, self.num_envs, self.minibatches,
                             self.recompute_advantage, self.shuffle)

    @property
    def default_optimizer(self):
        return optim.adam(self.max_grad_norm, self.adam_epsilon)

    def prepare(self, agent, trajectory) -> Rows:
        """Compute log-probabilities, values and advantages of the whole rollout in one batch."""
        value_of = lambda obs: self.networks.value(
            agent.params, normalize_obs(self.spec.observation, agent.moments, obs)
        )
        obs = stacking.observations(trajectory, self.spec.stack)
        action, log_prob = sampled_actions(trajectory, self.spec.action)
        value, next_value = returns.rollout_values(value_of, trajectory, obs, self.spec.stack)
        steps = trajectory.steps
        steps = Steps(self.learned_reward(agent, steps.reward), steps.terminated,
                      steps.done, next_value)
        return Rows(obs, action, log_prob, value, self.gae(steps, value),
                    steps if self.recompute_advantage else ())

    def gae(self, steps: Steps, value: jax.Array) -> jax.Array:
        """Return generalised advantage estimates [T, B] for V(obs) = `value`."""
        return returns.gae(steps.reward, steps.terminated, steps.done, value,
                           steps.next_value, self.discount, self.gae_lambda)

    def targets(self, batch, value):
        """Return value targets and advantages: the rollout's [b], or new from `value` [T, b]."""
        if not self.recompute_advantage:
            return batch.advantage + batch.value, batch.advantage
        value, steps = jax.lax.stop_gradient(value), batch.steps
        following = jnp.concatenate([value[1:], steps.next_value[-1:]])
        steps = steps._replace(next_value=jnp.where(steps.done, steps.next_value, following))
        target = value + self.gae(steps, value)
        return target, returns.target_advantages(
            steps.reward, steps.terminated, steps.done, value, steps.next_value,
            target, self.discount
        )

    def update(self, agent, batch, key, clock):
        """Take one step on a batch [b], or [T, b] with `recompute_advantage`."""
        networks, bonus = self.networks, self.entropy_weight(clock)

        def loss_fn(params):
            evaluate = lambda obs: networks.policy_and_value(
                params, normalize_obs(self.spec.observation, agent.moments, obs)
            )
            # step by step: modules take one batch axis, and b may be divided over devices
            dist, value = (jax.vmap(evaluate) if self.recompute_advantage else evaluate)(batch.obs)
            target, advantage = self.targets(batch, value)
            log_prob = dist.log_prob(batch.action)
            advantage = returns.standardize(advantage) if self.normalize_advantage else advantage
            policy_loss, ratio = losses.clipped_surrogate(
                log_prob, batch.log_prob, advantage, self.clip_ratio
            )
            clip = self.clip_ratio if self.clip_value else None
            value_loss = losses.value_loss(value, target, batch.value, clip)
            terms = {
                "policy_loss": policy_loss,
                "value_loss": value_loss,
                "entropy": distributions.entropy(dist, key),
                "approx_kl": approx_kl(ratio, log_prob - batch.log_prob),
                "clip_fraction": (jnp.abs(ratio - 1.0) > self.clip_ratio).astype(jnp.float32),
            }
            metrics = dict(zip(terms, means(*terms.values()), strict=True))
            policy_loss, value_loss, entropy, *_ = metrics.values()
            return policy_loss + self.value_coefficient * value_loss - bonus * entropy, metrics

        agent, (_, metrics) = agent_step(self, clock, agent, loss_fn, networks.layers)
        return agent, {name: Mean.of(x) for name, x in metrics.items()}, ()
