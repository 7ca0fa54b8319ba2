"""The network of action values: a torso and heads, with noisy layers if asked."""

from __future__ import annotations

import dataclasses
from collections.abc import Callable
from typing import Any

import flax.linen as nn
import jax
import numpy as np

from jaxrl_fast import random
from jaxrl_fast.networks import (
    Dense,
    NoisyDense,
    draw_noises,
    example_features,
    forward,
    initialize,
)

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
        return self._features(self._with_noise(params, ["torso"], key), obs)

    def values(self, params: Any, features: jax.Array, key: jax.Array | None = None) -> jax.Array:
        """Return outputs of every action [..., n, outputs] from features [..., F].

        Dueling: V + A - mean A (Wang et al. 2016, eq. 9).
        """
        return self._values(self._with_noise(params, [*self.heads], key), features)

    def _features(self, variables: Any, obs: Any) -> jax.Array:
        return forward(self.torso, variables["torso"], obs, self.precision)

    def _values(self, variables: Any, features: jax.Array) -> jax.Array:
        z = forward(self.heads["head"], variables["head"], features)
        z = z.reshape((*z.shape[:-1], self.num_actions, self.outputs))
        if not self.dueling:
            return z
        value = forward(self.heads["value"], variables["value"], features)
        return value[..., None, :] + z - z.mean(-2, keepdims=True)

    def apply(self, params: Any, obs: Any, key: jax.Array | None = None) -> jax.Array:
        """Return outputs of every action [..., n, outputs] from observations."""
        variables = self._with_noise(params, ["torso", *self.heads], key)
        return self._values(variables, self._features(variables, obs))

    def _with_noise(self, params: Any, names: list[str], key: jax.Array | None) -> dict[str, Any]:
        """Return the variables of modules `names`, with noise where `key` draws it."""
        if key is None or not self.noisy:
            return {name: params[name] for name in names}
        numbers = np.array([sorted(params).index(name) for name in names], np.uint32)
        drawn = draw_noises(random.fold_in(key, numbers), [params[name] for name in names])
        return dict(zip(names, drawn, strict=True))
