"""Synchronous advantage actor-critic (Mnih et al. 2016, algorithm S3, its workers as one batch)."""

from __future__ import annotations

from typing import ClassVar

from jaxrl_fast import tree
from jaxrl_fast.algorithms.common.policy_gradient import PolicyGradient
from jaxrl_fast.fields import setting
from jaxrl_fast.memory import RolloutMemory
from jaxrl_fast.ops import distributions, losses, optim
from jaxrl_fast.ops.optimizer_settings import schedule_setting


@tree.settings
class A2C(PolicyGradient):
    """Advantage actor-critic (Mnih et al. 2016, algorithm S3): one step a short rollout.

    Advantages are n-step returns or GAE.
    """

    name: ClassVar[str] = "a2c"
    takes_older_rollouts: ClassVar[bool] = False

    num_steps: int = setting(5, "steps of each environment in one rollout")
    learning_rate: float = setting(7e-4, "the optimizer's step size", low=0, convert=schedule_setting)
    gae_lambda: float = setting(1.0, "lambda of the advantage estimate; 1: n-step returns to the rollout's end", low=0, high=1)
    normalize_advantage: bool = setting(False, "zero mean and unit variance in every update")
    rmsprop: bool = setting(True, "RMSProp; if not, Adam")
    rms_decay: float = setting(0.99, "of RMSProp's mean of squares", low=0, high=1)
    optimizer_epsilon: float = setting(1e-5, "RMSProp's (within the root) or Adam's epsilon", low=0, open_low=True)

    @property
    def updates(self) -> int:
        return 1

    def memory(self) -> RolloutMemory:
        return RolloutMemory(self.num_steps, self.num_envs, num_minibatches=1)

    @property
    def default_optimizer(self):
        if self.rmsprop:
            return optim.rmsprop(self.max_grad_norm, self.optimizer_epsilon, self.rms_decay)
        return optim.adam(self.max_grad_norm, self.optimizer_epsilon)

    def update(self, agent, batch, key, clock):
        def parts(params):
            dist, value = self.both(params, self.view(agent.moments, batch.obs))
            policy_loss = losses.policy_gradient(dist.log_prob(batch.action), self.weighed(batch.advantage))
            value_loss = losses.value_loss(value, batch.advantage + batch.value)
            return policy_loss.mean(), value_loss.mean(), distributions.entropy(dist, key).mean(), {}

        return self.descend(agent, clock, parts)
