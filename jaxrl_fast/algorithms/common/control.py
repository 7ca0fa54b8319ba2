"""The shared part of SAC, TD3, TQC and CrossQ: an actor and critics that learn from replay."""

from __future__ import annotations

import math
from collections.abc import Callable
from typing import Any, ClassVar

import flax.linen as nn
import jax
import jax.numpy as jnp

from jaxrl_fast import random, tree
from jaxrl_fast.algorithms.base import IN_NETWORKS, IN_STEPS, Algorithm, check_bounded
from jaxrl_fast.algorithms.common import descent, replay
from jaxrl_fast.algorithms.common.control_networks import ControlNetworks, critic_torso
from jaxrl_fast.algorithms.common.normalize import init_moments, normalize_obs, update_moments
from jaxrl_fast.errors import ConfigError, check_not_zero
from jaxrl_fast.fields import WIDEST, setting
from jaxrl_fast.networks import Dense, as_network, check_widths, make_torso
from jaxrl_fast.ops import distributions, lowering, optim, stacking
from jaxrl_fast.ops.optimizer_settings import check_descends, optimizer_setting, schedule_setting
from jaxrl_fast.spaces import Box
from jaxrl_fast.types import Clock, Mean


@tree.settings
class ActorCritics(Algorithm):
    """Actor and critics on actions in [-1, 1]^d; the replay keeps the action's own bounds.

    params: {"actor": {"torso", "head"}, "critics": the same, stacked [num_critics, ...], ...}.
    """

    action_spaces: ClassVar[tuple[type, ...]] = (Box,)
    removed: ClassVar[dict[str, str]] = {
        **dict.fromkeys(("actor", "critic", "actor_output", "critic_output", "torso"), IN_NETWORKS),
        **dict.fromkeys(("view", "descend"), IN_STEPS),
        "init_optimizer": "override `begin`",
    }

    normalize_observations: bool = setting(False)
    """normalise observations by running mean and variance"""
    num_envs: int = setting(8)
    """environments stepped together"""
    num_steps: int = setting(1)
    """steps of each environment between updates"""
    updates_per_iteration: int = setting(8)
    """optimizer steps after every num_envs * num_steps environment steps"""
    batch_size: int = setting(256)
    """windows in a batch"""
    buffer_size: int = setting(1_000_000, low=2)
    """transitions kept"""
    learning_starts: int = setting(5_000, low=0)
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
    optimizer: str | Callable[..., Any] | None = setting(None, convert=optimizer_setting)
    """optax optimizer, by name or as a function of the rate; none: the algorithm's own"""
    learning_rate: float = setting(3e-4, low=0, convert=schedule_setting)
    """Adam's step size"""
    anneal_learning_rate: bool = setting(False)
    """anneal linearly to zero over the horizon"""
    discount: float = setting(0.99, low=0, high=1)
    """gamma"""
    target_tau: float = setting(0.005, low=0, high=1, open_low=True)
    """step of the target networks an update (Polyak)"""
    reward_scale: float = setting(1.0)
    """scale of the critics' rewards; logs keep the environment's"""
    noise_correlation: float = setting(0.0, low=0, high=1, open_high=True)
    """exploration noise's correlation (Ornstein-Uhlenbeck)"""
    num_critics: int = setting(2)
    """critics; the lowest value counts"""
    policy_period: int = setting(1)
    """critic updates for each actor update"""
    adam_epsilon: float = setting(1e-8, low=0, open_low=True)
    """epsilon of Adam"""
    network: str | nn.Module = setting("auto", convert=as_network)
    """torso: auto, mlp, cnn, or your own network from observation to features (flax, nnx,
    Equinox)"""
    hidden: tuple[int, ...] = setting((256, 256), high=WIDEST)
    """widths of the actor's dense layers"""
    critic_hidden: tuple[int, ...] = setting((256, 256), high=WIDEST)
    """widths of each critic's dense layers"""
    activation: str = setting("relu")
    """activation of actor and critics"""
    layer_norm: bool = setting(False)
    """layer norm before every activation of the critics"""

    def __post_init__(self):
        super().__post_init__()
        replay.check(self)
        check_not_zero("reward_scale", self.reward_scale)
        if self.layer_norm:
            check_widths("critic_hidden", self.critic_hidden)

    def bind(self, spec):
        check_descends(self.optimizer, self.learning_rate)
        check_bounded(spec, "environment", spec.name,
                      f"one that {self.name} can act in: {self.name} needs bounded actions")
        if self.normalize_observations and spec.stack > 1:
            raise ConfigError("normalize_observations", True,
                              "False with stacked frames: the replay holds single ones")
        return super().bind(spec)

    @property
    def action_size(self) -> int:
        return math.prod(self.spec.action.shape)

    @property
    def actor_outputs(self) -> int:
        """Return the number of the actor's outputs for a state."""
        raise NotImplementedError

    @property
    def critic_outputs(self) -> int:
        """Return the number of a critic's outputs for a state and an action."""
        return 1

    @property
    def networks(self) -> ControlNetworks:
        """Return the actor and the critics."""
        torso = make_torso(self.network, self.spec.observation, self.hidden, self.activation)
        actor = {"torso": torso, "head": Dense(self.actor_outputs, 0.01)}
        torso = critic_torso(self.spec, torso, self.critic_hidden, self.activation, self.layer_norm)
        critic = {"torso": torso, "head": Dense(self.critic_outputs, 1.0)}
        return ControlNetworks(self.spec, actor, critic, self.num_critics, self.precision)

    def init_networks(self, key: jax.Array) -> tuple[dict[str, Any], Any]:
        """Return ({"actor", "critics"}, moments of the observations)."""
        obs = stacking.example(self.spec)
        moments = init_moments(self.normalize_observations, obs)
        return self.networks.init(key, normalize_obs(self.spec.observation, moments, obs)), moments

    def init_carry(self, num_envs):
        """Return the last noise of each environment; 0 means none."""
        return jnp.zeros((num_envs, self.action_size), jnp.float32)

    def draw(self, key, num_steps, num_envs):
        return random.normal(key, (num_steps, num_envs, self.action_size))

    def act(self, agent, carry, obs, noise, clock, mode):
        rho = self.noise_correlation  # unit variance, also of an episode's first noise
        noise = jnp.where(carry == 0.0, noise,
                          rho * carry + jnp.sqrt(1.0 - jnp.square(rho)) * noise)
        if mode == "random":
            return noise, distributions.random_action(noise, self.spec.action), ()
        obs = normalize_obs(self.spec.observation, agent.moments, obs)
        action = self.choose(agent.params["actor"], obs, noise, mode == "greedy")
        return noise, self.spec.action.from_unit(action), ()

    def choose(self, params: Any, obs: Any, noise: jax.Array, greedy: bool) -> jax.Array:
        """Return the action in [-1, 1]^d."""
        raise NotImplementedError

    updates = property(replay.updates)
    warmup_steps = property(replay.warmup_steps)
    memory = replay.memory
    prepare = replay.prepare

    def finish(self, agent, rows):
        return agent._replace(moments=update_moments(agent.moments, rows.obs))

    @property
    def default_optimizer(self):
        return optim.adam(epsilon=self.adam_epsilon)

    def layers(self, name: str) -> optim.View | None:
        return self.networks.layers if name == "critics" else None

    def init_optimizers(self, params: dict[str, Any]) -> dict[str, Any]:
        """Return an optimizer state for each part of the parameters."""
        return {name: descent.init_optimizer(self, part, self.layers(name))
                for name, part in params.items()}

    def gradient_step(self, agent: Any, clock: Clock, name: str, loss: Any) -> tuple[Any, Any]:
        """Take one step on loss(params[name]) -> (value, aux); return (agent, (value, aux))."""
        out, grads = jax.value_and_grad(loss, has_aux=True)(agent.params[name])
        period = 1 if name == "critics" else self.policy_period
        params, opt_state = descent.gradient_step(
            self, clock, agent.params[name], grads, agent.opt_state[name], self.layers(name), period
        )
        params, opt_state = agent.params | {name: params}, agent.opt_state | {name: opt_state}
        return agent._replace(params=params, opt_state=opt_state), out

    def delayed(self, agent: Any, clock: Clock, improve: Any) -> tuple[Any, dict[str, Mean]]:
        """Run improve() -> (agent, metrics) at every policy_period-th update; else keep `agent`."""
        if self.policy_period == 1:
            return improve()
        none = jax.tree.map(lambda x: jnp.zeros(x.shape, x.dtype), jax.eval_shape(improve)[1])
        return lowering.when(clock.update % self.policy_period == 0, improve, lambda: (agent, none))

    def critic_loss(self, z: jax.Array, target: jax.Array,
                    batch: Any) -> tuple[jax.Array, tuple[dict, jax.Array]]:
        """Return (loss, (metrics, priorities [b])) of all critics' outputs and targets [b, ...]."""
        loss, error = self.regression(z, target)
        loss, error = jnp.mean(batch.weight * jnp.sum(loss, axis=0)), jnp.mean(error, axis=0)
        metrics = replay.means(batch, {"q_value": jnp.mean(z, axis=(0, 2)), "td_error": error})
        return loss, ({"critic_loss": Mean.of(loss)} | metrics, error)

    def update_critics(self, agent: Any, clock: Clock, obs: Any,
                       batch: Any, target: jax.Array) -> tuple[Any, dict, jax.Array]:
        """Take one step of all critics toward targets -> (agent, metrics, priorities [b])."""
        action = self.spec.action.to_unit(batch.action)
        z = lambda critics: self.networks.critic_output(critics, obs, action)
        loss_fn = lambda critics: self.critic_loss(z(critics), target, batch)
        agent, (_, (metrics, error)) = self.gradient_step(agent, clock, "critics", loss_fn)
        return agent, metrics, error

    def regression(self, z: jax.Array, target: jax.Array) -> tuple[jax.Array, jax.Array]:
        """Return losses and absolute errors [num_critics, b] of outputs and targets."""
        error = (z - target)[..., 0]
        return 0.5 * jnp.square(error), jnp.abs(error)
