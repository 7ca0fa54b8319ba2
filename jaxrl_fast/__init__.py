"""Reinforcement learning where the whole training run is one XLA program.

    import jax, jaxrl_fast as jf

    env = jf.make("CartPole-v1")
    algo = jf.PPO(num_envs=16, learning_rate=3e-4)
    train = jf.make_train(algo, env, total_steps=500_000)
    state, metrics = jax.jit(train)(jax.random.key(0))

Names are imported on first use, so `import jaxrl_fast` costs next to nothing.
"""

from __future__ import annotations

import importlib
import sys
from types import ModuleType
from typing import TYPE_CHECKING, Any

from jaxrl_fast import _moved
from jaxrl_fast import runtime as _runtime

__version__ = "0.1.0"

_runtime.prepare_xla()
_moved.install()

_GROUPS = {  # as in docs/api.md: {heading: {name: module}}
    "Train": {
        "train": "runs.train", "resume": "runs.load", "load": "runs.load",
        "plan": "engine.prepared", "preset": "algorithms.presets", "make_train": "engine.iteration",
        "evaluate": "runs.evaluate", "Agent": "runs.agent",
    },
    "Many runs": {
        "sweep": "sweeps.sweep", "tune": "sweeps.tuning", "PBT": "sweeps.selection",
        "Halving": "sweeps.selection",
    },
    "Environments": {
        "make": "envs.registry", "register": "envs.registry", "list_environments": "envs.registry",
        "Env": "envs.api", "HostEnv": "envs.host.api", "SingleEnv": "envs.single",
        "EnvSpec": "types", "Outcome": "types", "to_gymnasium": "envs.export.to_gymnasium",
        "show": "runs.show",
    },
    "Spaces": {"Box": "spaces", "Discrete": "spaces", "MultiDiscrete": "spaces", "Dict": "spaces"},
    "Algorithms": {
        "PPO": "algorithms.ppo", "A2C": "algorithms.a2c", "IMPALA": "algorithms.impala",
        "PQN": "algorithms.pqn", "DQN": "algorithms.dqn", "C51": "algorithms.c51",
        "QRDQN": "algorithms.qr_dqn", "IQN": "algorithms.iqn", "Rainbow": "algorithms.rainbow",
        "ApeX": "algorithms.apex", "SAC": "algorithms.sac", "TD3": "algorithms.td3",
        "TQC": "algorithms.tqc", "CrossQ": "algorithms.crossq", "APG": "algorithms.apg",
        "ARS": "algorithms.ars", "OpenES": "algorithms.es",
    },
    "Algorithms of your own": {
        "Algorithm": "algorithms.base", "register_algorithm": "algorithms",
        "list_algorithms": "algorithms", "settings": "tree", "setting": "fields",
        "Timestep": "types", "Trajectory": "types",
    },
    "Offline": {
        "experience": "runs.load", "offline_memory": "engine.offline",
        "make_offline_train": "engine.offline",
    },
    "Logs and errors": {
        "Sink": "logs.sinks", "Row": "logs.rows", "ConfigError": "errors",
        "NonFiniteError": "errors",
    },
}  # fmt: skip
_NAMES = {name: module for names in _GROUPS.values() for name, module in names.items()}
__all__ = sorted(_NAMES)
_PACKAGES = ("envs", "memory", "networks", "testing")  # `jf.envs.TimeLimit` after a plain import

if TYPE_CHECKING:
    from jaxrl_fast import envs, memory, networks, testing
    from jaxrl_fast.algorithms import list_algorithms, register_algorithm
    from jaxrl_fast.algorithms.a2c import A2C
    from jaxrl_fast.algorithms.apex import ApeX
    from jaxrl_fast.algorithms.apg import APG
    from jaxrl_fast.algorithms.ars import ARS
    from jaxrl_fast.algorithms.base import Algorithm
    from jaxrl_fast.algorithms.c51 import C51
    from jaxrl_fast.algorithms.crossq import CrossQ
    from jaxrl_fast.algorithms.dqn import DQN
    from jaxrl_fast.algorithms.es import OpenES
    from jaxrl_fast.algorithms.impala import IMPALA
    from jaxrl_fast.algorithms.iqn import IQN
    from jaxrl_fast.algorithms.ppo import PPO
    from jaxrl_fast.algorithms.pqn import PQN
    from jaxrl_fast.algorithms.presets import preset
    from jaxrl_fast.algorithms.qr_dqn import QRDQN
    from jaxrl_fast.algorithms.rainbow import Rainbow
    from jaxrl_fast.algorithms.sac import SAC
    from jaxrl_fast.algorithms.td3 import TD3
    from jaxrl_fast.algorithms.tqc import TQC
    from jaxrl_fast.engine.iteration import make_train
    from jaxrl_fast.engine.offline import make_offline_train, offline_memory
    from jaxrl_fast.engine.prepared import plan
    from jaxrl_fast.envs.api import Env
    from jaxrl_fast.envs.export.to_gymnasium import to_gymnasium
    from jaxrl_fast.envs.host.api import HostEnv
    from jaxrl_fast.envs.registry import list_environments, make, register
    from jaxrl_fast.envs.single import SingleEnv
    from jaxrl_fast.errors import ConfigError, NonFiniteError
    from jaxrl_fast.fields import setting
    from jaxrl_fast.logs.rows import Row
    from jaxrl_fast.logs.sinks import Sink
    from jaxrl_fast.runs.agent import Agent
    from jaxrl_fast.runs.evaluate import evaluate
    from jaxrl_fast.runs.load import experience, load, resume
    from jaxrl_fast.runs.show import show
    from jaxrl_fast.runs.train import train
    from jaxrl_fast.spaces import Box, Dict, Discrete, MultiDiscrete
    from jaxrl_fast.sweeps.selection import PBT, Halving
    from jaxrl_fast.sweeps.sweep import sweep
    from jaxrl_fast.sweeps.tuning import tune
    from jaxrl_fast.tree import settings
    from jaxrl_fast.types import EnvSpec, Outcome, Timestep, Trajectory


class _Package(ModuleType):
    """Keeps functions such as `train` and `load` from being replaced by modules of old names."""

    def __setattr__(self, name: str, value: Any) -> None:
        if name not in _NAMES or not isinstance(value, ModuleType):
            super().__setattr__(name, value)


sys.modules[__name__].__class__ = _Package


def __getattr__(name: str) -> Any:
    if name in _PACKAGES:
        return importlib.import_module(f"jaxrl_fast.{name}")
    if name not in _NAMES:
        hint = ""
        if name[:1].isupper():  # a class; an import of a submodule asks here first
            from jaxrl_fast.spelling.nearest import nearest

            hint = nearest(name, __all__)
        raise AttributeError(f"module 'jaxrl_fast' has no attribute {name!r}{hint}")
    value = getattr(importlib.import_module(f"jaxrl_fast.{_NAMES[name]}"), name)
    globals()[name] = value
    return value


def __dir__() -> list[str]:
    return sorted([*__all__, *_PACKAGES, "__version__"])
