"""Settings that differ among a population's members: from names and values to one `Run`.

Names are the command line's: "algo.learning_rate", "env.gravity". A setting that is not traced (a
size, a switch, a network) needs a program of its own, as another group of a sweep.
"""

from __future__ import annotations

import contextlib
import dataclasses
from collections.abc import Callable, Mapping, Sequence
from typing import Any

import jax
import numpy as np

from jaxrl_fast import distributed, tree
from jaxrl_fast.algorithms.base import Algorithm
from jaxrl_fast.algorithms.build import algorithm_settings, build_algorithm
from jaxrl_fast.engine.backend import backend_of
from jaxrl_fast.engine.config import RunConfig
from jaxrl_fast.engine.grid import Grid, plan_grid
from jaxrl_fast.engine.iteration import Run, check_types
from jaxrl_fast.engine.offline import check_data, check_spaces, replay_of
from jaxrl_fast.engine.placement import spread
from jaxrl_fast.engine.population import Members
from jaxrl_fast.engine.sources import FromDataset, FromEnvironments
from jaxrl_fast.envs import registry
from jaxrl_fast.envs.base import Environment
from jaxrl_fast.errors import ConfigError, nearest
from jaxrl_fast.fields import offered
from jaxrl_fast.memory import Filled, identity, load_experience, outline_experience
from jaxrl_fast.memory.experience.filled import check_batch
from jaxrl_fast.values import naming_path


def configure(algo: Algorithm, env: Environment,
              settings: Mapping[str, Any]) -> tuple[Algorithm, Environment]:
    """Return `algo` and `env` with other settings. Raises ConfigError for unknown or bad ones."""
    parts: dict[str, dict[str, Any]] = {"algo": {}, "env": {}}
    for name, value in settings.items():
        part, _, field = name.partition(".")
        if part not in parts or not field:
            known = setting_names(algo, env)
            raise ConfigError("population", name,
                              f"a setting such as algo.learning_rate{nearest(name, known)}")
        parts[part][field] = value
    if parts["algo"]:
        algo = build_algorithm(type(algo), algorithm_settings(algo) | parts["algo"])
    if parts["env"]:
        env = _configure_env(env, parts["env"])
    return algo, env


def setting_names(algo: Algorithm, env: Environment) -> list[str]:
    """Return the names that `configure` takes."""
    names = [f"algo.{name}" for name in algorithm_settings(algo)]
    return names + [f"env.{name}" for name in _names_of(env)]


def _names_of(env: Environment) -> list[str]:
    origin = registry.describe(env)
    if origin is not None:
        return list(registry.settings_of(origin[0]))
    return [f.name for f in dataclasses.fields(env)] if dataclasses.is_dataclass(env) else []


def _configure_env(env: Environment, settings: dict[str, Any]) -> Environment:
    origin = registry.describe(env)
    if origin is not None:
        return registry.make(origin[0], **origin[1] | settings)
    names = _names_of(env)
    for name, value in settings.items():
        if name not in names:
            raise ConfigError(f"env.{name}", value,
                              f"a setting of {env.spec.name}{nearest(name, offered(names))}")
    return dataclasses.replace(env, **settings)


def build_run(algo: Algorithm, env: Environment, config: RunConfig, outline: bool = False) -> Run:
    return build(algo, env, config, outline)[0]


def build(algo: Algorithm, env: Environment, config: RunConfig,
          outline: bool = False) -> tuple[Run, Grid]:
    """Return one configuration, bound, checked, ready to trace, and its grid.

    outline: read only the layout of the experience, enough for a plan.
    """
    check_types(algo, env)
    algo = algo.bind(env.spec)
    algo.check_env(env)
    backend = backend_of(env)
    backend.check(env, algo, config)
    if algo.whole_rollouts and config.sampling_groups > 1:
        argument, parts = (
            ("mesh env", config.env_devices) if config.groups is None else ("groups", config.groups)
        )
        reason = (
            f"1: {algo.name} compares or differentiates whole rollouts, which are not divided "
            "among devices"
        )
        raise ConfigError(argument, parts, f"{reason}; its seeds are: --mesh population=N")
    data = load_data(algo, config, outline) if config.experience is not None else None
    grid = plan_grid(algo, config)
    groups, fraction = config.sampling_groups, config.experience_fraction
    source = FromDataset() if config.offline else FromEnvironments()
    placed = backend.placed(env, algo, config)
    run = Run(placed, algo, float(grid.horizon), groups, config.unroll, data, fraction, source)
    try:
        return _as_arrays(run), grid
    except ConfigError as error:  # group counts that do not divide a part
        if config.groups is not None or config.env_devices == 1:
            raise
        raise ConfigError("mesh env", config.env_devices, error.valid) from None


def _as_arrays(run: Run) -> Run:
    """Return the run with arrays for numbers; raises ConfigError if its memory cannot be built."""
    run = tree.as_float32(run, np.asarray)
    jax.eval_shape(lambda run: (run.memory(), ())[1], run)
    return run


