"""Truncated quantile critics (Kuznetsov et al. 2020): SAC with distributional critics."""

from __future__ import annotations

from typing import ClassVar

import jax
import jax.numpy as jnp

from jaxrl_fast import tree
from jaxrl_fast.algorithms.qr_dqn import midpoints
from jaxrl_fast.algorithms.sac import SAC
from jaxrl_fast.errors import ConfigError
from jaxrl_fast.fields import setting
from jaxrl_fast.ops import losses


@tree.settings
class TQC(SAC):
    """Truncated quantile critics (Kuznetsov et al. 2020): SAC with distributional critics.

    A critic gives quantiles of the return; a target pools all critics' and drops the highest.
    """

    name: ClassVar[str] = "tqc"

    num_quantiles: int = setting(25)
    """quantiles of each critic (M)"""
    drop_quantiles: int = setting(2, low=0)
    """highest quantiles of each critic that targets drop (d)"""
    kappa: float = setting(1.0, low=0, open_low=True)
    """error at which the quantile Huber loss turns linear"""

    def __post_init__(self):
        super().__post_init__()
        if self.drop_quantiles >= self.num_quantiles:
            raise ConfigError("drop_quantiles", self.drop_quantiles,
                              f"below num_quantiles = {self.num_quantiles}")

    @property
    def critic_outputs(self) -> int:
        return self.num_quantiles

    def pool(self, z):
        """Return the lowest num_critics * (num_quantiles - drop_quantiles) atoms (eq. 8-10)."""
        atoms = jnp.moveaxis(z, 0, 1).reshape(z.shape[1], -1)
        kept = self.num_critics * (self.num_quantiles - self.drop_quantiles)
        return -jax.lax.top_k(-atoms, kept)[0]

    def value(self, z):
        """Return the mean of all atoms (eq. 13)."""
        return jnp.mean(z, axis=(0, 2))

    def regression(self, z, target):
        """Return each critic's quantile Huber loss (eq. 11), which is also the priority."""
        one = lambda z: losses.quantile_huber(z, midpoints(self.num_quantiles), target, self.kappa)
        loss = jax.vmap(one)(z)
        return loss, loss
