"""Algorithms by name; each file reads like its paper."""

from __future__ import annotations

import importlib

from jaxrl_fast.errors import ConfigError, nearest

_REGISTRY: dict[str, str | type] = {
    "ppo": "jaxrl_fast.algorithms.ppo:PPO",
    "dqn": "jaxrl_fast.algorithms.dqn:DQN",
    "c51": "jaxrl_fast.algorithms.c51:C51",
    "qr_dqn": "jaxrl_fast.algorithms.qr_dqn:QRDQN",
    "iqn": "jaxrl_fast.algorithms.iqn:IQN",
    "rainbow": "jaxrl_fast.algorithms.rainbow:Rainbow",
    "apex": "jaxrl_fast.algorithms.apex:ApeX",
    "pqn": "jaxrl_fast.algorithms.pqn:PQN",
    "impala": "jaxrl_fast.algorithms.impala:IMPALA",
    "a2c": "jaxrl_fast.algorithms.a2c:A2C",
    "sac": "jaxrl_fast.algorithms.sac:SAC",
    "td3": "jaxrl_fast.algorithms.td3:TD3",
    "tqc": "jaxrl_fast.algorithms.tqc:TQC",
    "crossq": "jaxrl_fast.algorithms.crossq:CrossQ",
    "apg": "jaxrl_fast.algorithms.apg:APG",
    "ars": "jaxrl_fast.algorithms.ars:ARS",
    "es": "jaxrl_fast.algorithms.es:OpenES",
}


def register_algorithm(cls: type) -> type:
    """Make a subclass of `Algorithm` known by its `name`; usable as a decorator.

    For presets and the command line. Raises ConfigError for a name that is taken.
    """
    from jaxrl_fast.algorithms.base import Algorithm

    if not (isinstance(cls, type) and issubclass(cls, Algorithm)):
        raise ConfigError("algorithm", cls, "a subclass of jaxrl_fast.Algorithm")
    known = _REGISTRY.get(cls.name)
    same = known is not None and getattr(known, "__qualname__", known) in (cls.__qualname__, f"{cls.__module__}:{cls.__name__}")
    if known is not None and not same:
        raise ConfigError("name", cls.name, "an algorithm name that is not taken")
    _REGISTRY[cls.name] = cls
    return cls


def list_algorithms() -> list[str]:
    """Return the names of all algorithms."""
    return list(_REGISTRY)


def algorithm_class(name: str) -> type:
    """The class behind a name; imports only its own file."""
    entry = _REGISTRY.get(name)
    if entry is None:
        raise ConfigError("algorithm", name, f"one of {', '.join(_REGISTRY)}{nearest(name, _REGISTRY)}")
    if isinstance(entry, str):
        module, _, attribute = entry.partition(":")
        entry = getattr(importlib.import_module(module), attribute)
    return entry
