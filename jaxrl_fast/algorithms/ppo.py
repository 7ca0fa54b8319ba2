"""Proximal policy optimization (Schulman et al. 2017), with the details of Huang et al. 2022 as settings."""

from __future__ import annotations

from typing import Any, ClassVar, NamedTuple

import jax
import jax.numpy as jnp

from jaxrl_fast import distributions, losses, optim, returns, stacking, tree
from jaxrl_fast.algorithms.actor_critic import ActorCritic
from jaxrl_fast.algorithms.base import action_mask
from jaxrl_fast.errors import ConfigError
from jaxrl_fast.fields import setting
from jaxrl_fast.memory import RolloutMemory
from jaxrl_fast.spaces import Box
from jaxrl_fast.types import Mean


class Agent(NamedTuple):
    params: Any  # see `ActorCritic`
    opt_state: Any
    moments: Any  # running observation statistics, () without normalisation


class Rows(NamedTuple):
    obs: Any  # raw; the statistics it was acted with stay in the agent until `finish`
    action: Any
    log_prob: jax.Array
    value: jax.Array
    advantage: jax.Array


@tree.settings
class PPO(ActorCritic):
    """Clipped policy gradient over short rollouts of many environments; discrete, multi-discrete and box actions."""

    name: ClassVar[str] = "ppo"

    num_envs: int = setting(16, "environments stepped together")
    num_steps: int = setting(128, "steps of each environment in one rollout")
    num_epochs: int = setting(4, "passes over a rollout")
    num_minibatches: int = setting(4, "minibatches a pass; must divide num_envs * num_steps")
    learning_rate: float = setting(3e-4, "Adam's step size", low=0)
    anneal_learning_rate: bool = setting(True, "linearly to zero over the horizon")
    reward_scale: float = setting(1.0, "of the reward as it is learned from; logs keep the environment's")
    discount: float = setting(0.99, "gamma", low=0, high=1)
    gae_lambda: float = setting(0.95, "lambda of the advantage estimate", low=0, high=1)
    clip_ratio: float = setting(0.2, "epsilon of the clipped surrogate", low=0, open_low=True)
    clip_value: bool = setting(True, "clip the value's change by clip_ratio as well")
    normalize_advantage: bool = setting(True, "zero mean and unit variance in every minibatch")
    entropy_coefficient: float = setting(0.01, "weight of the entropy bonus", low=0)
    value_coefficient: float = setting(0.5, "weight of the value loss", low=0)
    max_grad_norm: float = setting(0.5, "global norm at which gradients are clipped", low=0, open_low=True)
    adam_epsilon: float = setting(1e-5, "Adam's epsilon", low=0, open_low=True)

    def __post_init__(self):
        super().__post_init__()
        rows = self.num_envs * self.num_steps
        if rows % self.num_minibatches:
            raise ConfigError("num_minibatches", self.num_minibatches, f"a divisor of num_envs * num_steps = {rows}")

    @property
    def updates(self) -> int:
        return self.num_epochs * self.num_minibatches

    def memory(self) -> RolloutMemory:
        return RolloutMemory(self.num_steps, self.num_envs, self.num_minibatches)

    @property
    def optimizer(self):
        return optim.adam(self.max_grad_norm, self.adam_epsilon)

    def init(self, key: jax.Array) -> Agent:
        params, moments = self.init_networks(key)
        return Agent(params, self.optimizer.init(params), moments)

    def draw(self, key, num_steps, num_envs):
        return distributions.draw_noise(key, self.spec.action, (num_steps, num_envs))

    def act(self, agent, carry, obs, noise, clock, mode):
        space = self.spec.action
        dist = self.policy(agent.params, self.view(agent.moments, obs))
        if mode == "random":
            return carry, distributions.random_action(noise, space, action_mask(self.spec.observation, obs)), (dist, ())
        action = dist.mode() if mode == "greedy" else dist.sample(noise)
        if isinstance(dist, distributions.TanhNormal):  # what was drawn is kept: it cannot be told from its tanh
            return carry, space.from_unit(dist.squash(action)), (dist, action)
        return carry, action.reshape(action.shape[:1] + space.shape), (dist, ())

    def prepare(self, agent, trajectory):
        """Log-probabilities, values and advantages of the whole rollout in one batch, after it."""
        steps, (dist, drawn) = trajectory.steps, trajectory.steps.extras
        obs = stacking.observations(trajectory, self.spec.stack)
        seen = jax.tree.map(lambda x, last: jnp.concatenate([x, last[None]]), obs, trajectory.last_obs)
        # step by step: one batch [T * B] would have to be gathered where B is divided over devices
        values = jax.vmap(lambda obs: self.value(agent.params, self.view(agent.moments, obs)))(seen)
        value, last = values[:-1], values[-1]
        action = steps.action.reshape(steps.reward.shape + (-1,)) if isinstance(self.spec.action, Box) else steps.action
        action = drawn if isinstance(dist, distributions.TanhNormal) else action
        next_value = returns.bootstrap_values(
            value, last, steps.truncated, lambda t: self.value(
                agent.params, self.view(agent.moments, stacking.successors(trajectory, self.spec.stack, t))
            ),
        )  # fmt: skip
        advantage = returns.gae(
            self.reward_scale * steps.reward, steps.terminated, steps.done, value, next_value, self.discount,
            self.gae_lambda,
        )
        return Rows(obs, action, dist.log_prob(action), value, advantage)

    def update(self, agent, batch, key, clock):
        def loss_fn(params):
            dist, value = self.both(params, self.view(agent.moments, batch.obs))
            advantage = batch.advantage
            if self.normalize_advantage:
                advantage = (advantage - advantage.mean()) / (advantage.std() + 1e-8)
            log_prob = dist.log_prob(batch.action)
            policy_loss, ratio = losses.clipped_surrogate(log_prob, batch.log_prob, advantage, self.clip_ratio)
            clip = self.clip_ratio if self.clip_value else None
            value_loss = losses.value_loss(value, batch.advantage + batch.value, batch.value, clip).mean()
            policy_loss, entropy = policy_loss.mean(), distributions.entropy(dist, key).mean()
            loss = policy_loss + self.value_coefficient * value_loss - self.entropy_coefficient * entropy
            return loss, (policy_loss, value_loss, entropy, ratio, batch.log_prob - log_prob)

        grads, (policy_loss, value_loss, entropy, ratio, log_ratio) = jax.grad(loss_fn, has_aux=True)(agent.params)
        params, opt_state = optim.apply(self.optimizer, clock.step_size(self), agent.params, grads, agent.opt_state)
        metrics = {
            "policy_loss": policy_loss,
            "value_loss": value_loss,
            "entropy": entropy,
            "approx_kl": jnp.mean(ratio - 1.0 + log_ratio),  # Schulman's k3 estimate
            "clip_fraction": jnp.mean(jnp.abs(ratio - 1.0) > self.clip_ratio),
        }
        return Agent(params, opt_state, agent.moments), {k: Mean.of(v) for k, v in metrics.items()}, ()
