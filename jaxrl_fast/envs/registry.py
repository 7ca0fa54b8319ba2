"""Names to environments. `make` caches: the same arguments give the same object, so nothing is traced twice."""

from __future__ import annotations

import dataclasses
import importlib
from collections.abc import Callable
from typing import Any

from jaxrl_fast.envs.api import Env
from jaxrl_fast.errors import ConfigError, nearest

# name -> "module:factory"; resolved when asked for, so that listing imports nothing.
_REGISTRY: dict[str, str | Callable[..., Env]] = {
    "CartPole-v1": "jaxrl_fast.envs.cartpole:CartPole",
}


def register(name: str, factory: Callable[..., Env] | str) -> None:
    """Make `factory(**settings) -> Env` (or "module:attribute") known as `name`, for `make` and the command line."""
    if not isinstance(name, str) or not name:
        raise ConfigError("name", name, "a non-empty string")
    if name in _REGISTRY and _REGISTRY[name] != factory:
        raise ConfigError("name", name, "a name that is not taken")
    _REGISTRY[name] = factory
