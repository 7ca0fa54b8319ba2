"""MLP and CNN torsos, and the choice among them by the observation."""

from __future__ import annotations

import flax.linen as nn
import jax

from jaxrl_fast.errors import ConfigError, check_choice
from jaxrl_fast.networks.layers import Conv, Dense, NoisyDense, embed
from jaxrl_fast.spaces import Box, Space

ACTIVATIONS = {
    "tanh": nn.tanh, "relu": nn.relu, "silu": nn.silu, "gelu": nn.gelu, "elu": nn.elu, "leaky_relu": nn.leaky_relu,
}  # fmt: skip


class MLP(nn.Module):
    """Dense layers, each with a layer norm where asked for and an activation; the observation is flattened first."""

    space: Space
    hidden: tuple[int, ...] = (64, 64)
    activation: str = "tanh"
    layer_norm: bool = False
    noisy: bool = False

    @nn.compact
    def __call__(self, obs) -> jax.Array:
        return dense_layers(self, embed(obs, self.space))


class CNN(nn.Module):
    """Convolutions `filters` (number, size, stride), then dense layers as in `MLP`."""

    space: Space
    filters: tuple[tuple[int, int, int], ...]
    hidden: tuple[int, ...] = (128,)
    activation: str = "relu"
    layer_norm: bool = False
    noisy: bool = False

    @nn.compact
    def __call__(self, obs) -> jax.Array:
        x = embed(obs, self.space, rank=3)
        batch = x.shape[:-3]
        x = x.reshape((-1, *x.shape[-3:]))
        for features, size, stride in self.filters:
            x = Conv(features, size, stride)(x)
            x = nn.LayerNorm()(x) if self.layer_norm else x
            x = ACTIVATIONS[self.activation](x)
        return dense_layers(self, x.reshape((*batch, -1)))


MINATAR_FILTERS = ((16, 3, 1),)  # Young & Tian 2019
NATURE_FILTERS = ((32, 8, 4), (64, 4, 2), (64, 3, 1))  # Mnih et al. 2015, for 84x84 frames


def dense_layers(module: MLP | CNN, x: jax.Array) -> jax.Array:
    """The dense part of a torso, inside its `__call__`."""
    for width in module.hidden:
        x = (NoisyDense if module.noisy else Dense)(width)(x)
        x = nn.LayerNorm()(x) if module.layer_norm else x
        x = ACTIVATIONS[module.activation](x)
    return x


def make_torso(network: str | nn.Module, space: Space, hidden: tuple[int, ...], activation: str,
               layer_norm: bool = False, noisy: bool = False) -> nn.Module:  # fmt: skip
    """The user's own module as it is, or a torso by name: "mlp", "cnn", or "auto" (a CNN for images, else an MLP).

    layer_norm: before every activation.  noisy: dense layers are `NoisyDense`.
    """
    if isinstance(network, nn.Module):
        return network
    check_choice("network", network, ("auto", "mlp", "cnn"))
    check_choice("activation", activation, ACTIVATIONS)
    image = isinstance(space, Box) and len(space.shape) == 3 and min(space.shape[:2]) >= 3  # the smallest filter
    if network == "cnn" and not image:
        valid = f"a CNN needs observations [H, W, C] of 3x3 or more; these are {space}; use 'mlp'"
        raise ConfigError("network", network, valid)
    if network == "mlp" or not image:
        return MLP(space, hidden, activation, layer_norm, noisy)
    small = min(space.shape[:2]) < 36  # the strides of the other need 36 pixels
    return CNN(space, MINATAR_FILTERS if small else NATURE_FILTERS, hidden, activation, layer_norm, noisy)