def with_experience(runs: Sequence[Run], config: RunConfig) -> list[Run]:
    """Return the runs of one program with their experience read, once, and shared."""
    data = load_data(runs[0].algo, config)
    return [_as_arrays(dataclasses.replace(run, experience=data)) for run in runs]


def load_data(algo: Algorithm, config: RunConfig, outline: bool = False) -> Filled:
    """Return a run's experience, checked; `algo` is bound. outline: shapes only (see `build`)."""
    if config.sampling_groups > 1:
        raise ConfigError("experience", config.experience, "None with groups or a mesh along env")
    if distributed.several():
        raise ConfigError("experience", config.experience, "None with several processes")
    replay = replay_of(algo)
    read, check = (outline_experience, check_spaces) if outline else (load_experience, check_data)
    with naming_path("experience"):
        if config.experience_id not in (None, identity(config.experience)):
            raise ConfigError("experience", config.experience,
                              "the folder of the run's start: it has been rewritten")
        data = read(config.experience, replay, config.experience_fraction)
    check("experience", data, algo.spec)
    if config.offline and not outline:
        check_batch("batch_size", replay.batch_size, data)
    return data


def in_turn(env: Environment, config: RunConfig) -> bool:
    """Return whether seeds train one after another: several, with environments on the host."""
    return config.seeds > 1 and not backend_of(env).one_program


def one_at_a_time(env: Environment, config: RunConfig, member: int = 0) -> RunConfig:
    """Return the settings of one training: all seeds, or `member`'s if seeds take turns."""
    if not in_turn(env, config):
        return config
    if config.selection:
        reason = "None: the environments are on the host, so members train one after another"
        raise ConfigError("selection", config.selection.kind, reason)
    return dataclasses.replace(config, seed=config.seed + member, seeds=1)


def spread_members(env: Environment, config: RunConfig, size: int | None = None) -> None:
    """Request devices for `size` members; with environments on the host, for one."""
    spread(config, size if backend_of(env).one_program else 1)


def program_of(run: Run) -> tuple:
    """Return a key, equal for two configurations exactly if one compiled program serves both."""
    leaves, structure = jax.tree.flatten(run)
    return structure, tuple((np.shape(x), str(x.dtype)) for x in leaves)


def leaf_names(run: Run) -> list[str]:
    key = lambda entry: str(
        getattr(entry, "name", getattr(entry, "key", getattr(entry, "idx", entry)))
    )
    return [".".join(map(key, path)) for path, _ in jax.tree.leaves_with_path(run)]


def configurations(algo: Algorithm, env: Environment, config: RunConfig) -> tuple[list[Run], Grid]:
    """Return a population's configurations, experience outlined, and their grid."""
    if config.configurations > 1 and not backend_of(env).one_program:
        reason = ("None: the environments are on the host, so members train one after another: "
                  "`jf.sweep(grid=...)`")
        raise ConfigError("population", sorted(config.population), reason)
    built = lambda own: build(*configure(algo, env, own), config, outline=True)
    settings = [config.settings_of(c * config.seeds) for c in range(config.configurations)]
    first, grid = built(settings[0])
    runs = [first]
    for own in settings[1:]:
        runs.append(built(own)[0])
        if program_of(runs[-1]) != program_of(first):
            reason = _static(lambda own: program_of(built(own)[0]), settings[0], own)
            raise ConfigError("population", own, f"settings that one program can hold; {reason}")
    return runs, grid


def gather(runs: Sequence[Run], config: RunConfig, always: Sequence[str] = ()) -> Members:
    """Return configurations side by side. always: settings with the member axis even if equal."""
    names = leaf_names(runs[0])
    for name in always:
        if name not in names:
            traced = [n for n in names if n.startswith("algo.")]
            raise ConfigError("setting", name, "one of the traced settings "
                                               f"({', '.join(traced)}){nearest(name, traced)}")
    columns = list(zip(*map(jax.tree.leaves, runs), strict=True))
    swept = [i for i, column in enumerate(columns) if names[i] in always
             or any(_differ(column[0], x) for x in column)]
    if config.members == 1:
        swept = []
    spread = lambda column: np.repeat(np.stack([np.asarray(x) for x in column]),
                                      config.seeds, axis=0)
    leaves = [spread(column) if i in swept else column[0] for i, column in enumerate(columns)]
    return Members(runs[0], jax.tree.unflatten(jax.tree.structure(runs[0]), leaves), tuple(swept))


def _differ(a: Any, b: Any) -> bool:
    if a is b:
        return False
    one, other = np.asarray(a), np.asarray(b)
    return not np.array_equal(one, other, equal_nan=one.dtype.kind == "f")


def _static(program: Callable[[dict], tuple], base: dict[str, Any], own: dict[str, Any]) -> str:
    for name, value in own.items():
        with contextlib.suppress(ConfigError):
            if program(base | {name: value}) != program(base):
                return (
                    f"{name} is part of the program, so `jf.sweep` trains its values as groups, "
                    "one after another"
                )
    return "they need several programs, and `jf.sweep` trains them as groups, one after another"

