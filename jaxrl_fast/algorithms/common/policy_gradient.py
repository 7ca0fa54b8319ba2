"""What the on-policy actor-critics share: acting, advantages of a rollout, and one step down the weighed losses."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, NamedTuple

import jax
import jax.numpy as jnp

from jaxrl_fast import tree
from jaxrl_fast.algorithms.common.action_spaces import action_mask
from jaxrl_fast.algorithms.common.actor_critic import ActorCritic
from jaxrl_fast.algorithms.common.descent import Descent
from jaxrl_fast.algorithms.common.normalize import RewardNormalizing
from jaxrl_fast.errors import ConfigError, check_not_zero
from jaxrl_fast.fields import setting
from jaxrl_fast.ops import distributions, optim, returns, stacking
from jaxrl_fast.ops.optimizer_settings import schedule_setting
from jaxrl_fast.spaces import Box
from jaxrl_fast.summary import summary
from jaxrl_fast.types import Clock, Mean, Trajectory


class Agent(NamedTuple):
    params: Any  # see `ActorCritic`
    opt_state: Any
    moments: Any  # running observation statistics, () without normalisation
    rewards: Any = ()  # `Rewards`, () without their normalisation

    __repr__ = summary


class Rows(NamedTuple):
    obs: Any  # raw; the statistics it was acted with stay in the agent until `finish`
    action: Any
    log_prob: jax.Array
    value: jax.Array
    advantage: jax.Array
    steps: Any = ()  # a `Steps` where targets are made anew

    __repr__ = summary


class Steps(NamedTuple):
    """What targets are made of, beside V(obs); [T, B]."""

    reward: jax.Array  # scaled
    terminated: jax.Array
    done: jax.Array
    next_value: jax.Array  # of the true successors, by the agent before the iteration's updates


@tree.settings
class PolicyGradient(Descent, RewardNormalizing, ActorCritic):
    """Rollouts of a stochastic policy; subclasses say what is descended. The distributions of all steps are kept."""

    recompute_advantage = False  # whether rows keep what targets are made of. Not annotated: no field, so PPO's has its own place

    num_envs: int = setting(16, "environments stepped together")
    num_steps: int = setting(128, "steps of each environment in one rollout")
    learning_rate: float = setting(3e-4, "the optimizer's step size", low=0, convert=schedule_setting)
    anneal_learning_rate: bool = setting(True, "linearly to zero over the horizon")
    reward_scale: float = setting(1.0, "of the reward as it is learned from; logs keep the environment's")
    discount: float = setting(0.99, "gamma", low=0, high=1)
    gae_lambda: float = setting(0.95, "lambda of the advantage estimate", low=0, high=1)
    normalize_advantage: bool = setting(True, "zero mean and unit variance in every minibatch")
    entropy_coefficient: float = setting(0.01, "weight of the entropy bonus", low=0)
    anneal_entropy_from: float = setting(1.0, "part of the horizon after which it falls linearly to zero", low=0, high=1)
    value_coefficient: float = setting(0.5, "weight of the value loss", low=0)
    max_grad_norm: float = setting(0.5, "global norm at which gradients are clipped", low=0, open_low=True)

    def __post_init__(self):
        super().__post_init__()
        check_not_zero("reward_scale", self.reward_scale)
        if self.normalize_advantage and self.num_envs * self.num_steps == getattr(self, "num_minibatches", 1):
            why = "advantages normalised over one row are zero. Use fewer minibatches, or more environments or steps"
            raise ConfigError("normalize_advantage", True, f"False with one row in a minibatch: {why}")

    def init(self, key: jax.Array) -> Agent:
        return self.begin(*self.init_networks(key))

    def begin(self, params, moments=()):
        return Agent(params, self.init_optimizer(params), moments, self.init_rewards())

    def layers(self, part=""):
        """The actor's torso and the critic's apart, where they are one stack."""
        if self.shared_torso or not self.batched:
            return super().layers(part)
        return optim.View(
            lambda params: params | {"torso": optim.split(params["torso"], 2)},
            lambda seen, like: seen | {"torso": optim.join(seen["torso"])},
        )

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

    def acted(self, trajectory: Trajectory) -> tuple[Any, Any, jax.Array]:
        """What was seen, what was done as the policy speaks of it, and its log-probability when it was done; [T, B]."""
        steps, (dist, drawn) = trajectory.steps, trajectory.steps.extras
        action = steps.action.reshape(steps.reward.shape + (-1,)) if isinstance(self.spec.action, Box) else steps.action
        action = drawn if isinstance(dist, distributions.TanhNormal) else action
        return stacking.observations(trajectory, self.spec.stack), action, dist.log_prob(action)

    def prepare(self, agent, trajectory) -> Rows:
        """Log-probabilities, values and advantages of the whole rollout in one batch, after it."""
        steps, stack = trajectory.steps, self.spec.stack
        obs, action, log_prob = self.acted(trajectory)
        seen = jax.tree.map(lambda x, last: jnp.concatenate([x, last[None]]), obs, trajectory.last_obs)
        value_of = lambda obs: self.value(agent.params, self.view(agent.moments, obs))
        # step by step: one batch [T * B] would have to be gathered where B is divided over devices
        values = jax.vmap(value_of)(seen)
        value, last = values[:-1], values[-1]
        next_value = returns.bootstrap_values(
            value, last, steps.truncated, value_of, lambda t: stacking.successors(trajectory, stack, t)
        )
        made_of = Steps(self.learned_reward(agent, steps.reward), steps.terminated, steps.done, next_value)
        advantage = self.gae(made_of, value)
        return Rows(obs, action, log_prob, value, advantage, made_of if self.recompute_advantage else ())

    def learned_reward(self, agent: Agent, reward: jax.Array) -> jax.Array:
        return self.reward_scale * self.scaled(agent, reward)

    def gae(self, steps: Steps, value: jax.Array) -> jax.Array:
        """Generalised advantage estimates [T, B] by V(obs) = `value`."""
        return returns.gae(
            steps.reward, steps.terminated, steps.done, value, steps.next_value, self.discount, self.gae_lambda
        )

    def weighed(self, advantage: jax.Array) -> jax.Array:
        """The advantages of a minibatch as the policy's loss takes them."""
        if not self.normalize_advantage:
            return advantage
        return (advantage - advantage.mean()) / (advantage.std() + 1e-8)

    def entropy_weight(self, clock: Clock) -> jax.Array:
        """c_e at this time. `anneal_entropy_from` = 1 means never, in a run that goes on after its horizon too."""
        left = (1.0 - clock.progress) / jnp.maximum(1.0 - self.anneal_entropy_from, 1e-6)
        return self.entropy_coefficient * jnp.where(clock.progress > self.anneal_entropy_from, left, 1.0)

    def descend(self, agent: Agent, clock: Clock, losses: Callable[[Any], tuple]) -> tuple[Agent, dict[str, Mean], tuple]:
        """One step down  policy loss + c_v value loss - c_e entropy;  losses(params) -> (these three, other metrics)."""
        bonus = self.entropy_weight(clock)

        def loss_fn(params):
            policy_loss, value_loss, entropy, more = losses(params)
            loss = policy_loss + self.value_coefficient * value_loss - bonus * entropy
            return loss, {"policy_loss": policy_loss, "value_loss": value_loss, "entropy": entropy} | more

        grads, metrics = jax.grad(loss_fn, has_aux=True)(agent.params)
        params, opt_state = self.gradient_step(clock, agent.params, grads, agent.opt_state)
        agent = agent._replace(params=params, opt_state=opt_state)
        return agent, {name: Mean.of(x) for name, x in metrics.items()}, ()


def check_minibatches(algo: Any, items: int, of: str) -> None:
    """`num_minibatches` divides what is shuffled."""
    if items % algo.num_minibatches:
        raise ConfigError("num_minibatches", algo.num_minibatches, f"a divisor of {of} = {items}")


def approx_kl(ratio: jax.Array, log_ratio: jax.Array) -> jax.Array:
    """E[(rho - 1) - log rho], Schulman's k3 estimate of KL(the policy that acted, the one that learns)."""
    return jnp.mean(ratio - 1.0 - log_ratio)
