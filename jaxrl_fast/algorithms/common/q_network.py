"""The network of action values: a torso and heads, with noisy layers if asked."""

from __future__ import annotations

import dataclasses
from collections.abc import Callable
from typing import Any

import flax.linen as nn
import jax

from jaxrl_fast import random
from jaxrl_fast.networks import Dense, NoisyDense, draw_noise, example_features, forward, initialize

Modules = dict[str, tuple[nn.Module, Any]]  # {name: (module, example input)}


@dataclasses.dataclass(frozen=True)
class QNetwork:
    """Outputs of every action, as pure functions of {"torso", "head", "value" if dueling}.

    `key` draws the noise of noisy layers; None: their mean.
    """

    torso: nn.Module
    num_actions: int
    outputs: int  # of an action
    dueling: bool
    noisy: bool
    precision: str = "highest"  # of the torso's products

    @property
    def heads(self) -> dict[str, nn.Module]:
        dense = NoisyDense if self.noisy else lambda features: Dense(features, 1.0)
        heads = {"head": dense(self.num_actions * self.outputs)}
        return heads | ({"value": dense(self.outputs)} if self.dueling else {})

    def init(self, key: jax.Array, obs: Any, more: Callable[[jax.Array], Modules]) -> Any:
        """Draw parameters for observations like `obs`; more(features): modules beside the heads."""
        features = example_features(self.torso, obs)
        heads = {name: (head, features) for name, head in self.heads.items()}
        return initialize(key, {"torso": (self.torso, obs)} | heads | more(features))

    def features(self, params: Any, obs: Any, key: jax.Array | None = None) -> jax.Array:
        """Return features [..., F]."""
        return forward(self.torso, self._variables(params, "torso", key), obs, self.precision)

    def values(self, params: Any, features: jax.Array, key: jax.Array | None = None) -> jax.Array:
        """Return outputs of every action [..., n, outputs] from features [..., F].

        Dueling: V + A - mean A (Wang et al. 2016, eq. 9).
        """
        z = forward(self.heads["head"], self._variables(params, "head", key), features)
        z = z.reshape((*z.shape[:-1], self.num_actions, self.outputs))
        if not self.dueling:
            return z
        value = forward(self.heads["value"], self._variables(params, "value", key), features)
        return value[..., None, :] + z - z.mean(-2, keepdims=True)

    def apply(self, params: Any, obs: Any, key: jax.Array | None = None) -> jax.Array:
        """Return outputs of every action [..., n, outputs] from observations."""
        return self.values(params, self.features(params, obs, key), key)

    def _variables(self, params: Any, name: str, key: jax.Array | None) -> Any:
        if key is None or not self.noisy:
            return params[name]
        return draw_noise(random.fold_in(key, sorted(params).index(name)), params[name])
