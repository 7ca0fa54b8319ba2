"""What an environment's spaces say of its actions: which are legal, and whether an algorithm can choose among them."""

from __future__ import annotations

from typing import Any

import jax
import jax.numpy as jnp

from jaxrl_fast.errors import ConfigError
from jaxrl_fast.spaces import Box, Dict, Discrete, Space
from jaxrl_fast.types import EnvSpec, PyTree


def action_mask(space: Space, obs: PyTree) -> jax.Array | None:
    """The legal-action flags bool [..., n] of an observation, None where the environment gives none."""
    if isinstance(space, Dict) and "action_mask" in space:
        return obs["action_mask"].astype(bool)
    return None


def check_kind(spec: EnvSpec, name: str, kinds: tuple[type, ...]) -> None:
    """Refuse actions that the algorithm `name` does not choose, and say which algorithms do."""
    if not isinstance(spec.action, kinds):
        names = " or ".join(s.__name__ for s in kinds)
        take = {Box: "ppo and sac take these", Discrete: "ppo and dqn take these"}.get(type(spec.action), "ppo takes these")
        raise ConfigError("environment", spec.name, f"{name} needs {names} actions, this has {spec.action}; {take}")


def check_mask(spec: EnvSpec) -> None:
    """An `action_mask` only means something for Discrete actions."""
    if isinstance(spec.observation, Dict) and "action_mask" in spec.observation and not isinstance(
        spec.action, Discrete
    ):
        raise ConfigError("environment", spec.name, f"action_mask needs Discrete actions, this has {spec.action}")


def check_bounded(spec: EnvSpec, argument: str, value: Any, need: str) -> None:
    """Refuse actions that [-1, 1]^d cannot be scaled to: without bounds, with no room between them, or whole numbers."""
    if not isinstance(spec.action, Box):
        return
    low, high = spec.action.bounds()
    if not (spec.action.bounded and (low < high).all() and jnp.issubdtype(spec.action.dtype, jnp.floating)):
        raise ConfigError(argument, value, f"{need}, this has {spec.action}; ppo without squash, ars and es take these")
