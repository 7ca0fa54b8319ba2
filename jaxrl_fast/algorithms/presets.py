"""Presets by name: tuned settings of an algorithm for an environment, of `preset_table`."""

from __future__ import annotations

import fnmatch
from collections.abc import Mapping
from typing import Any, NamedTuple

from jaxrl_fast.algorithms import algorithm_class
from jaxrl_fast.algorithms.base import Algorithm
from jaxrl_fast.algorithms.build import build_algorithm, import_named
from jaxrl_fast.algorithms.preset_table import PRESETS, Preset
from jaxrl_fast.envs import registry
from jaxrl_fast.envs.base import Environment
from jaxrl_fast.errors import ConfigError

# EnvPool's tasks with "-v5" that are not Atari's.
_MUJOCO = ("Ant", "HalfCheetah", "Hopper", "Humanoid", "HumanoidStandup",
           "InvertedDoublePendulum", "InvertedPendulum", "Pusher",
           "Reacher", "Swimmer", "Walker2d")  # fmt: skip


def same_task(environment: str) -> str:
    """Return the name under which a preset stands, whichever package makes the environment."""
    environment = environment.removeprefix("gymnax:").removeprefix("gym:")
    if environment.startswith("atari:"):
        return f"ale:{environment.removeprefix('atari:')}"
    if not environment.startswith("envpool:"):
        return environment
    task = environment.removeprefix("envpool:")
    game = task.removesuffix("-v5")
    return f"ale:{game}" if game != task and game not in _MUJOCO else task


def find_preset(algorithm: str, environment: str) -> Preset | None:
    """Return the preset of an algorithm on an environment, or None."""
    wanted = f"{algorithm}/{same_task(environment)}"
    return next((found for found in PRESETS if fnmatch.fnmatchcase(wanted, found.name)), None)


def preset(algorithm: str, environment: str, **settings: Any) -> Algorithm:
    """Return an algorithm with tuned settings, such as `jf.preset("ppo", "CartPole-v1")`.

    `settings` override; without a preset the defaults are used. A preset may also hold steps of the
    run and settings of the environment: `jf.train("ppo", "ale:Pong")` takes the whole preset.
    """
    if not isinstance(environment, str):
        raise ConfigError("environment", environment, "a name, such as 'CartPole-v1'")
    found, cls = find_preset(algorithm, environment), algorithm_class(algorithm)
    if found is None:
        registry.check_known(environment)
    import_named(cls, settings.items())
    return build_algorithm(cls, {**(found.algo if found else {}), **settings})


class RunArguments(NamedTuple):
    """Arguments of a run, with objects in place of names."""

    algo: Algorithm
    env: Environment
    total_steps: int | None  # None: the default
    settings: Mapping[str, Any]
    about: Any


def resolve_names(
    algo: Algorithm | str, env: Environment | str, total_steps: int | None,
    settings: Mapping[str, Any], about: Any = None,
) -> RunArguments:  # fmt: skip
    """Replace the names of an algorithm and an environment by objects.

    Two names take their preset whole, as `jaxrl-fast train` does: settings of the algorithm, the
    run and the environment. What is given overrides the preset's run. Objects pass as they are.

    Raises ConfigError for an unknown name, and for a name beside an environment object.
    """
    if not isinstance(env, str):
        if isinstance(algo, str):
            raise ConfigError("algo", algo, "an algorithm beside an environment object, such as "
                              'jf.PPO() or jf.preset("ppo", "CartPole-v1"); or give both by name')
        return RunArguments(algo, env, total_steps, settings, about)
    if not isinstance(algo, str):
        return RunArguments(algo, registry.make(env), total_steps, settings, about)
    found = find_preset(algo, env)
    if found is None:
        return resolve_names(preset(algo, env), env, total_steps, settings, about)
    run = found.run | settings
    steps = run.pop("total_steps", None)
    if about is None or isinstance(about, Mapping):  # others are refused where config.json is made
        about = {"preset": found.name, **(about or {})}
    steps = steps if total_steps is None else total_steps
    return RunArguments(preset(algo, env), registry.make(env, **found.env), steps, run, about)
