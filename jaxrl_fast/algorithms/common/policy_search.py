"""Base of algorithms that improve a policy by whole rollouts, without value or memory."""

from __future__ import annotations

from typing import Any, ClassVar, NamedTuple

import flax.linen as nn
import jax

from jaxrl_fast import tree
from jaxrl_fast.algorithms.base import IN_NETWORKS, Algorithm
from jaxrl_fast.algorithms.common.normalize import init_moments, normalize_obs, update_moments
from jaxrl_fast.fields import WIDEST, setting
from jaxrl_fast.memory import Memory
from jaxrl_fast.networks import Dense, apply_parts, as_network, initialize_parts, make_torso
from jaxrl_fast.ops import distributions, stacking


class Rows(NamedTuple):
    """Rows that `finish` reads; the memory stores none."""

    obs: Any  # [T, B, ...], stacked as the agent sees them
    use: Any = None  # bool [T, B]; None: all


@tree.settings
class PolicySearch(Algorithm):
    """Policy search by whole rollouts. The agent has `params` ({"torso", "head"}) and `moments`."""

    whole_rollouts: ClassVar[bool] = True
    head_scale: ClassVar[float] = 0.01  # gain of the head's first weights
    removed: ClassVar[dict[str, str]] = {
        **dict.fromkeys(("view", "gradient_step", "layers"), "override `act` or `learn`"),
        **dict.fromkeys(("torso", "head"), IN_NETWORKS),
    }

    normalize_observations: bool = setting(False)
    """normalise observations by running mean and variance, updated after the update"""
    network: str | nn.Module = setting("auto", convert=as_network)
    """torso: auto, mlp, cnn, or your own network from observation to features (flax, nnx,
    Equinox)"""
    hidden: tuple[int, ...] = setting((64, 64), high=WIDEST)
    """widths of the torso's dense layers; none: linear policy"""
    activation: str = setting("tanh")
    """activation of the torso"""

    @property
    def updates(self) -> int:
        return 1

    def memory(self) -> Memory:
        return Memory()

    @property
    def networks(self) -> dict[str, nn.Module]:
        """Return {"torso", "head"}."""
        torso = make_torso(self.network, self.spec.observation, self.hidden, self.activation)
        head = Dense(distributions.num_outputs(self.spec.action), self.head_scale)
        return {"torso": torso, "head": head}

    def init_policy(self, key: jax.Array) -> tuple[Any, Any]:
        """Return (params, observation moments; () without normalisation)."""
        obs = stacking.example(self.spec)
        moments = init_moments(self.normalize_observations, obs)
        obs = normalize_obs(self.spec.observation, moments, obs)
        return initialize_parts(key, {"policy": (self.networks, obs)})["policy"], moments

    def outputs(self, params: Any, obs: Any) -> jax.Array:
        """Return policy outputs [b, outputs] for observations as the networks take them."""
        return apply_parts(self.networks, params, obs, self.precision)

    def draw(self, key, num_steps, num_envs):
        return distributions.draw_noise(key, self.spec.action, (num_steps, num_envs))

    def prepare(self, agent, trajectory):
        return Rows(stacking.observations(trajectory, self.spec.stack))

    def finish(self, agent, rows):
        return agent._replace(moments=update_moments(agent.moments, rows.obs, rows.use))
