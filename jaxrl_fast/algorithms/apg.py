"""Analytic policy gradient (Freeman et al. 2021): differentiate reward through the physics."""

from __future__ import annotations

import math
from collections.abc import Callable
from typing import Any, ClassVar, NamedTuple

import jax
import jax.numpy as jnp

from jaxrl_fast import tree
from jaxrl_fast.algorithms.base import check_bounded
from jaxrl_fast.algorithms.common.descent import gradient_step, init_optimizer
from jaxrl_fast.algorithms.common.normalize import normalize_obs
from jaxrl_fast.algorithms.common.policy_search import PolicySearch
from jaxrl_fast.envs.gradient import check_differentiable
from jaxrl_fast.fields import setting
from jaxrl_fast.ops import distributions, optim
from jaxrl_fast.ops.optimizer_settings import check_descends, optimizer_setting, schedule_setting
from jaxrl_fast.spaces import Box
from jaxrl_fast.types import Mean


class Agent(NamedTuple):
    params: Any  # {"torso", "head", "log_std" where stochastic}
    opt_state: Any
    moments: Any  # running observation statistics, () without normalisation

    __repr__ = tree.summary


@tree.settings
class APG(PolicySearch):
    """Analytic policy gradient (Freeman et al. 2021): backpropagation through the physics.

    Follows the gradient of a short rollout's mean reward; needs a differentiable environment.
    """

    name: ClassVar[str] = "apg"
    action_spaces: ClassVar[tuple[type, ...]] = (Box,)

    optimizer: str | Callable[..., Any] | None = setting(None, convert=optimizer_setting)
    """optax optimizer, by name or as a function of the rate; none: the algorithm's own"""
    num_envs: int = setting(16)
    """environments stepped together"""
    num_steps: int = setting(32)
    """steps of each through which the gradient flows"""
    learning_rate: float = setting(3e-3, low=0, convert=schedule_setting)
    """Adam's step size"""
    anneal_learning_rate: bool = setting(True)
    """anneal linearly to zero over the horizon"""
    max_grad_norm: float = setting(1.0, low=0, open_low=True)
    """global norm at which gradients are clipped"""
    adam_epsilon: float = setting(1e-8, low=0, open_low=True)
    """Adam's epsilon"""
    stochastic: bool = setting(True)
    """a tanh Gaussian policy; False: no noise in training either"""
    initial_log_std: float = setting(-1.0)
    """initial log standard deviation of the Gaussian, before the tanh"""
    rematerialize: bool = setting(False)
    """compute each step again in the backward pass: less memory, more time"""

    def bind(self, spec):
        check_descends(self.optimizer, self.learning_rate)
        check_bounded(spec, "environment", spec.name,
                      f"one that {self.name} can act in: {self.name} needs bounded actions")
        return super().bind(spec)

    def check_env(self, env):
        check_differentiable(env)

    @property
    def default_optimizer(self):
        return optim.adam(self.max_grad_norm, self.adam_epsilon)

    def init(self, key: jax.Array) -> Agent:
        params, moments = self.init_policy(key)
        if self.stochastic:
            params["log_std"] = jnp.full((math.prod(self.spec.action.shape),),
                                         self.initial_log_std, jnp.float32)
        return self.begin(params, moments)

    def begin(self, params, moments=()):
        return Agent(params, init_optimizer(self, params), moments)

    def act(self, agent, carry, obs, noise, clock, mode):
        space = self.spec.action
        if mode == "random":
            return carry, distributions.random_action(noise, space), ()
        out = self.outputs(agent.params, normalize_obs(self.spec.observation, agent.moments, obs))
        if mode == "sample" and self.stochastic:
            out = out + jnp.exp(agent.params["log_std"]) * noise
        return carry, space.from_unit(jnp.tanh(out)), ()

    def learn(self, agent, mem, iteration):
        """Ascend the mean reward; its gradient stops at the rollout's start and episode ends."""

        def loss_fn(params):
            played = iteration.collect(agent._replace(params=params))
            return -jnp.mean(played.trajectory.steps.reward), played

        (loss, played), grads = jax.value_and_grad(loss_fn, has_aux=True)(agent.params)
        params, opt_state = gradient_step(self, iteration.clock(), agent.params,
                                          grads, agent.opt_state)
        metrics = {"policy_loss": loss, "grad_norm": optim.global_norm(grads)}
        if self.stochastic:
            metrics["policy_std"] = jnp.mean(jnp.exp(agent.params["log_std"]))
        agent = Agent(params, opt_state, agent.moments)
        agent = self.finish(agent, self.prepare(agent, played.trajectory))
        return agent, mem, {k: Mean.of(v) for k, v in metrics.items()}, played
