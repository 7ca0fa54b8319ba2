"""Deep Q-learning (Mnih et al. 2015) with its improvements as switches.

`c51`, `qr_dqn` and `iqn` are subclasses with other outputs an action and another loss.
"""

from __future__ import annotations

from typing import Any, ClassVar, NamedTuple

import jax
import jax.numpy as jnp

from jaxrl_fast import random, tree
from jaxrl_fast.algorithms.common import replay
from jaxrl_fast.algorithms.common.descent import agent_step, init_optimizer
from jaxrl_fast.algorithms.common.value_based import ValueBased
from jaxrl_fast.errors import ConfigError
from jaxrl_fast.fields import setting
from jaxrl_fast.ops import distributions, losses, optim, returns
from jaxrl_fast.types import Mean


class Agent(NamedTuple):
    params: Any  # {"torso", "head", "value": dueling only, ...}
    target: Any
    opt_state: Any

    __repr__ = tree.summary


@tree.settings
class DQN(ValueBased):
    """Deep Q-learning (Mnih et al. 2015): replay and a target network."""

    name: ClassVar[str] = "dqn"
    has_huber: ClassVar[bool] = True  # whether the loss reads `huber`

    updates_per_iteration: int = setting(1)
    """optimizer steps after every num_envs * num_steps environment steps"""
    batch_size: int = setting(128)
    """windows in a batch"""
    buffer_size: int = setting(100_000, low=2)
    """transitions kept"""
    learning_starts: int = setting(10_000, low=0)
    """random environment steps before the first update"""
    n_step: int = setting(1)
    """length of the return before the bootstrap"""
    prioritized: bool = setting(False)
    """sample windows by their error (Schaul et al. 2016)"""
    priority_exponent: float = setting(0.6, low=0, high=1)
    """alpha; 0 samples uniformly"""
    importance_exponent: float = setting(0.4, low=0, high=1)
    """first beta; it rises to 1 at the horizon"""
    priority_epsilon: float = setting(1e-6, low=0, open_low=True)
    """added to every error"""
    truncation_interval: int = setting(0, low=0)
    """rows of an environment that share a slot for a truncated successor; 0: by its time limit"""
    target_period: int = setting(50)
    """updates between moves of the target network"""
    target_tau: float = setting(1.0, low=0, high=1, open_low=True)
    """step of the target: 1 copies, 0.005 with period 1 is Polyak"""
    double: bool = setting(True)
    """the online network chooses the bootstrap action (van Hasselt et al. 2016)"""
    huber: bool = setting(False)
    """Huber loss with delta 1 instead of half the square; for rewards up to 1"""
    munchausen: bool = setting(False)
    """soft values and a log-policy bonus (Vieillard et al. 2020)"""
    munchausen_alpha: float = setting(0.9, low=0, high=1)
    """weight of the log-policy"""
    munchausen_temperature: float = setting(0.03, low=0, open_low=True)
    """temperature of the soft policy"""
    munchausen_clip: float = setting(-1.0, high=0)
    """lowest value of temperature * log-policy"""
    reset_period: int = setting(0, low=0)
    """updates between resets of heads and optimizer (Nikishin et al. 2022)"""

    def __post_init__(self):
        super().__post_init__()
        replay.check(self)
        if self.munchausen and self.n_step > 1:
            raise ConfigError("n_step", self.n_step,
                              "1 with munchausen: its bonus belongs to each single step")
        if self.huber and not self.has_huber:
            raise ConfigError("huber", True, f"False: {self.name} has its own loss")

    updates = property(replay.updates)
    warmup_steps = property(replay.warmup_steps)
    memory = replay.memory
    prepare = replay.prepare

    def begin(self, params, moments=()):
        return Agent(params, tree.copy(params), init_optimizer(self, params))

    def update(self, agent, batch, key, clock):
        target_key, online_key, reset_key = random.split(key, 3)
        targets = jax.lax.stop_gradient(self.target(agent, batch, target_key))

        def loss_fn(params):
            z, taus = self.predict(params, batch.obs, online_key)
            z = distributions.at_action(z, batch.action)
            loss, error = self.regression(z, taus, targets)
            return jnp.mean(batch.weight * loss), (error, self.expected(z))

        agent, (loss, (error, q)) = agent_step(self, clock, agent, loss_fn)
        if self.reset_period:
            params, opt_state = self.reset(agent.params, agent.opt_state, reset_key, clock)
            agent = agent._replace(params=params, opt_state=opt_state)
        due = clock.update % self.target_period == 0
        target = optim.move_target(due, agent.target, agent.params, self.target_tau)
        metrics = replay.means(batch, {"q_value": q, "td_error": jnp.abs(error)})
        return agent._replace(target=target), {"loss": Mean.of(loss)} | metrics, jnp.abs(error)

    def predict(self, params: Any, obs: Any, key: jax.Array) -> tuple[jax.Array, Any]:
        """Return outputs of every action [b, n, outputs] and their fractions (IQN; else ())."""
        return self.networks.apply(params, obs, key), ()

    def target(self, agent: Agent, batch: Any, key: jax.Array) -> jax.Array:
        """Return targets [b, outputs]: r + factor * z' of the bootstrap state, through `backup`."""
        keys = random.split(key, 3)
        z, _ = self.predict(agent.target, batch.boot_obs, keys[0])
        ret, factor = returns.window_return(batch, self.discount)
        if self.munchausen:
            tau = self.munchausen_temperature
            log_policy = jax.nn.log_softmax(self.legal(self.expected(z), batch.boot_obs) / tau)
            z = jnp.sum(jnp.exp(log_policy)[..., None] * (z - tau * log_policy[..., None]), axis=-2)
            taken = jax.nn.log_softmax(self.action_values(agent.target, batch.obs, keys[1]) / tau)
            bonus = tau * distributions.at_action(taken[..., None], batch.action)[..., 0]
            ret = ret + self.munchausen_alpha * jnp.clip(bonus, self.munchausen_clip, 0.0)
        else:
            q = (self.action_values(agent.params, batch.boot_obs, keys[2]) if self.double
                 else self.legal(self.expected(z), batch.boot_obs))
            z = distributions.at_action(z, distributions.argmax(q))
        return self.backup(ret, factor, z)

    def backup(self, ret: jax.Array, factor: jax.Array, z: jax.Array) -> jax.Array:
        """Return targets [b, outputs] of ret and factor [b] and bootstrap outputs [b, outputs]."""
        return ret[:, None] + factor[:, None] * z

    def regression(self, z: jax.Array, taus: Any, target: jax.Array) -> tuple[jax.Array, jax.Array]:
        """Return the loss of outputs [b, outputs] and the error of the priority, [b] each."""
        error = (z - target)[:, 0]
        return losses.huber(error) if self.huber else 0.5 * jnp.square(error), error

    def reset(self, params: Any, opt_state: Any, key: jax.Array, clock: Any) -> tuple[Any, Any]:
        """Make new heads and optimizer every `reset_period` updates; the torso stays."""
        new_heads = lambda: self.init_params(key) | {"torso": params["torso"]}
        begun = lambda params: (params, init_optimizer(self, params))
        return jax.lax.cond((clock.update + 1) % self.reset_period == 0,
                            lambda: begun(new_heads()), lambda: (params, opt_state))
