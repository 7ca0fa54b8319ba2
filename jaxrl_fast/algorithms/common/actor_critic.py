"""The networks of the on-policy algorithms: policy and value, on two torsos or one."""

from __future__ import annotations

import dataclasses
import math
from typing import Any

import flax.linen as nn
import jax
import jax.numpy as jnp

from jaxrl_fast import tree
from jaxrl_fast.algorithms.base import action_mask
from jaxrl_fast.networks import MLP, Dense, example_features, forward, initialize
from jaxrl_fast.ops import distributions, optim, stacking
from jaxrl_fast.ops.lowering import GPUS, by_platform, divides_small
from jaxrl_fast.spaces import Box
from jaxrl_fast.types import EnvSpec

LOG_STD_MIN, LOG_STD_MAX = -10.0, 2.0  # bounds of a policy head's log standard deviations
# Rows from which a GPU runs two torsos as two products: one batched product halves the launches
# but transposes its activations (4 KB a row of 64-64), which takes as long at 16,384 rows.
ROWS_APART = 16_384


@dataclasses.dataclass(frozen=True)
class ActorCritic:
    """The networks of a stochastic policy and its value, as pure functions of their parameters.

    params: {"torso", "policy", "value", "log_std"}; the torso is a pair ([2, ...] if batched) or
    shared. Observations are [b, ...], stacked and normalised.
    """

    spec: EnvSpec
    torso: nn.Module
    value_torso: nn.Module
    shared_torso: bool
    initial_log_std: Any  # of a Box's Gaussian; may be traced
    state_dependent_std: bool  # the policy's head also outputs log standard deviations
    squash: bool  # tanh of the Gaussian, within the bounds of a Box
    precision: str = "highest"  # of the torsos' products

    @property
    def heads(self) -> dict[str, nn.Module]:
        outputs = distributions.num_outputs(self.spec.action)
        return {"policy": Dense(2 * outputs if self.state_dependent_std else outputs, 0.01),
                "value": Dense(1, 1.0)}

    @property
    def batched(self) -> bool:
        """Return whether the two torsos are one stack: faster for few inputs."""
        inputs = sum(x.size for x in jax.tree.leaves(stacking.example(self.spec)))
        return isinstance(self.torso, MLP) and inputs <= 64 and self.torso == self.value_torso

    @property
    def layers(self) -> optim.View | None:
        """Return the two stacked torsos apart, for optimizers that use a layer's shape."""
        if self.shared_torso or not self.batched:
            return None
        return optim.View(
            lambda params: params | {"torso": optim.split(params["torso"], 2)},
            lambda seen, like: seen | {"torso": optim.join(seen["torso"])},
        )

    def init(self, key: jax.Array, obs: Any) -> dict[str, Any]:
        """Draw parameters for observations like the batch `obs`."""
        inputs = {"policy": example_features(self.torso, obs),
                  "value": example_features(self.value_torso, obs)}
        heads = {name: (head, inputs[name]) for name, head in self.heads.items()}
        if self.shared_torso:
            params = initialize(key, {"torso": (self.torso, obs)} | heads)
        else:
            # no vmap: a batch of a user's LAPACK initializers would deadlock (docs/architecture.md)
            params = initialize(key, {"actor": (self.torso, obs),
                                      "critic": (self.value_torso, obs)} | heads)
            pair = params.pop("actor"), params.pop("critic")
            params["torso"] = jax.tree.map(lambda *x: jnp.stack(x), *pair) if self.batched else pair
        if isinstance(self.spec.action, Box) and not self.state_dependent_std:
            params["log_std"] = jnp.full((math.prod(self.spec.action.shape),),
                                         self.initial_log_std, jnp.float32)
        return params

    def for_acting(self, params: Any) -> Any:
        """Return the parameters with the actor's torso sliced out, for a whole rollout."""
        return params | {"actor": params["torso"] if self.shared_torso
                         else self._torso_params(params, 0)}

    def policy(self, params: Any, obs: Any, features: Any = None, drawn: bool = False) -> Any:
        """Return the distribution of actions [b]; features: the actor's, if already computed.

        drawn: the caller draws an action of it (see `layers.affine`).
        """
        features = self._one_features(params, obs, 0) if features is None else features
        out = forward(self.heads["policy"].clone(drawn=drawn), params["policy"], features)
        space = self.spec.action
        if not isinstance(space, Box):
            mask = action_mask(self.spec.observation, obs)
            return distributions.from_outputs(space, out, mask=mask)
        log_std = params.get("log_std")
        if self.state_dependent_std:
            out, log_std = jnp.split(out, 2, axis=-1)
            log_std = jnp.clip(log_std + self.initial_log_std, LOG_STD_MIN, LOG_STD_MAX)
        return distributions.from_outputs(space, out, log_std, squash=self.squash)

    def value(self, params: Any, obs: Any, features: Any = None) -> jax.Array:
        """Return V(obs), float [b]; features: the critic's, if already computed."""
        features = self._one_features(params, obs, 1) if features is None else features
        return forward(self.heads["value"], params["value"], features)[..., 0]

    def policy_and_value(self, params: Any, obs: Any) -> tuple[Any, jax.Array]:
        """Return the distribution of actions [b] and V(obs) [b]."""
        actor, critic = self.features(params, obs)
        return self.policy(params, obs, actor), self.value(params, obs, critic)

    def features(self, params: Any, obs: Any) -> tuple[jax.Array, jax.Array]:
        """Return the actor's and the critic's features, float [b, F] each."""
        if self.shared_torso:
            return (self._forward(self.torso, params["torso"], obs),) * 2
        apart = lambda params, obs: (self._one_features(params, obs, 0),
                                     self._one_features(params, obs, 1))
        if not self.batched:
            return apart(params, obs)
        together = lambda params, obs: tuple(
            jax.vmap(lambda p: self._forward(self.torso, p, obs))(params["torso"])
        )
        rows = jax.tree.leaves(obs)[0].shape[0]
        special = dict.fromkeys(GPUS, apart) if rows >= ROWS_APART else {}
        if divides_small(rows, params["torso"]):
            special["cpu"] = apart
        return by_platform(special, together, params, obs)

    def _one_features(self, params: Any, obs: Any, which: int) -> jax.Array:
        """Return the actor's (0) or the critic's (1) features alone."""
        if self.shared_torso or (which == 0 and "actor" in params):
            return self._forward(self.torso, params.get("actor", params["torso"]), obs)
        torso = self.value_torso if which else self.torso
        return self._forward(torso, self._torso_params(params, which), obs)

    def _forward(self, torso: nn.Module, params: Any, obs: Any) -> jax.Array:
        return forward(torso, params, obs, self.precision)

    def _torso_params(self, params: Any, which: int) -> Any:
        return tree.take(params["torso"], which) if self.batched else params["torso"][which]
