"""Augmented random search (Mania, Guy & Recht 2018): finite differences on a linear policy."""

from __future__ import annotations

from typing import ClassVar

import jax
import jax.numpy as jnp

from jaxrl_fast import tree
from jaxrl_fast.algorithms.common.evolution import Evolution
from jaxrl_fast.errors import ConfigError
from jaxrl_fast.fields import WIDEST, setting
from jaxrl_fast.ops.optimizer_settings import check_descends, schedule_setting


@tree.settings
class ARS(Evolution):
    """Augmented random search (Mania, Guy & Recht 2018): random directions, linear policy.

    V2 of the paper; V1 does not normalise observations, -t counts the best directions.
    """

    name: ClassVar[str] = "ars"
    head_scale: ClassVar[float] = 0.0

    directions: int = setting(16)
    """random directions an iteration, each played forward and backward"""
    top_directions: int = setting(0, low=0)
    """best directions that make the step; 0: all"""
    learning_rate: float = setting(0.02, low=0, convert=schedule_setting)
    """step size alpha"""
    anneal_learning_rate: bool = setting(False)
    """anneal linearly to zero over the horizon"""
    scale_by_return_std: bool = setting(True)
    """divide the step by the standard deviation of its returns"""
    normalize_observations: bool = setting(True)
    """normalise observations by running mean and variance (V2)"""
    hidden: tuple[int, ...] = setting((), high=WIDEST)
    """widths of the torso's layers; none: a linear policy"""

    def __post_init__(self):
        super().__post_init__()
        if self.top_directions > self.directions:
            raise ConfigError("top_directions", self.top_directions,
                              f"at most directions = {self.directions}")

    def bind(self, spec):
        check_descends(None, self.learning_rate)
        return super().bind(spec)

    def gradient(self, ret, noise):
        """Return (1 / (b sigma_R)) sum (r+ - r-) delta over the best directions (algorithm 2)."""
        count = self.top_directions or self.directions
        best = jax.lax.top_k(jnp.max(ret, axis=0), count)[1]
        forward, backward = ret[:, best]
        spread = jnp.std(ret[:, best]) + 1e-8 if self.scale_by_return_std else 1.0
        return jnp.matmul(forward - backward, noise[best], precision="highest") / (count * spread)

    def ascend(self, agent, gradient, clock):
        rate = clock.step_size(self)
        return jax.tree.map(lambda p, g: p + rate * g, agent.params, gradient), ()
