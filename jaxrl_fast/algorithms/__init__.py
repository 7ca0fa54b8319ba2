"""Algorithms by name.

A new algorithm is one file here and one entry in `_CLASSES`.
"""

from __future__ import annotations

from typing import Any

from jaxrl_fast.errors import ConfigError
from jaxrl_fast.registry import Registry


def _check(name: str, cls: Any) -> None:
    from jaxrl_fast.algorithms.base import Algorithm

    if not (isinstance(cls, type) and issubclass(cls, Algorithm)):
        raise ConfigError("algorithm", cls, "a subclass of jaxrl_fast.Algorithm")
    if cls.name != name:
        raise ConfigError("name", cls.name, f"{name!r}, as its entry point")


_CLASSES = {  # {file: class}
    "ppo": "PPO", "dqn": "DQN", "c51": "C51", "qr_dqn": "QRDQN", "iqn": "IQN",
    "rainbow": "Rainbow", "apex": "ApeX", "pqn": "PQN", "impala": "IMPALA", "a2c": "A2C",
    "sac": "SAC", "td3": "TD3", "tqc": "TQC", "crossq": "CrossQ", "apg": "APG", "ars": "ARS",
    "es": "OpenES",
}  # fmt: skip
ALGORITHMS: Registry[type] = Registry("algorithm", "jaxrl_fast.algorithms", {
    name: f"jaxrl_fast.algorithms.{name}:{cls}" for name, cls in _CLASSES.items()
}, _check)  # fmt: skip


def register_algorithm(cls: type) -> type:
    """Register a subclass of `Algorithm` under its `name`; usable as a decorator.

    Raises ConfigError for a name that is taken.
    """
    ALGORITHMS.add(getattr(cls, "name", ""), cls)
    return cls


def list_algorithms() -> list[str]:
    """Return the names of all algorithms."""
    return ALGORITHMS.names()


def algorithm_class(name: str) -> type:
    """Return the class of an algorithm's name; imports only its own file."""
    return ALGORITHMS.get(name)
