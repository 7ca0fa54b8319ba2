"""MLP and CNN torsos, the choice between them, an MLP with batch renormalisation."""

from __future__ import annotations

import functools
from typing import Any

import flax.linen as nn
import flax.traverse_util
import jax
import jax.numpy as jnp

from jaxrl_fast import random
from jaxrl_fast.errors import ConfigError, UserError, brief, check_choice, expected
from jaxrl_fast.networks.foreign import Foreign
from jaxrl_fast.networks.layers import Conv, Dense, NoisyDense, embed
from jaxrl_fast.networks.norms import LayerNorm
from jaxrl_fast.networks.orthogonal import orthonormalize_together
from jaxrl_fast.ops.precision import with_precision
from jaxrl_fast.ops.scopes import PREPROCESS, scope
from jaxrl_fast.spaces import Box, Space

ACTIVATIONS = {
    "tanh": nn.tanh, "relu": nn.relu, "silu": nn.silu, "gelu": nn.gelu,
    "elu": nn.elu, "leaky_relu": nn.leaky_relu,
}  # fmt: skip


class MLP(nn.Module):
    """Flatten, then dense layers, each with an optional layer norm and an activation."""

    space: Space
    hidden: tuple[int, ...] = (64, 64)
    activation: str = "tanh"
    layer_norm: bool = False
    noisy: bool = False

    @nn.compact
    def __call__(self, obs) -> jax.Array:
        return dense_layers(self, embed(obs, self.space))


class CNN(nn.Module):
    """Convolutions `filters` (number, size, stride), then dense layers as in `MLP`.

    image_mean, image_scale: pixels become (pixel - mean) / scale; scale 0: bytes in [0, 1]
    (`layers.scale`).
    """

    space: Space
    filters: tuple[tuple[int, int, int], ...]
    hidden: tuple[int, ...] = (128,)
    activation: str = "relu"
    layer_norm: bool = False
    noisy: bool = False
    image_mean: float = 0.0
    image_scale: float = 0.0

    @nn.compact
    def __call__(self, obs) -> jax.Array:
        if self.image_scale:
            with scope(PREPROCESS):
                x = (obs.astype(jnp.float32) - self.image_mean) / self.image_scale
        else:
            x = embed(obs, self.space, rank=3)
        batch = x.shape[:-3]
        x = x.reshape((-1, *x.shape[-3:]))
        for features, size, stride in self.filters:
            x = Conv(features, size, stride)(x)
            x = LayerNorm()(x) if self.layer_norm else x
            x = ACTIVATIONS[self.activation](x)
        return dense_layers(self, x.reshape((*batch, -1)))


class WithAction(nn.Module):
    """Any torso's features joined by the action: {"action", "observation"} -> [b, F]."""

    torso: nn.Module
    hidden: tuple[int, ...]
    activation: str = "relu"
    layer_norm: bool = False
    noisy: bool = False

    @nn.compact
    def __call__(self, x) -> jax.Array:
        return dense_layers(self,
                            jnp.concatenate([self.torso(x["observation"]), x["action"]], axis=-1))


class BatchRenorm(nn.Module):
    """Batch renormalisation of [b, F] (Ioffe 2017); "batch_stats": mean, var, updates.

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
            std = jnp.sqrt(var + self.epsilon)
            running_std = jnp.sqrt(running_var.value + self.epsilon)
            warm = updates.value >= self.warmup
            r = jnp.where(warm, jnp.clip(std / running_std, 1.0 / self.max_r, self.max_r), 1.0)
            d = jnp.where(warm, jnp.clip((mean - running_mean.value) / running_std,
                                         -self.max_d, self.max_d), 0.0)
            r, d = jax.lax.stop_gradient((r, d))
            move = lambda old, new: jax.lax.stop_gradient(
                self.momentum * old + (1.0 - self.momentum) * new
            )
            running_mean.value = move(running_mean.value, mean)
            running_var.value = move(running_var.value, var)
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


MINATAR_FILTERS = ((16, 3, 1),)  # Young & Tian 2019
SMALL_FILTERS = ((16, 8, 4), (32, 4, 2))  # Mnih et al. 2013
NATURE_FILTERS = ((32, 8, 4), (64, 4, 2), (64, 3, 1))  # Mnih et al. 2015, for 84x84 frames


def check_widths(name: str, widths: tuple[int, ...]) -> None:
    """Raise ConfigError for a layer of one unit with a layer norm: it is always zero."""
    if 1 in widths:
        raise ConfigError(name, widths, "widths of at least 2 with layer_norm: the layer norm of "
                                        "one unit is always zero")


def dense_layers(module: MLP | CNN | WithAction, x: jax.Array) -> jax.Array:
    """Apply the dense part of a torso, inside its `__call__`."""
    for width in module.hidden:
        x = (NoisyDense if module.noisy else Dense)(width)(x)
        x = LayerNorm()(x) if module.layer_norm else x
        x = ACTIVATIONS[module.activation](x)
    return x


def initialize(key: jax.Array, modules: dict[str, tuple[nn.Module, Any]]) -> dict[str, Any]:
    """Return the variables of several modules, {name: (module, example input)}.

    All random numbers of our own layers are one draw, which takes a third off PPO's compile time.
    Users' modules get a key each.
    """
    ours = {name: pair for name, pair in modules.items() if _is_ours(pair[0])}
    shapes = {name: _made.eval_shape(module, key, x)[1].get("params", {})
              for name, (module, x) in ours.items()}
    flat = flax.traverse_util.flatten_dict(shapes)
    noisy = {path[:-1] for path in flat if path[-1] == "kernel_sigma"}
    drawn = [path for path in flat if path[-1] == "kernel"
             or (path[-1] == "bias" and path[:-1] in noisy)]
    uniform = random.uniform(key, (sum(flat[path].size for path in drawn),))
    normal = random.to_normal(uniform)
    numbers, at = {}, 0
    for path in drawn:
        source, end = uniform if path[:-1] in noisy else normal, at + flat[path].size
        numbers[path], at = source[at:end].reshape(flat[path].shape), end
    rows = orthonormalize_together({p: x for p, x in numbers.items() if p[:-1] not in noisy})
    numbers, rows = map(flax.traverse_util.unflatten_dict, (numbers, rows))
    params = {}
    for i, (name, (module, x)) in enumerate(modules.items()):
        own = random.fold_in(key, i)
        if name in ours:
            given = {"drawn": numbers.get(name, {}), "rows": rows.get(name, {})}
            _, params[name] = forward(module, given, x, rngs={"params": own},
                                      mutable=["params", "batch_stats"])
        else:
            params[name] = module.init(own, x)
    return params


def _is_ours(module: nn.Module) -> bool:
    """Return whether every layer takes its numbers by `random_param`: no user's module."""
    inner, home = getattr(module, "torso", None), type(module).__module__
    ours = home.startswith("jaxrl_fast.networks") and not isinstance(module, Foreign)
    return ours and (inner is None or _is_ours(inner))


