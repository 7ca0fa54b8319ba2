"""Settings that differ among the members of a population: from names and values to one `Run` with the member axis.

Names are those of the command line: "algo.learning_rate", "env.gravity". Float settings of an algorithm and of most
environments are traced, so they can differ inside one program; what is static (sizes, switches, networks) makes
another program, and belongs to another group of a sweep.
"""

from __future__ import annotations

import dataclasses
import importlib.util
from collections.abc import Mapping, Sequence
from typing import Any

import jax
import numpy as np

from jaxrl_fast import distributed, tree
from jaxrl_fast.algorithms.base import Algorithm
from jaxrl_fast.algorithms.build import algorithm_settings, build_algorithm
from jaxrl_fast.engine.config import Host, RunConfig
from jaxrl_fast.engine.grid import plan_grid, sizes_of
from jaxrl_fast.engine.iteration import Run, check_types
from jaxrl_fast.engine.offline import check_data, check_spaces, replay_of
from jaxrl_fast.engine.population import Members, spread
from jaxrl_fast.envs import registry
from jaxrl_fast.envs.api import Env
from jaxrl_fast.envs.host.api import HostEnv
from jaxrl_fast.errors import ConfigError, MissingExtraError, nearest
from jaxrl_fast.memory import Filled, identity, load_experience, outline_experience
from jaxrl_fast.memory.experience.filled import check_batch


def configure(algo: Algorithm, env: Env, settings: Mapping[str, Any]) -> tuple[Algorithm, Env]:
    """`algo` and `env` with other settings. ConfigError where there is no such setting, or not with this value."""
    parts: dict[str, dict[str, Any]] = {"algo": {}, "env": {}}
    for name, value in settings.items():
        part, _, field = name.partition(".")
        if part not in parts or not field:
            known = setting_names(algo, env)
            raise ConfigError("population", name, f"a setting such as algo.learning_rate{nearest(name, known)}")
        parts[part][field] = value
    if parts["algo"]:
        algo = build_algorithm(type(algo), algorithm_settings(algo) | parts["algo"])
    if parts["env"]:
        env = _configure_env(env, parts["env"])
    return algo, env


def setting_names(algo: Algorithm, env: Env) -> list[str]:
    """Every name that `configure` takes."""
    origin = registry.describe(env)
    own = registry.settings_of(origin[0]) if origin else [f.name for f in _fields(env)]
    return [f"algo.{name}" for name in algorithm_settings(algo)] + [f"env.{name}" for name in own]


def _fields(env: Env) -> tuple[dataclasses.Field, ...]:
    return dataclasses.fields(env) if dataclasses.is_dataclass(env) else ()


def _configure_env(env: Env, settings: dict[str, Any]) -> Env:
    origin = registry.describe(env)
    if origin is not None:
        return registry.make(origin[0], **origin[1] | settings)
    names = [f.name for f in _fields(env)]
    for name, value in settings.items():
        if name not in names:
            raise ConfigError(f"env.{name}", value, f"a setting of {env.spec.name}{nearest(name, names)}")
    return dataclasses.replace(env, **settings)


def build_run(algo: Algorithm, env: Env, config: RunConfig, outline: bool = False) -> Run:
    """One configuration as it is traced: the algorithm bound and checked, every number an array.

    outline: of experience only shapes, which is all that a plan needs; nothing of it is read but its layout.
    """
    check_types(algo, env)
    algo = algo.bind(env.spec)
    algo.check_env(env)
    if isinstance(env, HostEnv):
        check_host(env, algo, config)
    if algo.improves and config.sampling_groups > 1:
        argument, parts = ("mesh env", config.env_devices) if config.groups is None else ("groups", config.groups)
        reason = f"1: {algo.name} improves by its rollout as a whole, which is not divided among devices"
        raise ConfigError(argument, parts, f"{reason}; its seeds are: --mesh population=N")
    data = load_data(algo, config, outline) if config.experience is not None else None
    horizon, fraction = float(plan_grid(algo, config).horizon), config.experience_fraction
    placed = env.on_device(config.env_devices)
    if isinstance(env, HostEnv) and env.at_once(algo.num_envs) is not None:
        placed = dataclasses.replace(placed, in_any_order=True)
    run = Run(placed, algo, horizon, config.sampling_groups, config.unroll, data, fraction)
    run = tree.as_float32(run, np.asarray)
    try:
        jax.eval_shape(lambda run: (run.memory(), ())[1], run)  # refuses groups that something cannot be divided into
    except ConfigError as error:
        if config.groups is not None or config.env_devices == 1:
            raise
        raise ConfigError("mesh env", config.env_devices, error.valid) from None
    return run


