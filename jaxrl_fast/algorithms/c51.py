"""Categorical DQN (Bellemare et al. 2017): a distribution of returns over fixed values."""

from __future__ import annotations

from typing import Any, ClassVar

import jax
import jax.numpy as jnp
import numpy as np

from jaxrl_fast import tree
from jaxrl_fast.algorithms.dqn import DQN
from jaxrl_fast.errors import ConfigError, is_number
from jaxrl_fast.fields import setting
from jaxrl_fast.ops import losses


@tree.settings
class C51(DQN):
    """Categorical DQN (Bellemare et al. 2017): logits of `num_atoms` fixed returns."""

    name: ClassVar[str] = "c51"
    has_huber: ClassVar[bool] = False

    num_atoms: int = setting(51, low=2)
    """atoms of the support"""
    v_min: float = setting(-10.0)
    """lowest atom: the least discounted return"""
    v_max: float = setting(10.0)
    """highest atom: the largest discounted return"""

    def __post_init__(self):
        super().__post_init__()
        numbers = is_number(self.v_min) and is_number(self.v_max)
        if numbers and self.v_min >= self.v_max:
            raise ConfigError("v_min", self.v_min, f"a number below v_max = {self.v_max}")
        if numbers and self.v_max - self.v_min > float(np.finfo(np.float32).max):
            raise ConfigError("v_max", self.v_max, "such that v_max - v_min is finite in float32")
        ends = np.float32([self.v_min, self.v_max]) if numbers else ()
        if numbers and not (np.diff(support(*ends, self.num_atoms, np)) > 0).all():
            raise ConfigError("v_min", self.v_min,
                              f"farther below v_max = {self.v_max}: float32 cannot tell "
                              f"{self.num_atoms} atoms between them apart")
        if self.munchausen:
            raise ConfigError("munchausen", True,
                              f"False: {self.name} has no soft values; use dqn, qr_dqn or iqn")

    @property
    def outputs(self) -> int:
        return self.num_atoms

    @property
    def atoms(self) -> jax.Array:
        return support(self.v_min, self.v_max, self.num_atoms)

    def expected(self, z):
        return jnp.sum(jax.nn.softmax(z) * self.atoms, axis=-1)

    def backup(self, ret, factor, z):
        moved = ret[:, None] + factor[:, None] * self.atoms
        return losses.categorical_projection(moved, jax.nn.softmax(z), self.v_min, self.v_max)

    def regression(self, z, taus, target):
        """Return the cross-entropy and the Kullback-Leibler divergence (priority, as Rainbow)."""
        loss = -jnp.sum(target * jax.nn.log_softmax(z), axis=-1)
        entropy = -jnp.sum(jnp.where(target > 0, target * jnp.log(jnp.maximum(target, 1e-30)), 0.0),
                           axis=-1)
        return loss, jnp.maximum(loss - entropy, 0.0)


def support(low: Any, high: Any, count: int, module: Any = jnp) -> Any:
    """Return `count` even values from low to high, float32, by JAX or NumPy."""
    return low + (high - low) * module.linspace(0.0, 1.0, count, dtype=jnp.float32)
