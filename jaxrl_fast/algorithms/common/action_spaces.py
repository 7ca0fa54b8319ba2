"""Action masks, and checks of whether an algorithm can act in a space."""

from __future__ import annotations

from typing import Any

import jax
import jax.numpy as jnp

from jaxrl_fast.errors import ConfigError
from jaxrl_fast.spaces import Box, Dict, Discrete, Space
from jaxrl_fast.types import EnvSpec, PyTree


def action_mask(space: Space, obs: PyTree) -> jax.Array | None:
    """Return the legal-action flags bool [..., n] of an observation, or None."""
    if isinstance(space, Dict) and "action_mask" in space:
        return obs["action_mask"].astype(bool)
    return None


def check_kind(spec: EnvSpec, name: str, kinds: tuple[type, ...]) -> None:
    """Raise ConfigError, with the algorithms that fit, unless `name` can act in the spec's space."""
    if not isinstance(spec.action, kinds):
        names = " or ".join(s.__name__ for s in kinds)
        need = f"{name} needs {names} actions, this has {spec.action}"
        valid = f"one that {name} can act in: {need}; {_takers(spec.action)}"
        raise ConfigError("environment", spec.name, valid)


def _takers(space: Space) -> str:
    """Return which algorithms act in the space."""
    if isinstance(space, Dict):
        return "no algorithm takes these: make them one MultiDiscrete or one Box"
    if isinstance(space, Box):
        return "ppo and sac take these" if _is_scalable(space) else _UNSCALED
    return "ppo and dqn take these" if isinstance(space, Discrete) else "ppo, ars and es take these"


_UNSCALED = "ppo without squash, ars and es take these"


def _is_scalable(space: Box) -> bool:
    """Return whether [-1, 1]^d can be scaled to the box."""
    low, high = space.bounds()
    return space.bounded and bool((low < high).all()) and jnp.issubdtype(space.dtype, jnp.floating)


def check_mask(spec: EnvSpec) -> None:
    """Raise ConfigError for an `action_mask` without Discrete actions."""
    if isinstance(spec.observation, Dict) and "action_mask" in spec.observation and not isinstance(
        spec.action, Discrete
    ):
        raise ConfigError("environment", spec.name, f"one without action_mask: action_mask needs Discrete "
                          f"actions, this has {spec.action}")


def check_bounded(spec: EnvSpec, argument: str, value: Any, need: str) -> None:
    """Raise ConfigError unless [-1, 1]^d scales to the actions: bounded floats with low < high."""
    if not isinstance(spec.action, Box):
        return
    if not _is_scalable(spec.action):
        raise ConfigError(argument, value, f"{need}, this has {spec.action}; {_UNSCALED}")