def example_features(torso: nn.Module, x: Any) -> jax.Array:
    """Return zeros of the shape that `torso` makes of `x`; ConfigError for a user's that cannot."""
    try:
        found = _made.eval_shape(torso, jax.random.key(0), x)[0]
    except Exception as error:  # most often it has another width
        if isinstance(error, UserError) or _is_ours(torso):
            raise
        shapes = jax.tree.map(lambda x: f"{x.dtype}{list(x.shape[1:])}", x)
        while hasattr(torso, "torso"):  # ours around the user's
            torso = torso.torso
        kind = torso.source if isinstance(torso, Foreign) else type(torso).__name__
        raise expected("network", f"one for observations {shapes}: {brief(error)}",
                       str(kind)) from error
    return jnp.zeros(found.shape, jnp.float32)


@functools.partial(jax.jit, static_argnums=0)  # traced once, for its shapes
def _made(module: nn.Module, key: jax.Array, x: Any) -> tuple[jax.Array, Any]:
    """Return a module's output and variables."""
    return module.init_with_output(key, x)


def initialize_parts(key: jax.Array, parts: dict[str, tuple[dict[str, nn.Module], Any]]) -> dict[
    str, dict[str, Any]
]:
    """Return {"torso", "head"} variables of networks with example inputs, from one draw."""
    modules = {}
    for name, (part, x) in parts.items():
        modules[f"{name}/torso"] = (part["torso"], x)
        modules[f"{name}/head"] = (part["head"], example_features(part["torso"], x))
    made = initialize(key, modules)
    return {name: {"torso": made[f"{name}/torso"], "head": made[f"{name}/head"]} for name in parts}


def forward(module: nn.Module, variables: Any, x: Any, precision: str = "highest",
            **flags: Any) -> Any:
    """Return `module.apply(variables, x)`: the one place where networks multiply."""
    return with_precision(lambda: module.apply(variables, x, **flags), precision)


def apply_parts(modules: dict[str, nn.Module], params: Any, x: Any, precision: str) -> jax.Array:
    """Apply the torso in this precision, then the head in float32."""
    return forward(modules["head"], params["head"],
                   forward(modules["torso"], params["torso"], x, precision))


def make_torso(network: str | nn.Module, space: Space, hidden: tuple[int, ...], activation: str,
               layer_norm: bool = False, noisy: bool = False,
               image: tuple[float, float] = (0.0, 0.0)) -> nn.Module:  # fmt: skip
    """Return the user's module, or a torso by name: "mlp", "cnn" or "auto" (CNN for images).

    layer_norm: before every activation.  noisy: dense layers are `NoisyDense`.  image: (mean,
    scale) of pixels, see `CNN`.
    """
    if image[0] and not image[1]:
        raise ConfigError("image_mean", image[0], "0 without image_scale, the divisor of pixels")
    if isinstance(network, nn.Module):
        if image[1]:
            raise ConfigError("image_scale", image[1],
                              "0 with your own network, which scales pixels itself")
        return network.clone(space=space) if isinstance(network, Foreign) else network
    check_choice("network", network, ("auto", "mlp", "cnn"))
    check_choice("activation", activation, ACTIVATIONS)
    if layer_norm:
        check_widths("hidden", hidden)
    # the smallest filter
    is_image = isinstance(space, Box) and len(space.shape) == 3 and min(space.shape[:2]) >= 3
    if network == "cnn" and not is_image:
        raise ConfigError("network", network,
                          "'mlp' for these observations: a CNN needs [H, W, C] of 3x3 or more; "
                          f"these are {space}")
    if network == "mlp" or not is_image:
        if image[1]:
            raise ConfigError("image_scale", image[1],
                              f"0: it is for a CNN, and this is an MLP for {space}")
        return MLP(space, hidden, activation, layer_norm, noisy)
    pixels = min(space.shape[:2])  # the strides of the last two need 20 and 36
    filters = MINATAR_FILTERS if pixels < 36 else SMALL_FILTERS if pixels < 64 else NATURE_FILTERS
    return CNN(space, filters, hidden, activation, layer_norm, noisy, *image)
