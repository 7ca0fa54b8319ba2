"""Implicit quantile networks (Dabney et al. 2018b): return quantiles at any fraction."""

from __future__ import annotations

import math
from typing import ClassVar

import jax
import jax.numpy as jnp

from jaxrl_fast import random, tree
from jaxrl_fast.algorithms.dqn import DQN
from jaxrl_fast.algorithms.qr_dqn import midpoints
from jaxrl_fast.fields import setting
from jaxrl_fast.networks import Dense, forward
from jaxrl_fast.ops import losses


@tree.settings
class IQN(DQN):
    """Implicit quantile networks (Dabney et al. 2018b): the quantile at any fraction tau.

    Z(s, a, tau) = head(features(s) * phi(tau)); random fractions in updates, even ones in actions.
    """

    name: ClassVar[str] = "iqn"
    has_huber: ClassVar[bool] = False

    num_fractions: int = setting(32)
    """fractions drawn for an update, online and target (N = N')"""
    num_act_fractions: int = setting(32)
    """even fractions whose mean is the value of an action (K)"""
    num_cosines: int = setting(64)
    """cosine features of a fraction"""
    kappa: float = setting(1.0, low=0, open_low=True)
    """error at which the quantile Huber loss turns linear"""

    def expected(self, z):
        return z.mean(axis=-1)

    def more_modules(self, features):
        return {"fractions": (Dense(features.shape[-1]),
                              jnp.zeros((1, self.num_cosines), jnp.float32))}

    def quantiles(self, params, obs, taus, key=None) -> jax.Array:
        """Return Z at fractions [b or 1, N] -> [b, n, N], features times phi(tau) (eq. 4)."""
        waves = jnp.arange(self.num_cosines, dtype=jnp.float32)
        cosines = jnp.cos(math.pi * waves * taus[..., None])
        width = params["fractions"]["params"]["bias"].shape[0]
        phi = jax.nn.relu(forward(Dense(width), params["fractions"], cosines))  # [b, N, F]
        features = self.networks.features(params, obs, key)
        z = self.networks.values(params, features[..., None, :] * phi, key)  # [b, N, n, 1]
        return jnp.swapaxes(z[..., 0], -1, -2)

    def action_values(self, params, obs, key=None):
        z = self.quantiles(params, obs, midpoints(self.num_act_fractions), key)
        return self.legal(self.expected(z), obs)

    def predict(self, params, obs, key):
        batch = jax.tree.leaves(obs)[0].shape[0]
        tau_key, key = random.split(key)
        taus = random.uniform(tau_key, (batch, self.num_fractions))
        return self.quantiles(params, obs, taus, key), taus

    def regression(self, z, taus, target):
        loss = losses.quantile_huber(z, taus, target, self.kappa)
        return loss, loss
