"""Running observation normalisation, for every algorithm that offers it: the statistics are part of the agent."""

from __future__ import annotations

from typing import Any

import jax
import jax.numpy as jnp
import numpy as np

from jaxrl_fast import tree
from jaxrl_fast.algorithms.base import Algorithm
from jaxrl_fast.fields import setting
from jaxrl_fast.spaces import Box, Dict, Space
from jaxrl_fast.stacking import along
from jaxrl_fast.statistics import Moments


@tree.settings
class Normalizing(Algorithm):
    """An agent with a field `moments`: statistics of the observations, () without normalisation."""

    normalize_observations: bool = setting(False, "by running mean and variance, updated after the update")

    def init_moments(self, obs: Any) -> Any:
        """Empty statistics for observations like the batch `obs`."""
        return Moments.init(jax.tree.map(lambda x: x[0], obs)) if self.normalize_observations else ()

    def view(self, moments: Any, obs: Any) -> Any:
        """The observation as the networks see it: what has no scale of its own normalised, the rest as it is."""
        return normalized(self.spec.observation, moments.normalize(obs), obs) if self.normalize_observations else obs

    def finish(self, agent, rows):
        """Not before the updates: a rollout is normalised with the statistics it was acted with (a replay with today's)."""
        return agent._replace(moments=agent.moments.update(rows.obs)) if self.normalize_observations else agent


def normalized(space: Space, normal: Any, raw: Any) -> Any:
    """`normal` for the entries that have no scale of their own (`Box.unscaled`), `raw` for the others."""
    if isinstance(space, Dict):
        return {name: normalized(child, normal[name], raw[name]) for name, child in space.items}
    unscaled = space.unscaled if isinstance(space, Box) else np.zeros((), bool)
    if unscaled.all():
        return normal
    return jnp.where(along(unscaled, raw), normal, raw) if unscaled.any() else raw
