"""Proximal policy optimization (Schulman et al. 2017), with the details of Huang et al. 2022 as settings."""

from __future__ import annotations

import math
from typing import Any, ClassVar, NamedTuple

import flax.linen as nn
import jax
import jax.numpy as jnp

from jaxrl_fast import distributions, losses, optim, random, returns, stacking, tree
from jaxrl_fast.algorithms.base import Algorithm, action_mask
from jaxrl_fast.errors import ConfigError
from jaxrl_fast.fields import setting
from jaxrl_fast.memory import RolloutMemory
from jaxrl_fast.networks import MLP, Dense, make_torso
from jaxrl_fast.spaces import Box, Dict, Discrete, MultiDiscrete, Space
from jaxrl_fast.statistics import Moments
from jaxrl_fast.types import Mean


class Agent(NamedTuple):
    params: Any  # {"torso": actor's and critic's [2, ...], or the shared one, "policy", "value": heads, "log_std": Box}
    opt_state: Any
    moments: Any  # running observation statistics, () without normalisation


class Rows(NamedTuple):
    obs: Any  # raw; the statistics it was acted with stay in the agent until `finish`
    action: Any
    log_prob: jax.Array
    value: jax.Array
    advantage: jax.Array


@tree.settings
class PPO(Algorithm):
    """Clipped policy gradient over short rollouts of many environments; discrete, multi-discrete and box actions."""

    name: ClassVar[str] = "ppo"
    action_spaces: ClassVar[tuple[type, ...]] = (Discrete, MultiDiscrete, Box)

    num_envs: int = setting(16, "environments stepped together")
    num_steps: int = setting(128, "steps of each environment in one rollout")
    num_epochs: int = setting(4, "passes over a rollout")
    num_minibatches: int = setting(4, "minibatches a pass; must divide num_envs * num_steps")
    learning_rate: float = setting(3e-4, "Adam's step size", low=0)
    anneal_learning_rate: bool = setting(True, "linearly to zero over the horizon")
    discount: float = setting(0.99, "gamma", low=0, high=1)
    gae_lambda: float = setting(0.95, "lambda of the advantage estimate", low=0, high=1)
    clip_ratio: float = setting(0.2, "epsilon of the clipped surrogate", low=0, open_low=True)
    clip_value: bool = setting(True, "clip the value's change by clip_ratio as well")
    normalize_advantage: bool = setting(True, "zero mean and unit variance in every minibatch")
    entropy_coefficient: float = setting(0.01, "weight of the entropy bonus", low=0)
    value_coefficient: float = setting(0.5, "weight of the value loss", low=0)
    max_grad_norm: float = setting(0.5, "global norm at which gradients are clipped", low=0, open_low=True)
    adam_epsilon: float = setting(1e-5, "Adam's epsilon", low=0, open_low=True)
    normalize_observations: bool = setting(False, "by running mean and variance, updated after the update")
    initial_log_std: float = setting(0.0, "of the Gaussian policy (box actions)")
    network: str | nn.Module = setting("auto", "torso: auto, mlp, cnn, or a flax module from observation to features")
    hidden: tuple[int, ...] = setting((64, 64), "widths of the torso's dense layers")
    activation: str = setting("tanh", "of the torso")
    shared_torso: bool = setting(False, "one torso for policy and value")

    def __post_init__(self):
        super().__post_init__()
        rows = self.num_envs * self.num_steps
        if rows % self.num_minibatches:
            raise ConfigError(
                "num_minibatches", self.num_minibatches, f"a divisor of num_envs * num_steps = {rows}"
            )

    @property
    def updates(self) -> int:
        return self.num_epochs * self.num_minibatches

    def memory(self) -> RolloutMemory:
        return RolloutMemory(self.num_steps, self.num_envs, self.num_minibatches)

    @property
    def torso(self) -> nn.Module:
        return make_torso(self.network, self.spec.observation, self.hidden, self.activation)

    @property
    def heads(self) -> dict[str, nn.Module]:
        return {"policy": Dense(distributions.num_outputs(self.spec.action), 0.01), "value": Dense(1, 1.0)}

    @property
    def optimizer(self):
        return optim.adam(self.max_grad_norm, self.adam_epsilon)

    def init(self, key: jax.Array) -> Agent:
        obs = stacking.example(self.spec)
        moments = Moments.init(jax.tree.map(lambda x: x[0], obs)) if self.normalize_observations else ()
        obs = self.view(moments, obs)
        torso_key, *keys = random.split(key, 3)
        if self.shared_torso:
            params = {"torso": self.torso.init(torso_key, obs)}
        else:
            params = {"torso": jax.vmap(self.torso.init, (0, None))(random.split(torso_key), obs)}
        features = jax.eval_shape(lambda p: self.features(p, obs)[0], params)
        for (name, head), k in zip(self.heads.items(), keys, strict=True):
            params[name] = head.init(k, jnp.zeros(features.shape))
        if isinstance(self.spec.action, Box):
            params["log_std"] = jnp.full((math.prod(self.spec.action.shape),), self.initial_log_std, jnp.float32)
        return Agent(params, self.optimizer.init(params), moments)

    def view(self, moments: Any, obs: Any) -> Any:
        """The observation as the networks see it: float features normalised; images, integers and masks as they are."""
        return normalized(self.spec.observation, moments.normalize(obs), obs) if self.normalize_observations else obs

    def features(self, params: Any, obs: Any) -> tuple[jax.Array, jax.Array]:
        """The actor's and the critic's features [..., F]."""
        if self.shared_torso:
            return (self.torso.apply(params["torso"], obs),) * 2
        if isinstance(self.torso, MLP):  # one batched product instead of two: half the kernels of a small network
            return tuple(jax.vmap(self.torso.apply, (0, None))(params["torso"], obs))
        return self.one_features(params, obs, 0), self.one_features(params, obs, 1)

    def one_features(self, params: Any, obs: Any, which: int) -> jax.Array:
        """The actor's (0) or the critic's (1) features alone."""
        if self.shared_torso or (which == 0 and "actor" in params):
            return self.torso.apply(params.get("actor", params["torso"]), obs)
        return self.torso.apply(tree.take(params["torso"], which), obs)

    def policy(self, params: Any, obs: Any, features: Any = None) -> Any:
        features = self.one_features(params, obs, 0) if features is None else features
        out = self.heads["policy"].apply(params["policy"], features)
        mask = action_mask(self.spec.observation, obs)
        return distributions.from_outputs(self.spec.action, out, params.get("log_std"), mask)

    def value(self, params: Any, obs: Any, features: Any = None) -> jax.Array:
        features = self.one_features(params, obs, 1) if features is None else features
        return self.heads["value"].apply(params["value"], features)[..., 0]

    def both(self, params: Any, obs: Any) -> tuple[Any, jax.Array]:
        actor, critic = self.features(params, obs)
        return self.policy(params, obs, actor), self.value(params, obs, critic)

    def draw(self, key, num_steps, num_envs):
        return distributions.draw_noise(key, self.spec.action, (num_steps, num_envs))

    def acting(self, agent):
        """The actor's torso is sliced out of the pair once a rollout, not once a step."""
        params = agent.params
        actor = params["torso"] if self.shared_torso else tree.take(params["torso"], 0)
        return agent._replace(params=params | {"actor": actor})

    def act(self, agent, carry, obs, noise, clock, mode):
        space = self.spec.action
        dist = self.policy(agent.params, self.view(agent.moments, obs))
        if mode == "random":
            action = distributions.random_action(noise, space, action_mask(self.spec.observation, obs))
        else:
            action = dist.mode() if mode == "greedy" else dist.sample(noise)
        return carry, action.reshape(action.shape[:1] + space.shape), dist

    def prepare(self, agent, trajectory):
        """Log-probabilities, values and advantages of the whole rollout in one batch, after it."""
        steps, dist = trajectory.steps, trajectory.steps.extras
        obs = stacking.observations(trajectory, self.spec.stack)
        seen = jax.tree.map(lambda x, last: jnp.concatenate([x, last[None]]), obs, trajectory.last_obs)
        values = self.value(agent.params, self.view(agent.moments, seen))
        value, last = values[:-1], values[-1]
        action = steps.action.reshape(steps.reward.shape + (-1,)) if isinstance(self.spec.action, Box) else steps.action
        next_value = returns.bootstrap_values(
            value, last, steps.truncated, lambda t: self.value(
                agent.params, self.view(agent.moments, stacking.successors(trajectory, self.spec.stack, t))
            ),
        )  # fmt: skip
        advantage = returns.gae(
            steps.reward, steps.terminated, steps.done, value, next_value, self.discount, self.gae_lambda
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
            policy_loss, entropy = policy_loss.mean(), dist.entropy().mean()
            loss = policy_loss + self.value_coefficient * value_loss - self.entropy_coefficient * entropy
            return loss, (policy_loss, value_loss, entropy, ratio, batch.log_prob - log_prob)

        grads, (policy_loss, value_loss, entropy, ratio, log_ratio) = jax.grad(loss_fn, has_aux=True)(agent.params)
        rate = self.learning_rate * (1.0 - clock.progress) if self.anneal_learning_rate else self.learning_rate
        params, opt_state = optim.apply(self.optimizer, rate, agent.params, grads, agent.opt_state)
        metrics = {
            "policy_loss": policy_loss,
            "value_loss": value_loss,
            "entropy": entropy,
            "approx_kl": jnp.mean(ratio - 1.0 + log_ratio),  # Schulman's k3 estimate
            "clip_fraction": jnp.mean(jnp.abs(ratio - 1.0) > self.clip_ratio),
        }
        return Agent(params, opt_state, agent.moments), {k: Mean.of(v) for k, v in metrics.items()}, ()

    def finish(self, agent, rows):
        if not self.normalize_observations:
            return agent
        return agent._replace(moments=agent.moments.update(rows.obs))


def normalized(space: Space, normal: Any, raw: Any) -> Any:
    """`normal` where the space is a float Box, `raw` elsewhere."""
    if isinstance(space, Dict):
        return {name: normalized(child, normal[name], raw[name]) for name, child in space.items}
    return normal if isinstance(space, Box) and jnp.issubdtype(space.dtype, jnp.floating) else raw
