"""Running normalisation of observations and rewards; agents hold the statistics, () without."""

from __future__ import annotations

from typing import Any, NamedTuple

import jax
import jax.numpy as jnp
import numpy as np

from jaxrl_fast import tree
from jaxrl_fast.ops import returns
from jaxrl_fast.ops.stacking import along
from jaxrl_fast.ops.statistics import Moments
from jaxrl_fast.spaces import Box, Dict, Space
from jaxrl_fast.tree import summary
from jaxrl_fast.types import Timestep

NORMALIZE_REWARD = "rewards over the running deviation of the discounted return, clipped to +-10"


def init_moments(wanted: bool, obs: Any) -> Any:
    """Return empty statistics for observations like the batch `obs`, () if not wanted."""
    return Moments.init(tree.take(obs, 0)) if wanted else ()


def normalize_obs(space: Space, moments: Any, obs: Any) -> Any:
    """Return the observation with entries normalised that have no scale of their own."""
    return obs if moments == () else normalized(space, moments.normalize(obs), obs)


def update_moments(moments: Any, obs: Any, use: jax.Array | None = None) -> Any:
    """Return the statistics after the observations [T, B, ...], or those of the rows `use`.

    Call it in `finish`: a rollout is normalised with the statistics of its acting (a replay with
    today's).
    """
    return moments if moments == () else moments.update(obs, use)


def normalized(space: Space, normal: Any, raw: Any) -> Any:
    """Return `normal` for entries without a scale of their own (`Box.unscaled`), else `raw`."""
    if isinstance(space, Dict):
        return {name: normalized(child, normal[name], raw[name]) for name, child in space.items}
    unscaled = space.unscaled if isinstance(space, Box) else np.zeros((), bool)
    if unscaled.all():
        return normal
    return jnp.where(along(unscaled, raw), normal, raw) if unscaled.any() else raw


class Rewards(NamedTuple):
    """Statistics that divide rewards by the running deviation of the discounted return.

    reward_t / std(G), clipped to +-10, with G_t = r_t + gamma (1 - done_{t-1}) G_{t-1} over all
    steps so far, as OpenAI baselines' `VecNormalize`. PureJaxRL and Gymnasium use 1 - the end of
    step t itself, and do not clip.
    """

    moments: Moments  # of the discounted return so far, at every step
    running: jax.Array  # float32 [num_envs]: the running return, 0 at an episode's start

    __repr__ = summary

    @classmethod
    def init(cls, wanted: bool, num_envs: int) -> Any:
        """Return empty statistics, () if not wanted."""
        return cls(Moments.init(jnp.float32(0)), jnp.zeros(num_envs, jnp.float32)) if wanted else ()

    def update(self, steps: Timestep, discount: Any) -> Rewards:
        """Return the statistics after a rollout [T, num_envs]; call it before `normalize`."""
        running, so_far = returns.returns_so_far(self.running, steps.reward, steps.done, discount)
        real = None if isinstance(steps.reset_only, tuple) else ~steps.reset_only
        return Rewards(self.moments.update(so_far, real), running)

    def seam(self) -> Rewards:
        """Return the statistics for environments that start anew."""
        return self._replace(running=jnp.zeros_like(self.running))

    def normalize(self, reward: jax.Array, clip: float = 10.0) -> jax.Array:
        """Divide and clip; a return that does not vary (in float32) divides nothing."""
        count, mean, m2 = self.moments
        variance = m2 / jnp.maximum(count, 1.0)
        varies = variance > jnp.square(1e-6 * mean)
        return jnp.clip(reward / jnp.sqrt(jnp.where(varies, variance, 1.0)), -clip, clip)
