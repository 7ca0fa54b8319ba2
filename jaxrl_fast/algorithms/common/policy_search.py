"""What algorithms share that have a policy, no value and no memory: they improve the policy by whole rollouts."""

from __future__ import annotations

from typing import Any, ClassVar, NamedTuple

import flax.linen as nn
import jax

from jaxrl_fast import tree
from jaxrl_fast.algorithms.base import Algorithm
from jaxrl_fast.algorithms.common.normalize import init_moments, normalize_obs, update_moments
from jaxrl_fast.fields import setting
from jaxrl_fast.memory import Memory
from jaxrl_fast.networks import NETWORK, Dense, as_network, example_features, initialize, make_torso
from jaxrl_fast.ops import distributions, stacking


class Rows(NamedTuple):
    """What `finish` looks at; nothing is stored."""

    obs: Any  # [T, B, ...] as the agent saw them
    use: Any = None  # bool [T, B]; None: all of them


@tree.settings
class PolicySearch(Algorithm):
    """params: {"torso", "head"}; the agent has `params` and `moments`."""

    whole_rollouts: ClassVar[bool] = True

    normalize_observations: bool = setting(False, "by running mean and variance, updated after the update")
    network: str | nn.Module = setting("auto", NETWORK, convert=as_network)
    hidden: tuple[int, ...] = setting((64, 64), "widths of the torso's dense layers; none: a linear policy")
    activation: str = setting("tanh", "of the torso")

    @property
    def updates(self) -> int:
        return 1

    def memory(self) -> Memory:
        return Memory()

    @property
    def torso(self) -> nn.Module:
        return make_torso(self.network, self.spec.observation, self.hidden, self.activation)

    @property
    def head(self) -> nn.Module:
        return Dense(distributions.num_outputs(self.spec.action), 0.01)

    def init_policy(self, key: jax.Array) -> tuple[Any, Any]:
        """-> (params, moments of the observations; () without normalisation)."""
        obs = stacking.example(self.spec)
        moments = init_moments(self.normalize_observations, obs)
        obs = normalize_obs(self.spec.observation, moments, obs)
        return initialize(key, {"torso": (self.torso, obs), "head": (self.head, example_features(self.torso, obs))}), moments

    def outputs(self, params: Any, obs: Any) -> jax.Array:
        """[b, outputs], of observations as the networks see them."""
        return self.head.apply(params["head"], self.torso.apply(params["torso"], obs))

    def draw(self, key, num_steps, num_envs):
        return distributions.draw_noise(key, self.spec.action, (num_steps, num_envs))

    def prepare(self, agent, trajectory):
        return Rows(stacking.observations(trajectory, self.spec.stack))

    def finish(self, agent, rows):
        return agent._replace(moments=update_moments(agent.moments, rows.obs, rows.use))
