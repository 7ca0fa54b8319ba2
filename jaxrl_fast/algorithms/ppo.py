"""Proximal policy optimization (Schulman et al. 2017), with the details of Huang et al. 2022 as settings."""

from __future__ import annotations

from typing import ClassVar

import jax
import jax.numpy as jnp

from jaxrl_fast import tree
from jaxrl_fast.algorithms.common.policy_gradient import PolicyGradient, approx_kl, check_minibatches
from jaxrl_fast.fields import setting
from jaxrl_fast.memory import RolloutMemory
from jaxrl_fast.ops import distributions, losses, optim, returns


@tree.settings
class PPO(PolicyGradient):
    """Proximal policy optimization (Schulman et al. 2017): a clipped policy gradient.

    For discrete, multi-discrete and box actions.
    """

    name: ClassVar[str] = "ppo"

    num_epochs: int = setting(4, "passes over a rollout")
    num_minibatches: int = setting(4, "minibatches a pass; must divide num_envs * num_steps (with recompute_advantage: num_envs)")
    clip_ratio: float = setting(0.2, "epsilon of the clipped surrogate", low=0, open_low=True)
    clip_value: bool = setting(True, "clip the value's change by clip_ratio as well")
    recompute_advantage: bool = setting(False, "targets and advantages anew in every minibatch, of whole environments")
    adam_epsilon: float = setting(1e-5, "Adam's epsilon", low=0, open_low=True)

    def __post_init__(self):
        super().__post_init__()
        if self.recompute_advantage:
            check_minibatches(self, self.num_envs, "num_envs (recompute_advantage takes whole environments)")
        else:
            check_minibatches(self, self.num_envs * self.num_steps, "num_envs * num_steps")

    @property
    def updates(self) -> int:
        return self.num_epochs * self.num_minibatches

    def memory(self) -> RolloutMemory:
        return RolloutMemory(self.num_steps, self.num_envs, self.num_minibatches, by_env=self.recompute_advantage)

    @property
    def default_optimizer(self):
        return optim.adam(self.max_grad_norm, self.adam_epsilon)

    def targets(self, batch, value):
        """Targets of the value, advantages of the policy: the rollout's [b], or anew by `value` [T, b]. docs/algorithms/ppo.md"""
        if not self.recompute_advantage:
            return batch.advantage + batch.value, batch.advantage
        value, steps = jax.lax.stop_gradient(value), batch.steps
        following = jnp.concatenate([value[1:], steps.next_value[-1:]])
        steps = steps._replace(next_value=jnp.where(steps.done, steps.next_value, following))
        target = value + self.gae(steps, value)
        return target, returns.target_advantages(
            steps.reward, steps.terminated, steps.done, value, steps.next_value, target, self.discount
        )

    def update(self, agent, batch, key, clock):
        """batch: [b], or [T, b] where advantages are recomputed."""

        def parts(params):
            both = lambda obs: self.both(params, self.view(agent.moments, obs))
            # step by step: modules take one batch axis, and b may be divided over devices
            dist, value = (jax.vmap(both) if self.recompute_advantage else both)(batch.obs)
            target, advantage = self.targets(batch, value)
            log_prob = dist.log_prob(batch.action)
            policy_loss, ratio = losses.clipped_surrogate(
                log_prob, batch.log_prob, self.weighed(advantage), self.clip_ratio
            )
            clip = self.clip_ratio if self.clip_value else None
            value_loss = losses.value_loss(value, target, batch.value, clip)
            metrics = {
                "approx_kl": approx_kl(ratio, log_prob - batch.log_prob),
                "clip_fraction": jnp.mean(jnp.abs(ratio - 1.0) > self.clip_ratio),
            }
            return policy_loss.mean(), value_loss.mean(), distributions.entropy(dist, key).mean(), metrics

        return self.descend(agent, clock, parts)
