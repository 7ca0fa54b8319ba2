"""Algorithms by name.

A new algorithm is one file here and one line in `ALGORITHMS`; its protocol is the docstring of
`jaxrl_fast.algorithms.base`.
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


ALGORITHMS: Registry[type] = Registry("algorithm", "jaxrl_fast.algorithms", {
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
}, _check)  # fmt: skip


def register_algorithm(cls: type) -> type:
    """Register a subclass of `Algorithm` under its `name`; usable as a decorator.

    Presets and the command line then know it. Raises ConfigError for a name that is taken.
    """
    ALGORITHMS.add(getattr(cls, "name", ""), cls)
    return cls


def list_algorithms() -> list[str]:
    """Return the names of all algorithms."""
    return ALGORITHMS.names()


def algorithm_class(name: str) -> type:
    """Return the class of an algorithm's name; imports only its own file."""
    return ALGORITHMS.get(name)
