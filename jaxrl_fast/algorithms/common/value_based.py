"""The shared part of value-based algorithms: settings, epsilon-greedy and noisy acting."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, ClassVar

import flax.linen as nn
import jax
import jax.numpy as jnp

from jaxrl_fast import random, tree
from jaxrl_fast.algorithms.base import IN_NETWORKS, IN_STEPS, Algorithm, action_mask
from jaxrl_fast.algorithms.common.q_network import QNetwork
from jaxrl_fast.fields import WIDEST, setting
from jaxrl_fast.networks import as_network, make_torso
from jaxrl_fast.ops import distributions, optim, stacking
from jaxrl_fast.ops.optimizer_settings import check_descends, optimizer_setting, schedule_setting
from jaxrl_fast.spaces import Discrete
from jaxrl_fast.types import Clock


@tree.settings
class ValueBased(Algorithm):
    """Action values from a torso and a head with `outputs` numbers an action."""

    action_spaces: ClassVar[tuple[type, ...]] = (Discrete,)
    removed: ClassVar[dict[str, str]] = {
        **dict.fromkeys(("gradient_step", "layers", "scaled"), IN_STEPS),
        "init_optimizer": "override `begin`",
        **dict.fromkeys(("torso", "heads", "features", "head", "variables"), IN_NETWORKS),
    }  # fmt: skip

    optimizer: str | Callable[..., Any] | None = setting(None, convert=optimizer_setting)
    """optax optimizer, by name or as a function of the rate; none: the algorithm's own"""
    num_envs: int = setting(8)
    """environments stepped together"""
    num_steps: int = setting(1)
    """steps of each environment between updates"""
    learning_rate: float = setting(2.5e-4, low=0, convert=schedule_setting)
    """Adam's step size"""
    anneal_learning_rate: bool = setting(False)
    """anneal linearly to zero over the horizon"""
    discount: float = setting(0.99, low=0, high=1)
    """gamma"""
    epsilon_start: float = setting(1.0, low=0, high=1)
    """first epsilon"""
    epsilon_end: float = setting(0.05, low=0, high=1)
    """last epsilon"""
    epsilon_fraction: float = setting(0.5, low=0, high=1, open_low=True)
    """part of the horizon over which epsilon falls"""
    dueling: bool = setting(False)
    """Q = V + A - mean A (Wang et al. 2016)"""
    noisy: bool = setting(False)
    """noisy dense layers (Fortunato et al. 2018); set epsilon_start and epsilon_end to 0"""
    max_grad_norm: float = setting(10.0, low=0, open_low=True)
    """global norm at which gradients are clipped"""
    adam_epsilon: float = setting(1e-8, low=0, open_low=True)
    """epsilon of Adam"""
    network: str | nn.Module = setting("auto", convert=as_network)
    """torso: auto, mlp, cnn, or your own network from observation to features (flax, nnx,
    Equinox)"""
    hidden: tuple[int, ...] = setting((128, 128), high=WIDEST)
    """widths of the torso's dense layers"""
    activation: str = setting("relu")
    """activation of the torso"""
    layer_norm: bool = setting(False)
    """layer norm before every activation of the torso"""
    image_mean: float = setting(0.0, static=True)
    """a CNN sees pixels as (pixel - image_mean) / image_scale"""
    image_scale: float = setting(0.0, low=0, static=True)
    """divisor of pixels; 0: their range, to [0, 1]"""

    def bind(self, spec):
        check_descends(self.optimizer, self.learning_rate)
        return super().bind(spec)

    @property
    def outputs(self) -> int:
        """Return the number of the head's outputs for an action."""
        return 1

    def expected(self, z: jax.Array) -> jax.Array:
        """Return the value [...] of outputs [..., outputs]: their mean."""
        return z[..., 0]

    @property
    def networks(self) -> QNetwork:
        torso = make_torso(
            self.network, self.spec.observation, self.hidden, self.activation, self.layer_norm,
            self.noisy, (self.image_mean, self.image_scale),
        )  # fmt: skip
        return QNetwork(torso, self.spec.action.n, self.outputs, self.dueling,
                        self.noisy, self.precision)

    @property
    def default_optimizer(self):
        return optim.adam(self.max_grad_norm, self.adam_epsilon)

    def init(self, key: jax.Array) -> Any:
        return self.begin(self.init_params(key))

    def init_params(self, key: jax.Array) -> dict[str, Any]:
        return self.networks.init(key, stacking.example(self.spec), self.more_modules)

    def more_modules(self, features: jax.Array) -> dict[str, tuple[nn.Module, Any]]:
        """Return the networks beside torso and heads, {name: (module, example input)}."""
        return {}

    def action_values(self, params: Any, obs: Any, key: jax.Array | None = None) -> jax.Array:
        """Return Q(s, .) [..., n] to choose actions from; illegal ones are lower than any other."""
        return self.legal(self.expected(self.networks.apply(params, obs, key)), obs)

    def legal(self, q: jax.Array, obs: Any) -> jax.Array:
        mask = action_mask(self.spec.observation, obs)
        return q if mask is None else jnp.where(mask, q, distributions.ILLEGAL)

    def draw(self, key, num_steps, num_envs):
        """Return Gumbel noise [T, B, n], uniform numbers [T, B] and keys of noisy layers [T]."""
        noisy = ()
        if self.noisy:
            key, other = random.split(key)
            noisy = random.split(other, num_steps)
        uniform = random.uniform(key, (num_steps, num_envs, 1 + self.spec.action.n))
        return random.to_gumbel(uniform[..., 1:]), uniform[..., 0], noisy

    def act(self, agent, carry, obs, noise, clock, mode):
        gumbel, explore, key = noise
        random_action = distributions.random_action(gumbel, self.spec.action,
                                                    action_mask(self.spec.observation, obs))
        if mode == "random":
            return carry, random_action, ()
        if self.noisy and mode == "sample":  # a noise for each environment
            # the values of a batch of one
            one = lambda obs, key: self.action_values(agent.params, tree.take(obs, None), key)[0]
            q = jax.vmap(one)(obs, random.split(key, len(explore)))
        else:
            q = self.action_values(agent.params, obs)
        greedy = distributions.best(q)
        if mode == "greedy":
            return carry, greedy, ()
        return carry, jnp.where(explore < self.epsilon(carry, clock), random_action, greedy), ()

    def epsilon(self, carry: Any, clock: Clock) -> jax.Array:
        """Return the probability of a random action: a number, or one an environment [B]."""
        return clock.anneal(self.epsilon_start, self.epsilon_end, self.epsilon_fraction)