def load_data(algo: Algorithm, config: RunConfig, outline: bool = False) -> Filled:
    """The experience of a run, checked: `algo` is bound. outline: its shapes (see `build_run`)."""
    if config.sampling_groups > 1:
        raise ConfigError("experience", config.experience, "None with groups or a mesh along env")
    if distributed.several():
        raise ConfigError("experience", config.experience, "None with several hosts")
    if config.experience_id not in (None, identity(config.experience)):
        raise ConfigError("experience", config.experience, "the folder as it was when the run began; it was written anew")
    if outline:
        data = outline_experience(config.experience, replay_of(algo), config.experience_fraction)
        check_spaces("experience", data, algo.spec)
        return data
    data = load_experience(config.experience, replay_of(algo), config.experience_fraction)
    check_data("experience", data, algo.spec)
    if config.offline:
        check_batch("batch_size", replay_of(algo).batch_size, data)
    return data


def check_host(env: HostEnv, algo: Algorithm, config: RunConfig) -> None:
    """ConfigError for what only environments on the device can do."""
    if config.env_devices > 1 or config.sampling_groups > 1:
        raise ConfigError("mesh", config.mesh, "None: the environments of this run are on the host")
    if config.selection:
        raise ConfigError("selection", config.selection.kind, "None: the environments are on the host, one member a run")
    if distributed.several():
        raise ConfigError("distributed", True, "False: the environments of this run are on the host, in one process")
    if algo.improves or algo.fresh_start:
        raise ConfigError("environment", env.spec.name, f"one on the device: {algo.name} needs whole rollouts in its program")
    if config.offline:
        raise ConfigError("experience_fraction", 1, "below 1: environments on the host are there to be stepped")
    if config.ahead and not algo.takes_older_rollouts:
        raise ConfigError("ahead", config.ahead, f"0: {algo.name} learns from its own rollouts; impala corrects for older ones")
    if config.actors_on == "ray" and importlib.util.find_spec("ray") is None:
        raise MissingExtraError("actors_on = 'ray'", "ray")
    if config.actors > algo.num_envs:
        raise ConfigError("actors", config.actors, f"at most num_envs = {algo.num_envs}")
    check_at_once(env, algo, config)


def in_turn(env: Env, config: RunConfig) -> bool:
    """Whether the seeds of a run train one after another: several of environments on the host."""
    return isinstance(env, HostEnv) and config.seeds > 1


def one_at_a_time(env: Env, config: RunConfig, member: int = 0) -> RunConfig:
    """The settings of what is trained at once: all seeds, or `member`'s where they train one after another."""
    if not in_turn(env, config):
        return config
    if config.selection:
        reason = "None: the environments are on the host, so members train one after another"
        raise ConfigError("selection", config.selection.kind, reason)
    return dataclasses.replace(config, seed=config.seed + member, seeds=1)


def spread_members(env: Env, config: RunConfig, size: int | None = None) -> None:
    """Ask for the devices of `size` members, of environments on the host for those of one."""
    spread(config, 1 if isinstance(env, HostEnv) else size)


