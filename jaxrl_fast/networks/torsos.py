"""MLP and CNN torsos, and the choice among them by the observation."""

from __future__ import annotations

import math

import flax.linen as nn
import jax

from jaxrl_fast.errors import ConfigError, check_choice
from jaxrl_fast.networks.layers import Dense, embed, orthogonal
from jaxrl_fast.spaces import Box, Space

ACTIVATIONS = {
    "tanh": nn.tanh, "relu": nn.relu, "silu": nn.silu, "gelu": nn.gelu, "elu": nn.elu, "leaky_relu": nn.leaky_relu,
}  # fmt: skip


class MLP(nn.Module):
    """Dense layers with an activation after each; the observation is flattened first."""

    space: Space
    hidden: tuple[int, ...] = (64, 64)
    activation: str = "tanh"

    @nn.compact
    def __call__(self, obs) -> jax.Array:
        x = embed(obs, self.space)
        for width in self.hidden:
            x = ACTIVATIONS[self.activation](Dense(width)(x))
        return x


class MinAtarCNN(nn.Module):
    """16 filters 3x3, then dense layers: the network of MinAtar (Young & Tian 2019)."""

    space: Space
    hidden: tuple[int, ...] = (128,)
    activation: str = "relu"

    @nn.compact
    def __call__(self, obs) -> jax.Array:
        activation = ACTIVATIONS[self.activation]
        x = embed(obs, self.space, rank=3)
        batch = x.shape[:-3]
        x = x.reshape((-1, *x.shape[-3:]))
        x = activation(nn.Conv(16, (3, 3), padding="VALID", kernel_init=orthogonal(math.sqrt(2)))(x))
        x = x.reshape((*batch, -1))
        for width in self.hidden:
            x = activation(Dense(width)(x))
        return x


class NatureCNN(nn.Module):
    """Three convolutions and dense layers: the network of Mnih et al. 2015 for 84x84 frames."""

    space: Space
    hidden: tuple[int, ...] = (512,)
    activation: str = "relu"

    @nn.compact
    def __call__(self, obs) -> jax.Array:
        activation = ACTIVATIONS[self.activation]
        x = embed(obs, self.space, rank=3)
        batch = x.shape[:-3]
        x = x.reshape((-1, *x.shape[-3:]))
        for filters, size, stride in ((32, 8, 4), (64, 4, 2), (64, 3, 1)):
            init = orthogonal(math.sqrt(2))
            x = activation(nn.Conv(filters, (size, size), (stride, stride), padding="VALID", kernel_init=init)(x))
        x = x.reshape((*batch, -1))
        for width in self.hidden:
            x = activation(Dense(width)(x))
        return x


def make_torso(network: str | nn.Module, space: Space, hidden: tuple[int, ...], activation: str) -> nn.Module:
    """The user's own module as it is, or a torso by name: "mlp", "cnn", or "auto" (a CNN for images, else an MLP)."""
    if isinstance(network, nn.Module):
        return network
    check_choice("network", network, ("auto", "mlp", "cnn"))
    check_choice("activation", activation, ACTIVATIONS)
    image = isinstance(space, Box) and len(space.shape) == 3 and min(space.shape[:2]) >= 3  # the smallest filter
    if network == "cnn" and not image:
        valid = f"a CNN needs observations [H, W, C] of 3x3 or more; these are {space}; use 'mlp'"
        raise ConfigError("network", network, valid)
    if network == "mlp" or not image:
        return MLP(space, hidden, activation)
    small = min(space.shape[:2]) < 36  # NatureCNN's strides need 36 pixels
    return (MinAtarCNN if small else NatureCNN)(space, hidden, activation)
