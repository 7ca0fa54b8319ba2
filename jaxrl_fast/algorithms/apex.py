"""Ape-X (Horgan et al. 2018): DQN with many actors, each with its own epsilon."""

from __future__ import annotations

import dataclasses
from typing import Any, ClassVar, NamedTuple

import jax
import jax.numpy as jnp

from jaxrl_fast import tree
from jaxrl_fast.algorithms.dqn import DQN
from jaxrl_fast.errors import ConfigError
from jaxrl_fast.fields import setting
from jaxrl_fast.ops import distributions, returns
from jaxrl_fast.ops.optimizer_settings import schedule_setting
from jaxrl_fast.types import Window


class Explorer(NamedTuple):
    """How each actor explores, [B]."""

    place: jax.Array  # place among all actors, in [0, 1]
    least: jax.Array  # lowest epsilon

    __repr__ = tree.summary


class Values(NamedTuple):
    """The actor's own values of a step, [B]."""

    taken: jax.Array  # Q(s, a) of its action
    best: jax.Array  # max_a Q(s, a)


@dataclasses.dataclass(frozen=True)
class FirstError:
    """Return |error| [b] of new windows, from the values of the actor that played them."""

    discount: Any

    def __call__(self, window: Window) -> jax.Array:
        ret, factor = returns.window_return(window, self.discount)
        return jnp.abs(ret + factor * window.boot_extras.best - window.extras.taken)


@tree.settings
class ApeX(DQN):
    """Ape-X (Horgan et al. 2018): double, dueling, three-step DQN with many explorers.

    Replay is prioritized. Actor i of N explores with epsilon^(1 + exponent i / (N - 1)).
    """

    name: ClassVar[str] = "apex"

    num_envs: int = setting(64)
    """actors: environments, each with its own epsilon"""
    num_steps: int = setting(4)
    """steps of each environment between updates"""
    batch_size: int = setting(512)
    """windows in a batch"""
    learning_rate: float = setting(2.5e-4 / 4, low=0, convert=schedule_setting)
    """Adam's step size"""
    dueling: bool = setting(True)
    """Q = V + A - mean A (Wang et al. 2016)"""
    n_step: int = setting(3)
    """length of the return before the bootstrap"""
    prioritized: bool = setting(True)
    """sample windows by their error (Schaul et al. 2016)"""
    epsilon_start: float = setting(0.4, low=0, high=1)
    """first epsilon, before the exponents"""
    epsilon_end: float = setting(0.4, low=0, high=1)
    """last epsilon, before the exponents"""
    epsilon_exponent: float = setting(7.0, low=0)
    """exponent of the last actor, beyond 1; 0: all explore alike"""
    evaluation_epsilon: float = setting(0.01, low=0, high=1)
    """lowest epsilon of evaluations that sample"""
    max_grad_norm: float = setting(40.0, low=0, open_low=True)
    """global norm at which gradients are clipped"""

    def __post_init__(self):
        super().__post_init__()
        if not self.prioritized:
            raise ConfigError("prioritized", False,
                              f"True: {self.name} samples by priority; dqn can do without")
        if self.noisy:
            raise ConfigError("noisy", True, f"False: {self.name} explores by its epsilons; "
                                             "rainbow has noisy layers")

    def init_carry(self, num_envs):
        return Explorer(jnp.linspace(0.0, 1.0, num_envs, dtype=jnp.float32),
                        jnp.zeros(num_envs, jnp.float32))

    def evaluation_carry(self, num_envs):
        """Return the last actor's exploration, but with enough epsilon to end a game that waits."""
        return Explorer(jnp.ones(num_envs, jnp.float32),
                        jnp.full(num_envs, self.evaluation_epsilon, jnp.float32))

    def epsilon(self, carry, clock):
        return jnp.maximum(super().epsilon(carry, clock) ** (
            1.0 + self.epsilon_exponent * carry.place
        ), carry.least)

    def act(self, agent, carry, obs, noise, clock, mode):
        carry, action, _ = super().act(agent, carry, obs, noise, clock, mode)
        q = self.action_values(agent.params, obs)  # XLA finds these values already computed
        taken = distributions.at_action(q[..., None], action)
        return carry, action, Values(taken[..., 0], jnp.max(q, axis=-1))

    def memory(self):
        return dataclasses.replace(super().memory(), first=FirstError(self.discount))

    def prepare(self, agent, trajectory):
        return super().prepare(agent, trajectory)._replace(extras=trajectory.steps.extras)
