"""The networks of continuous control: an actor, and critics as one stack of parameters."""

from __future__ import annotations

import dataclasses
import math
from typing import Any

import flax.linen as nn
import jax
import jax.numpy as jnp

from jaxrl_fast.networks import MLP, WithAction, apply_parts, initialize_parts
from jaxrl_fast.ops import optim
from jaxrl_fast.ops.lowering import over_networks
from jaxrl_fast.spaces import Box, Dict
from jaxrl_fast.types import EnvSpec


@dataclasses.dataclass(frozen=True)
class ControlNetworks:
    """Actor and critics as pure functions of their parameters {"torso", "head"}.

    Critics are stacked [num_critics, ...]. Observations are [b, ...], normalised if the algorithm
    does; actions are float32 [b, d] in [-1, 1].
    """

    spec: EnvSpec
    actor: dict[str, nn.Module]  # {"torso", "head"}
    critic: dict[str, nn.Module]  # the same, for {"action", "observation"}
    num_critics: int
    precision: str = "highest"  # of the torsos' products

    @property
    def layers(self) -> optim.View:
        """Return the critics apart, for optimizers that use a layer's shape."""
        return optim.View(lambda params: optim.split(params, self.num_critics),
                          lambda seen, like: optim.join(seen))

    def init(self, key: jax.Array, obs: Any) -> dict[str, Any]:
        """Draw {"actor", "critics"} for observations like the batch `obs`."""
        x = {"action": jnp.zeros((1, math.prod(self.spec.action.shape)), jnp.float32),
             "observation": obs}
        parts = {f"critic{i}": (self.critic, x) for i in range(self.num_critics)}
        made = initialize_parts(key, {"actor": (self.actor, obs)} | parts)
        critics = [made[f"critic{i}"] for i in range(self.num_critics)]
        return {"actor": made["actor"], "critics": jax.tree.map(lambda *x: jnp.stack(x), *critics)}

    def actor_output(self, params: Any, obs: Any) -> jax.Array:
        """Return the actor's outputs [b, outputs]."""
        return apply_parts(self.actor, params, obs, self.precision)

    def critic_output(self, params: Any, obs: Any, action: jax.Array) -> jax.Array:
        """Return every critic's outputs [num_critics, b, outputs]."""
        x = {"action": action, "observation": obs}
        one = lambda params: apply_parts(self.critic, params, x, self.precision)
        return over_networks(one, params, self.num_critics, len(action))


def critic_torso(spec: EnvSpec, torso: nn.Module, hidden: tuple[int, ...],
                 activation: str, layer_norm: bool) -> nn.Module:
    """Return a critic's torso: an MLP of its own, else `torso` and the action side by side."""
    if not isinstance(torso, MLP):
        return WithAction(torso, hidden, activation, layer_norm)
    space = Dict.of(action=Box(-1.0, 1.0, (math.prod(spec.action.shape),)),
                    observation=spec.observation)
    return MLP(space, hidden, activation, layer_norm)
