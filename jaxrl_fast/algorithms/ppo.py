"""Proximal policy optimization (Schulman et al. 2017), with the details of Huang et al. 2022 as settings."""

from __future__ import annotations

from typing import ClassVar

import jax.numpy as jnp

from jaxrl_fast import distributions, losses, optim, tree
from jaxrl_fast.algorithms.policy_gradient import PolicyGradient, approx_kl, check_minibatches
from jaxrl_fast.fields import setting
from jaxrl_fast.memory import RolloutMemory


@tree.settings
class PPO(PolicyGradient):
    """Clipped policy gradient over short rollouts of many environments; discrete, multi-discrete and box actions."""

    name: ClassVar[str] = "ppo"

    num_epochs: int = setting(4, "passes over a rollout")
    num_minibatches: int = setting(4, "minibatches a pass; must divide num_envs * num_steps")
    clip_ratio: float = setting(0.2, "epsilon of the clipped surrogate", low=0, open_low=True)
    clip_value: bool = setting(True, "clip the value's change by clip_ratio as well")
    adam_epsilon: float = setting(1e-5, "Adam's epsilon", low=0, open_low=True)

    def __post_init__(self):
        super().__post_init__()
        check_minibatches(self, self.num_envs * self.num_steps, "num_envs * num_steps")

    @property
    def updates(self) -> int:
        return self.num_epochs * self.num_minibatches

    def memory(self) -> RolloutMemory:
        return RolloutMemory(self.num_steps, self.num_envs, self.num_minibatches)

    @property
    def optimizer(self):
        return optim.adam(self.max_grad_norm, self.adam_epsilon)

    def update(self, agent, batch, key, clock):
        def parts(params):
            dist, value = self.both(params, self.view(agent.moments, batch.obs))
            log_prob = dist.log_prob(batch.action)
            policy_loss, ratio = losses.clipped_surrogate(
                log_prob, batch.log_prob, self.weighed(batch.advantage), self.clip_ratio
            )
            clip = self.clip_ratio if self.clip_value else None
            value_loss = losses.value_loss(value, batch.advantage + batch.value, batch.value, clip)
            metrics = {
                "approx_kl": approx_kl(ratio, log_prob - batch.log_prob),
                "clip_fraction": jnp.mean(jnp.abs(ratio - 1.0) > self.clip_ratio),
            }
            return policy_loss.mean(), value_loss.mean(), distributions.entropy(dist, key).mean(), metrics

        return self.descend(agent, clock, parts)
