"""Adapter of MuJoCo Playground's dm_control suite, "playground/NAME", on MJX (`impl="jax"`).

Only the suite is imported: the whole package imports robots and clones their assets.
"""

from __future__ import annotations

import functools
import importlib.util
import sys
import types
from typing import Any

import jax

from jaxrl_fast.envs.physics import api as physics
from jaxrl_fast.envs.physics import mujoco_tools
from jaxrl_fast.envs.sources import Source
from jaxrl_fast.envs.suggest import suggest
from jaxrl_fast.errors import ConfigError
from jaxrl_fast.spaces import Box

PREFIX = "playground/"
# Names of Playground 0.2, so that listing them imports nothing.
NAMES = tuple(PREFIX + name for name in (
    "AcrobotSwingup", "AcrobotSwingupSparse", "BallInCup", "CartpoleBalance",
    "CartpoleBalanceSparse", "CartpoleSwingup", "CartpoleSwingupSparse", "CheetahRun", "FingerSpin",
    "FingerTurnEasy", "FingerTurnHard", "FishSwim", "HopperHop", "HopperStand", "HumanoidRun",
    "HumanoidStand", "HumanoidWalk", "PendulumSwingup", "PointMass", "ReacherEasy", "ReacherHard",
    "SwimmerSwimmer6", "WalkerRun", "WalkerStand", "WalkerWalk",
))  # fmt: skip
INSTALL = "pip install 'jaxrl_fast[playground]'"
_PACKAGE = "mujoco_playground"


class PlaygroundEnv(physics.PhysicsEnv):
    physics_field = "data"
    model_attribute = "_mjx_model"

    def render(self, state):
        data = state.physics
        return mujoco_tools.picture(self.env.mj_model, data.qpos, data.qvel,
                                    (data.mocap_pos, data.mocap_quat))


@functools.cache
def _suite(name: str) -> types.ModuleType:
    """Return Playground's suite module for `name`, without the package's `__init__`."""
    stub = None
    try:
        if _PACKAGE not in sys.modules:
            found = importlib.util.find_spec(_PACKAGE)
            if found is None:
                raise ImportError(f"no module named {_PACKAGE}")
            stub = types.ModuleType(_PACKAGE)
            stub.__path__ = list(found.submodule_search_locations)
            sys.modules[_PACKAGE] = stub
        return mujoco_tools.import_quietly(f"{_PACKAGE}._src.dm_control_suite")
    except Exception as error:
        raise ConfigError("environment", name, "one of a Playground that can be imported: "
                                               f"{INSTALL} ({error!r})") from error
    finally:
        if stub is not None and sys.modules.get(_PACKAGE) is stub:
            del sys.modules[_PACKAGE]  # later imports get the real package


@functools.cache
def about(name: str) -> dict[str, physics.Setting]:
    """Return the settings of `name`; time steps and length default to Playground's."""
    if name not in NAMES:
        raise ConfigError("environment", name,
                          f"one of Playground's dm_control suite{suggest(name)}")
    config = _suite(name).get_default_config(name.removeprefix(PREFIX))
    own = {
        "episode_length": physics.ABOUT["episode_length"]._replace(
            default=int(config.episode_length)
        ),
        "ctrl_dt": physics.Setting(float(config.ctrl_dt), "seconds of a step of the agent"),
        "sim_dt": physics.Setting(float(config.sim_dt), "seconds of a step of the physics"),
    }
    return {**physics.ABOUT, **own}


def defaults(name: str) -> dict[str, Any]:
    return {k: setting.default for k, setting in about(name).items()}


@functools.cache
def _construct(name: str, ctrl_dt: float, sim_dt: float) -> Any:
    """Return Playground's object, one a set of arguments: it is static by identity."""
    overrides = {"impl": "jax", "ctrl_dt": ctrl_dt, "sim_dt": sim_dt}
    with mujoco_tools.quiet(), jax.ensure_compile_time_eval():
        return _suite(name).load(name.removeprefix(PREFIX), config_overrides=overrides)


def make(name: str, **settings: Any) -> PlaygroundEnv:
    """Return Playground's environment `name`, such as "playground/CartpoleBalance"."""
    given = defaults(name) | settings
    ctrl_dt, sim_dt = (given.pop(k) for k in ("ctrl_dt", "sim_dt"))
    physics.check_number("env.sim_dt", sim_dt, 0.0, open_low=True)
    physics.check_number("env.ctrl_dt", ctrl_dt, float(sim_dt))
    if abs(ctrl_dt / sim_dt - round(ctrl_dt / sim_dt)) > 1e-6:  # Playground would round silently
        raise ConfigError("env.ctrl_dt", ctrl_dt, f"a multiple of env.sim_dt = {sim_dt}")
    env = _construct(name, float(ctrl_dt), float(sim_dt))
    low, high = env.mj_model.actuator_ctrlrange.T
    with mujoco_tools.quiet():
        return PlaygroundEnv(name, env, action=Box(tuple(low), tuple(high), (env.action_size,)),
                             **given)


SOURCE = Source(make=make, settings=defaults, about=about, prefix=PREFIX,
                names=NAMES, package=_PACKAGE, install=INSTALL)
