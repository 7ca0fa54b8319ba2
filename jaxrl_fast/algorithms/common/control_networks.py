"""The networks of continuous control: an actor, and an ensemble of critics as one stack of parameters."""

from __future__ import annotations

import math
from typing import Any

import flax.linen as nn
import jax
import jax.numpy as jnp

from jaxrl_fast.networks import MLP, Dense, WithAction, apply_parts, initialize_parts, make_torso
from jaxrl_fast.ops import stacking
from jaxrl_fast.spaces import Box, Dict


class ControlNetworks:
    """A part of `ActorCritics`, whose settings it reads."""

    @property
    def action_size(self) -> int:
        return math.prod(self.spec.action.shape)

    @property
    def actor_outputs(self) -> int:
        """Numbers that the actor puts out for a state; every algorithm says how many."""
        raise NotImplementedError

    @property
    def critic_outputs(self) -> int:
        """Numbers that a critic puts out for a state and an action."""
        return 1

    @property
    def torso(self) -> nn.Module:
        return make_torso(self.network, self.spec.observation, self.hidden, self.activation)

    @property
    def actor(self) -> dict[str, nn.Module]:
        return {"torso": self.torso, "head": Dense(self.actor_outputs, 0.01)}

    @property
    def critic(self) -> dict[str, nn.Module]:
        space = Dict.of(action=Box(-1.0, 1.0, (self.action_size,)), observation=self.spec.observation)
        if isinstance(self.torso, MLP):
            torso = MLP(space, self.critic_hidden, self.activation, self.layer_norm)
        else:
            torso = WithAction(self.torso, self.critic_hidden, self.activation, self.layer_norm)
        return {"torso": torso, "head": Dense(self.critic_outputs, 1.0)}

    def init_networks(self, key: jax.Array) -> tuple[dict[str, Any], Any]:
        """-> ({"actor", "critics"}, moments)."""
        obs = stacking.example(self.spec)
        moments = self.init_moments(obs)
        obs = self.view(moments, obs)
        x = {"action": jnp.zeros((1, self.action_size), jnp.float32), "observation": obs}
        parts = {"actor": (self.actor, obs)} | {f"critic{i}": (self.critic, x) for i in range(self.num_critics)}
        made = initialize_parts(key, parts)
        critics = [made[f"critic{i}"] for i in range(self.num_critics)]
        return {"actor": made["actor"], "critics": jax.tree.map(lambda *x: jnp.stack(x), *critics)}, moments

    def actor_output(self, params: Any, obs: Any) -> jax.Array:
        return apply_parts(self.actor, params, obs)

    def critic_output(self, params: Any, obs: Any, action: jax.Array) -> jax.Array:
        """Every critic's outputs [num_critics, b, outputs]; action [b, d] in [-1, 1]."""
        x = {"action": action, "observation": obs}
        return jax.vmap(lambda params: apply_parts(self.critic, params, x))(params)
