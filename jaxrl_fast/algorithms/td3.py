"""Twin delayed DDPG (Fujimoto et al. 2018), with DDPG (Lillicrap et al. 2016) as a case."""

from __future__ import annotations

from typing import Any, ClassVar, NamedTuple

import jax
import jax.numpy as jnp

from jaxrl_fast import random, tree
from jaxrl_fast.algorithms.common.control import ActorCritics
from jaxrl_fast.algorithms.common.normalize import normalize_obs
from jaxrl_fast.fields import setting
from jaxrl_fast.ops import optim, returns
from jaxrl_fast.types import Clock, Mean


class Agent(NamedTuple):
    params: dict[str, Any]  # {"actor", "critics"}
    target: dict[str, Any]
    opt_state: dict[str, Any]
    moments: Any

    __repr__ = tree.summary


@tree.settings
class TD3(ActorCritics):
    """Twin delayed DDPG (Fujimoto et al. 2018): off-policy control, deterministic policy.

    DDPG (Lillicrap et al. 2016): num_critics=1, policy_period=1, target_noise=0.
    """

    name: ClassVar[str] = "td3"

    policy_period: int = setting(2)
    """critic updates for each update of the actor and the targets"""
    exploration_noise: float = setting(0.1, low=0)
    """standard deviation of the noise on actions in [-1, 1]"""
    target_noise: float = setting(0.2, low=0)
    """standard deviation of the noise on the target policy's actions"""
    target_noise_clip: float = setting(0.5, low=0)
    """bound of the target noise"""

    @property
    def actor_outputs(self) -> int:
        return self.action_size

    def init(self, key: jax.Array) -> Agent:
        return self.begin(*self.init_networks(key))

    def begin(self, params, moments=()):
        return Agent(params, tree.copy(params), self.init_optimizers(params), moments)

    def policy(self, params: Any, obs: Any) -> jax.Array:
        return jnp.tanh(self.networks.actor_output(params, obs))

    def choose(self, params, obs, noise, greedy):
        action = self.policy(params, obs)
        return action if greedy else jnp.clip(action + self.exploration_noise * noise, -1.0, 1.0)

    def update(self, agent, batch, key, clock):
        obs, boot_obs = (normalize_obs(self.spec.observation, agent.moments, x)
                         for x in (batch.obs, batch.boot_obs))
        target = jax.lax.stop_gradient(self.target(agent, batch, boot_obs, key))
        agent, metrics, priority = self.update_critics(agent, clock, obs, batch, target)
        agent, more = self.delayed(agent, clock, lambda: self.update_policy(agent, clock, obs))
        return agent, metrics | more, priority

    def target(self, agent: Agent, batch: Any, boot_obs: Any, key: jax.Array) -> jax.Array:
        """Return r + gamma min Q'(s', pi'(s') + clipped noise) [b, 1] (section 5.3)."""
        action = self.policy(agent.target["actor"], boot_obs)
        noise = self.target_noise * random.normal(key, action.shape)
        noise = jnp.clip(noise, -self.target_noise_clip, self.target_noise_clip)
        z = self.networks.critic_output(agent.target["critics"], boot_obs,
                                        jnp.clip(action + noise, -1.0, 1.0))
        ret, factor = returns.window_return(batch, self.discount)
        return self.reward_scale * ret[:, None] + factor[:, None] * jnp.min(z, axis=0)

    def update_policy(self, agent: Agent, clock: Clock, obs: Any) -> tuple[Agent, dict[str, Mean]]:
        """Update the actor up the first critic, then both targets (the end of algorithm 1)."""

        def loss_fn(actor):
            action = self.policy(actor, obs)
            q = self.networks.critic_output(agent.params["critics"], obs, action)[0]
            return -jnp.mean(q), ()

        agent, (loss, _) = self.gradient_step(agent, clock, "actor", loss_fn)
        agent = agent._replace(target=optim.polyak(agent.target, agent.params, self.target_tau))
        return agent, {"actor_loss": Mean.of(loss)}
