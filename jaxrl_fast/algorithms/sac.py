"""Soft actor-critic (Haarnoja et al. 2018a, b): maximum entropy with twin critics."""

from __future__ import annotations

from typing import Any, ClassVar, NamedTuple

import jax
import jax.numpy as jnp

from jaxrl_fast import random, tree
from jaxrl_fast.algorithms.common.control import ActorCritics
from jaxrl_fast.algorithms.common.normalize import normalize_obs
from jaxrl_fast.errors import ConfigError, is_number
from jaxrl_fast.fields import setting
from jaxrl_fast.ops import optim, returns
from jaxrl_fast.ops.distributions import TanhNormal
from jaxrl_fast.types import Clock, Mean


class Agent(NamedTuple):
    params: dict[str, Any]  # {"actor", "critics", "log_temperature"}
    target: Any  # of the critics
    opt_state: dict[str, Any]  # one for each of `params`
    moments: Any

    __repr__ = tree.summary


@tree.settings
class SAC(ActorCritics):
    """Soft actor-critic (Haarnoja et al. 2018): off-policy control with maximum entropy.

    The policy is a tanh Gaussian; the temperature is learned.
    """

    name: ClassVar[str] = "sac"

    autotune: bool = setting(True)
    """learn the temperature that reaches the target entropy"""
    initial_temperature: float = setting(1.0, low=0, open_low=True)
    """alpha: the weight of the entropy"""
    target_entropy: float = setting(-1.0)
    """target entropy of the policy for each action dimension"""
    log_std_min: float = setting(-10.0)
    """lowest log standard deviation before the tanh"""
    log_std_max: float = setting(2.0)
    """highest log standard deviation before the tanh"""

    def __post_init__(self):
        super().__post_init__()
        low, high = self.log_std_min, self.log_std_max
        if is_number(low) and is_number(high) and low > high:
            raise ConfigError("log_std_min", low, f"at most log_std_max = {high}")

    @property
    def actor_outputs(self) -> int:
        return 2 * self.action_size

    def init(self, key: jax.Array) -> Agent:
        params, moments = self.init_networks(key)
        params["log_temperature"] = jnp.log(jnp.asarray(self.initial_temperature, jnp.float32))
        return self.begin(params, moments)

    def begin(self, params, moments=()):
        return Agent(params, tree.copy(params["critics"]), self.init_optimizers(params), moments)

    def policy(self, output: jax.Array) -> TanhNormal:
        """Return the distribution of actions for the actor's outputs [b, 2 d]."""
        mean, log_std = jnp.split(output, 2, axis=-1)
        return TanhNormal(mean, jnp.clip(log_std, self.log_std_min, self.log_std_max))

    def choose(self, params, obs, noise, greedy):
        dist = self.policy(self.networks.actor_output(params, obs))
        return dist.squash(dist.mode() if greedy else dist.sample(noise))

    def sample(self, output: jax.Array, key: jax.Array) -> tuple[jax.Array, jax.Array]:
        """Draw actions in [-1, 1]^d and their log-probabilities, differentiable."""
        dist = self.policy(output)
        raw = dist.sample(random.normal(key, dist.mean.shape))
        return dist.squash(raw), dist.log_prob(raw)

    def update(self, agent, batch, key, clock):
        target_key, actor_key = random.split(key)
        obs, boot_obs = (normalize_obs(self.spec.observation, agent.moments, x)
                         for x in (batch.obs, batch.boot_obs))
        agent, metrics, priority = self.learn_critics(
            agent, clock, batch, obs, boot_obs, target_key
        )
        agent, more = self.delayed(agent, clock,
                                   lambda: self.update_policy(agent, clock, obs, actor_key))
        return agent, metrics | more, priority

    def learn_critics(self, agent: Agent, clock: Clock, batch: Any,
                      obs: Any, boot_obs: Any, key: jax.Array):
        """Update the critics and their targets -> (agent, metrics, priorities [b])."""
        target = jax.lax.stop_gradient(self.target(agent, batch, boot_obs, key))
        agent, metrics, priority = self.update_critics(agent, clock, obs, batch, target)
        critics = optim.polyak(agent.target, agent.params["critics"], self.target_tau)
        return agent._replace(target=critics), metrics, priority

    def target(self, agent: Agent, batch: Any, boot_obs: Any, key: jax.Array) -> jax.Array:
        """Return r + gamma (min Q'(s', a') - alpha log pi), a' ~ pi (eq. 3 and 5 of 2018b)."""
        action, log_prob = self.sample(
            self.networks.actor_output(agent.params["actor"], boot_obs), key
        )
        return self.backup(agent, batch,
                           self.networks.critic_output(agent.target, boot_obs, action), log_prob)

    def backup(self, agent: Agent, batch: Any, z: jax.Array, log_prob: jax.Array) -> jax.Array:
        """Return targets [b, outputs] from all critics' outputs z at (s', a')."""
        ret, factor = returns.window_return(batch, self.discount)
        soft = self.pool(z) - jnp.exp(agent.params["log_temperature"]) * log_prob[:, None]
        return self.reward_scale * ret[:, None] + factor[:, None] * soft

    def pool(self, z: jax.Array) -> jax.Array:
        """Pool all critics' outputs [num_critics, b, outputs] into a low estimate [b, outputs']."""
        return jnp.min(z, axis=0)

    def value(self, z: jax.Array) -> jax.Array:
        """Return the actor's objective [b]."""
        return jnp.min(jnp.mean(z, axis=-1), axis=0)

    def update_policy(self, agent: Agent, clock: Clock, obs: Any,
                      key: jax.Array) -> tuple[Agent, dict[str, Mean]]:
        """Update the actor up Q - alpha log pi, then the temperature (eq. 9 and 18 of 2018b)."""
        temperature = jnp.exp(agent.params["log_temperature"])

        def loss_fn(actor):
            output, seen = self.learning_output(actor, obs)
            action, log_prob = self.sample(output, key)
            q = self.value(self.networks.critic_output(agent.params["critics"], obs, action))
            return jnp.mean(temperature * log_prob - q), (log_prob, seen)

        agent, (loss, (log_prob, seen)) = self.gradient_step(agent, clock, "actor", loss_fn)
        agent = self.keep(agent, "actor", seen)
        metrics = {"actor_loss": loss, "entropy": -jnp.mean(log_prob), "temperature": temperature}
        if self.autotune:
            excess = -jnp.mean(log_prob) - self.target_entropy * self.action_size
            agent, _ = self.gradient_step(agent, clock, "log_temperature",
                                          lambda x: (jnp.exp(x) * excess, ()))
        return agent, {name: Mean.of(x) for name, x in metrics.items()}

    def learning_output(self, params: Any, obs: Any) -> tuple[jax.Array, Any]:
        """Return the actor's outputs in its update and its new running statistics, else ()."""
        return self.networks.actor_output(params, obs), ()

    def keep(self, agent: Agent, name: str, seen: Any) -> Agent:
        """Return `agent` with the running statistics that network `name` saw."""
        return agent
