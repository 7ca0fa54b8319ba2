"""OpenAI's evolution strategy (Salimans et al. 2017): antithetic noise, ranks, Adam."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, ClassVar

import jax
import jax.numpy as jnp

from jaxrl_fast import tree
from jaxrl_fast.algorithms.common.descent import gradient_step, init_optimizer
from jaxrl_fast.algorithms.common.evolution import Evolution
from jaxrl_fast.fields import setting
from jaxrl_fast.ops import optim
from jaxrl_fast.ops.optimizer_settings import check_descends, optimizer_setting, schedule_setting


@tree.settings
class OpenES(Evolution):
    """OpenAI evolution strategy (Salimans et al. 2017): Gaussian noise, ranks of returns."""

    name: ClassVar[str] = "es"

    optimizer: str | Callable[..., Any] | None = setting(None, convert=optimizer_setting)
    """optax optimizer, by name or as a function of the rate; none: the algorithm's own"""
    learning_rate: float = setting(0.01, low=0, convert=schedule_setting)
    """Adam's step size"""
    anneal_learning_rate: bool = setting(False)
    """anneal linearly to zero over the horizon"""
    weight_decay: float = setting(0.005, low=0)
    """weight decay: lambda times the parameters, subtracted from the gradient"""

    def bind(self, spec):
        check_descends(self.optimizer, self.learning_rate)
        return super().bind(spec)

    @property
    def default_optimizer(self):
        return optim.adam()

    def init_optimizer(self, params):
        return init_optimizer(self, params)

    def gradient(self, ret, noise):
        """Return sum F e / (n sigma) over the n candidates, F their centred ranks (algorithm 2)."""
        forward, backward = centred_ranks(ret.reshape(-1)).reshape(ret.shape)
        total = jnp.matmul(forward - backward, noise, precision="highest")
        return total / (ret.size * self.noise_std)

    def ascend(self, agent, gradient, clock):
        grads = jax.tree.map(lambda p, g: self.weight_decay * p - g, agent.params, gradient)
        return gradient_step(self, clock, agent.params, grads, agent.opt_state)


def centred_ranks(x: jax.Array) -> jax.Array:
    """Return even ranks [n] in [-0.5, 0.5]; equal values share their mean."""
    below = jnp.sum(x[:, None] > x, axis=1)
    equal = jnp.sum(x[:, None] == x, axis=1)
    return (below + 0.5 * (equal - 1)) / (x.size - 1) - 0.5