def check_at_once(env: HostEnv, algo: Algorithm, config: RunConfig) -> None:
    """ConfigError where environments that are acted for as they come do not fit the actors."""
    sizes = sizes_of(algo.num_envs, config.actors)
    at_once = next((found for size in (algo.num_envs, *sizes) if (found := env.at_once(size)) is not None), None)
    if at_once is None:
        return
    if config.actors_on == "threads" and config.actors > 1:
        raise ConfigError("actors", config.actors, "1 with env.batch_size: environments already step while the policy runs")
    if not algo.takes_older_rollouts:
        raise ConfigError("env.batch_size", at_once, f"0: {algo.name} learns from its own rollouts, none begun earlier")
    for size in sizes:
        each = f"the {size} environments of an actor" if config.actors > 1 else f"num_envs = {size}"
        if size % at_once or size == at_once < algo.num_envs:
            raise ConfigError("env.batch_size", at_once, f"a divisor of {each} and less, or 0 for all at once")


def check_device(env: Env, config: RunConfig) -> None:
    """ConfigError for settings that only environments on the host have."""
    for field in dataclasses.fields(Host):
        value = getattr(config, field.name)
        if value != field.default and (field.name, value) != ("ahead", 0):  # as it is there anyway
            raise ConfigError(field.name, value, f"{field.default!r}: {env.spec.name} is on the device, not on the host")


def program_of(run: Run) -> tuple:
    """Equal for two configurations exactly where one compiled program serves both."""
    leaves, structure = jax.tree.flatten(run)
    return structure, tuple((np.shape(x), str(x.dtype)) for x in leaves)


def leaf_names(run: Run) -> list[str]:
    """`algo.learning_rate` and the like, in the order of the leaves."""
    key = lambda entry: str(getattr(entry, "name", getattr(entry, "key", getattr(entry, "idx", entry))))
    return [".".join(map(key, path)) for path, _ in jax.tree.leaves_with_path(run)]


def gather(algo: Algorithm, env: Env, config: RunConfig, always: Sequence[str] = (), outline: bool = False) -> Members:
    """The configurations of a population side by side.

    always: settings of the algorithm that get the member axis although all members begin with the same value.
    outline: see `build_run`.
    Raises ConfigError for a setting that needs a program of its own.
    """
    if not isinstance(env, HostEnv):
        check_device(env, config)
    elif config.configurations > 1:
        reason = "None: the environments are on the host, so members train one after another: `jf.sweep(grid=...)`"
        raise ConfigError("population", sorted(config.population), reason)
    config = one_at_a_time(env, config)
    runs = []
    for c in range(config.configurations):
        settings = config.settings_of(c * config.seeds)
        runs.append(build_run(*configure(algo, env, settings), config, outline))
        if c and program_of(runs[c]) != program_of(runs[0]):
            raise ConfigError("population", settings, f"settings that one program can hold; {_static(algo, env, config, c)}")
    names = leaf_names(runs[0])
    for name in always:
        if name not in names:
            traced = [n for n in names if n.startswith("algo.")]
            raise ConfigError("setting", name, f"one of the traced settings ({', '.join(traced)}){nearest(name, traced)}")
    columns = list(zip(*map(jax.tree.leaves, runs), strict=True))
    swept = [i for i, column in enumerate(columns) if names[i] in always or any(_differ(column[0], x) for x in column)]
    if config.members == 1:
        swept = []
    spread = lambda column: np.repeat(np.stack([np.asarray(x) for x in column]), config.seeds, axis=0)
    leaves = [spread(column) if i in swept else column[0] for i, column in enumerate(columns)]
    return Members(runs[0], jax.tree.unflatten(jax.tree.structure(runs[0]), leaves), tuple(swept))


def _differ(a: Any, b: Any) -> bool:
    return a is not b and not np.array_equal(np.asarray(a), np.asarray(b), equal_nan=np.asarray(a).dtype.kind == "f")


def _static(algo: Algorithm, env: Env, config: RunConfig, configuration: int) -> str:
    """Which of them is static."""
    base, own = config.settings_of(0), config.settings_of(configuration * config.seeds)
    first = program_of(build_run(*configure(algo, env, base), config, outline=True))
    for name, value in own.items():
        try:
            other = program_of(build_run(*configure(algo, env, base | {name: value}), config, outline=True))
        except ConfigError:
            continue
        if other != first:
            return f"{name} is part of the program, so `jf.sweep` trains its values as groups, one after another"
    return "these are of several programs, and `jf.sweep` trains such as groups, one after another"

