"""Batch renormalisation (Ioffe 2017), and an MLP with it before every dense layer (CrossQ)."""

from __future__ import annotations

from typing import Any

import flax.linen as nn
import jax
import jax.numpy as jnp

from jaxrl_fast.networks.layers import Dense, embed
from jaxrl_fast.networks.torsos import ACTIVATIONS
from jaxrl_fast.spaces import Space


class BatchRenorm(nn.Module):
    """Batch renormalisation of [b, F]; collection "batch_stats": mean, var, updates.

    With `train` it uses the batch's own statistics, corrected toward the running ones (r and d,
    clipped) after `warmup` updates, and updates the running ones; without it, the running ones.
    """

    train: bool
    momentum: float = 0.99
    warmup: int = 100_000
    max_r: float = 3.0
    max_d: float = 5.0
    epsilon: float = 1e-3

    @nn.compact
    def __call__(self, x: jax.Array) -> jax.Array:
        shape = x.shape[-1:]
        running_mean = self.variable("batch_stats", "mean", jnp.zeros, shape, jnp.float32)
        running_var = self.variable("batch_stats", "var", jnp.ones, shape, jnp.float32)
        updates = self.variable("batch_stats", "updates", jnp.zeros, (), jnp.float32)
        mean, var = running_mean.value, running_var.value
        if self.train and not self.is_initializing():
            mean, var = jnp.mean(x, axis=0), jnp.var(x, axis=0)
            std, running_std = jnp.sqrt(var + self.epsilon), jnp.sqrt(running_var.value + self.epsilon)
            warm = updates.value >= self.warmup
            r = jnp.where(warm, jnp.clip(std / running_std, 1.0 / self.max_r, self.max_r), 1.0)
            d = jnp.where(warm, jnp.clip((mean - running_mean.value) / running_std, -self.max_d, self.max_d), 0.0)
            r, d = jax.lax.stop_gradient((r, d))
            move = lambda old, new: jax.lax.stop_gradient(self.momentum * old + (1.0 - self.momentum) * new)
            running_mean.value, running_var.value = move(running_mean.value, mean), move(running_var.value, var)
            updates.value = updates.value + 1.0
            y = (x - mean) / std * r + d
        else:
            y = (x - mean) / jnp.sqrt(var + self.epsilon)
        scale = self.param("scale", nn.initializers.ones, shape, jnp.float32)
        return y * scale + self.param("bias", nn.initializers.zeros, shape, jnp.float32)


class BatchNormMLP(nn.Module):
    """Renormalised input, then dense layers, each with an activation and renormalised.

    torso: the user's module for the observation; None flattens it. With `action` the input is
    {"action": [b, d], "observation"}.
    """

    space: Space
    hidden: tuple[int, ...]
    activation: str = "relu"
    torso: nn.Module | None = None
    action: bool = False
    train: bool = False
    momentum: float = 0.99
    warmup: int = 100_000

    @nn.compact
    def __call__(self, x: Any) -> jax.Array:
        obs = x["observation"] if self.action else x
        features = embed(obs, self.space) if self.torso is None else self.torso(obs)
        features = jnp.concatenate([features, x["action"]], axis=-1) if self.action else features
        norm = lambda x: BatchRenorm(self.train, self.momentum, self.warmup)(x)
        features = norm(features)
        for width in self.hidden:
            features = norm(ACTIVATIONS[self.activation](Dense(width)(features)))
        return features
