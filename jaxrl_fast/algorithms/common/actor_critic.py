"""What the actor-critic algorithms share: a policy and a value on torsos of their own or on one, and what they see."""

from __future__ import annotations

import math
from typing import Any, ClassVar

import flax.linen as nn
import jax
import jax.numpy as jnp

from jaxrl_fast import tree
from jaxrl_fast.algorithms.common.action_spaces import action_mask, check_bounded
from jaxrl_fast.algorithms.common.normalize import Normalizing
from jaxrl_fast.errors import ConfigError
from jaxrl_fast.fields import setting
from jaxrl_fast.lowering import on_gpu
from jaxrl_fast.networks import MLP, NETWORK, Dense, as_network, example_features, initialize, make_torso
from jaxrl_fast.ops import distributions, stacking
from jaxrl_fast.spaces import Box, Discrete, MultiDiscrete

LOG_STD_MIN, LOG_STD_MAX = -10.0, 2.0  # of a head's log standard deviations, which nothing else would hold
# Rows from which two torsos are two products on a GPU. One batched product halves the launches, but transposes its
# activations: 4 KB a row of 64-64, which at 16,384 rows takes as long as the launches that it saves.
ROWS_APART = 16_384


@tree.settings
class ActorCritic(Normalizing):
    """params: {"torso": actor's and critic's (one [2, ...] where batched), or the shared one, "policy", "value", "log_std"}."""

    action_spaces: ClassVar[tuple[type, ...]] = (Discrete, MultiDiscrete, Box)

    initial_log_std: float = setting(0.0, "of the Gaussian policy (box actions)")
    state_dependent_std: bool = setting(False, "standard deviations from the policy's head, not parameters of their own")
    squash: bool = setting(False, "tanh of the Gaussian, within the bounds of a box")
    network: str | nn.Module = setting("auto", NETWORK, convert=as_network)
    hidden: tuple[int, ...] = setting((64, 64), "widths of the torso's dense layers")
    value_hidden: tuple[int, ...] = setting((), "widths of the value's torso; none: those of the policy's")
    activation: str = setting("tanh", "of the torso")
    shared_torso: bool = setting(False, "one torso for policy and value")
    image_mean: float = setting(0.0, "of pixels, which a CNN sees as (pixel - image_mean) / image_scale", static=True)
    image_scale: float = setting(0.0, "what they are divided by; 0: their range, to [0, 1]", low=0, static=True)

    @property
    def torso(self) -> nn.Module:
        return self._make_torso(self.hidden)

    @property
    def value_torso(self) -> nn.Module:
        return self._make_torso(self.value_hidden or self.hidden)

    def _make_torso(self, hidden: tuple[int, ...]) -> nn.Module:
        image = self.image_mean, self.image_scale
        return make_torso(self.network, self.spec.observation, hidden, self.activation, image=image)

    @property
    def heads(self) -> dict[str, nn.Module]:
        outputs = distributions.num_outputs(self.spec.action)
        return {"policy": Dense(2 * outputs if self.state_dependent_std else outputs, 0.01), "value": Dense(1, 1.0)}

    def bind(self, spec):
        for name in ("squash", "state_dependent_std"):
            if getattr(self, name) and not isinstance(spec.action, Box):
                raise ConfigError(name, True, f"False for {spec.name}: it is of the Gaussian of a Box, this has {spec.action}")
        if self.squash:
            check_bounded(spec, "squash", True, f"False for {spec.name}: squashed actions need bounds")
        if self.value_hidden and (self.shared_torso or not isinstance(self.network, str)):
            raise ConfigError("value_hidden", self.value_hidden, "() where the torso is shared, or a module of your own")
        bound = super().bind(spec)
        if not bound.hidden and not bound.shared_torso and bound.batched:
            raise ConfigError("hidden", (), f"at least one width for {self.name}; ars and es take none: a linear policy")
        return bound

    def init_networks(self, key: jax.Array) -> tuple[Any, Any]:
        """-> (params, moments of the observations; () without normalisation)."""
        obs = stacking.example(self.spec)
        moments = self.init_moments(obs)
        obs = self.view(moments, obs)
        seen = {"policy": example_features(self.torso, obs), "value": example_features(self.value_torso, obs)}
        heads = {name: (head, seen[name]) for name, head in self.heads.items()}
        if self.shared_torso:
            params = initialize(key, {"torso": (self.torso, obs)} | heads)
        else:
            # not a vmap: a batch of a user's LAPACK initializers would deadlock (docs/architecture.md)
            params = initialize(key, {"actor": (self.torso, obs), "critic": (self.value_torso, obs)} | heads)
            pair = params.pop("actor"), params.pop("critic")
            params["torso"] = jax.tree.map(lambda *x: jnp.stack(x), *pair) if self.batched else pair
        if isinstance(self.spec.action, Box) and not self.state_dependent_std:
            params["log_std"] = jnp.full((math.prod(self.spec.action.shape),), self.initial_log_std, jnp.float32)
        return params, moments

    def features(self, params: Any, obs: Any) -> tuple[jax.Array, jax.Array]:
        """The actor's and the critic's features [..., F]."""
        if self.shared_torso:
            return (self.torso.apply(params["torso"], obs),) * 2
        apart = lambda params, obs: (self.one_features(params, obs, 0), self.one_features(params, obs, 1))
        if not self.batched:
            return apart(params, obs)
        together = lambda params, obs: tuple(jax.vmap(self.torso.apply, (0, None))(params["torso"], obs))
        if jax.tree.leaves(obs)[0].shape[0] < ROWS_APART:
            return together(params, obs)
        return on_gpu(apart, together, params, obs)

    @property
    def batched(self) -> bool:
        """Whether the two torsos are one batched product: half the kernels, 1.4 times as fast on CartPole's 4 inputs.

        Wide ones (MinAtar's 400) are apart, for then a CPU runs them on two cores: 1.2 times as fast.
        """
        inputs = sum(x.size for x in jax.tree.leaves(stacking.example(self.spec)))
        return isinstance(self.torso, MLP) and inputs <= 64 and self.torso == self.value_torso

    def one_features(self, params: Any, obs: Any, which: int) -> jax.Array:
        """The actor's (0) or the critic's (1) features alone."""
        if self.shared_torso or (which == 0 and "actor" in params):
            return self.torso.apply(params.get("actor", params["torso"]), obs)
        torso = self.value_torso if which else self.torso
        return torso.apply(self.one_torso(params, which), obs)

    def one_torso(self, params: Any, which: int) -> Any:
        return tree.take(params["torso"], which) if self.batched else params["torso"][which]

    def policy(self, params: Any, obs: Any, features: Any = None) -> Any:
        features = self.one_features(params, obs, 0) if features is None else features
        out = self.heads["policy"].apply(params["policy"], features)
        space = self.spec.action
        if not isinstance(space, Box):
            return distributions.from_outputs(space, out, mask=action_mask(self.spec.observation, obs))
        log_std = params.get("log_std")
        if self.state_dependent_std:
            out, log_std = jnp.split(out, 2, axis=-1)
            log_std = jnp.clip(log_std + self.initial_log_std, LOG_STD_MIN, LOG_STD_MAX)
        return distributions.from_outputs(space, out, log_std, squash=self.squash)

    def value(self, params: Any, obs: Any, features: Any = None) -> jax.Array:
        features = self.one_features(params, obs, 1) if features is None else features
        return self.heads["value"].apply(params["value"], features)[..., 0]

    def both(self, params: Any, obs: Any) -> tuple[Any, jax.Array]:
        actor, critic = self.features(params, obs)
        return self.policy(params, obs, actor), self.value(params, obs, critic)

    def acting(self, agent):
        """The actor's torso is sliced out of the pair once a rollout, not once a step."""
        params = agent.params
        actor = params["torso"] if self.shared_torso else self.one_torso(params, 0)
        return agent._replace(params=params | {"actor": actor})
