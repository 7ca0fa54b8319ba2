"""Quantile regression DQN (Dabney et al. 2018a): return quantiles at fixed fractions."""

from __future__ import annotations

from typing import ClassVar

import jax
import jax.numpy as jnp

from jaxrl_fast import tree
from jaxrl_fast.algorithms.dqn import DQN
from jaxrl_fast.fields import setting
from jaxrl_fast.ops import losses


def midpoints(count: int) -> jax.Array:
    """Return the fractions (i + 1/2) / count, float32 [count]."""
    return (jnp.arange(count, dtype=jnp.float32) + 0.5) / count


@tree.settings
class QRDQN(DQN):
    """Quantile regression DQN (Dabney et al. 2018a): quantiles of the return.

    Output i is the quantile at (i + 1/2) / num_quantiles; their mean is the value.
    """

    name: ClassVar[str] = "qr_dqn"
    has_huber: ClassVar[bool] = False

    num_quantiles: int = setting(51)
    """quantiles an action"""
    kappa: float = setting(1.0, low=0, open_low=True)
    """error at which the quantile Huber loss turns linear"""

    @property
    def outputs(self) -> int:
        return self.num_quantiles

    def expected(self, z):
        return z.mean(axis=-1)

    def regression(self, z, taus, target):
        """Return the quantile Huber loss (eq. 10), which is also the priority."""
        loss = losses.quantile_huber(z, midpoints(self.num_quantiles), target, self.kappa)
        return loss, loss
