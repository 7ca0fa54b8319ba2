"""The configurations of a sweep: grid points times draws, and their checks."""

from __future__ import annotations

import itertools
import json
from collections.abc import Mapping, Sequence
from typing import Any

import numpy as np

from jaxrl_fast.algorithms.base import Algorithm
from jaxrl_fast.algorithms.build import algorithm_settings
from jaxrl_fast.engine.config import RunConfig
from jaxrl_fast.engine.members import build_run, configure, program_of, setting_names
from jaxrl_fast.envs.base import Environment
from jaxrl_fast.errors import ConfigError, check_int, nearest
from jaxrl_fast.ops.optimizer_settings import as_text
from jaxrl_fast.sweeps.samplers import sampler_of

Settings = dict[str, Any]


def as_python(value: Any) -> Any:
    return value.item() if isinstance(value, np.generic) else value


def grid_of(grid: Mapping[str, Sequence[Any]]) -> list[Settings]:
    """Return every combination of the values; the last setting changes fastest."""
    for name, values in grid.items():
        listed = isinstance(values, Sequence | np.ndarray) and not isinstance(values, (str, bytes))
        if not listed or not len(values):
            raise ConfigError(f"grid {name}", values, "a list of at least one value")
        if len({repr(as_python(v)) for v in values}) < len(values):
            raise ConfigError(f"grid {name}", list(values), "values that differ")
    values = [v.tolist() if isinstance(v, np.ndarray) else [as_python(x) for x in v]
              for v in grid.values()]
    values = [[as_text(f"grid {name}", x) for x in column]
              for name, column in zip(grid, values, strict=True)]
    for name, column in zip(grid, values, strict=True):
        for value in column:
            _check_json(f"grid {name}", value)
    return [dict(zip(grid, combination, strict=True)) for combination in itertools.product(*values)]


def _check_json(name: str, value: Any) -> None:
    """Raise ConfigError for a value that sweep.json cannot hold."""
    try:
        json.dumps(value)
    except (TypeError, ValueError) as error:
        raise ConfigError(name, value, "values that sweep.json can hold, such as numbers, texts "
                                       f"and tuples; {error}") from error


def samples_of(sample: Mapping[str, str], members: int, seed: int) -> list[Settings]:
    """Return `members` draws; a setting's draws do not depend on the other settings."""
    check_int("members", members, 1, 1_000_000)
    columns = {}
    for name, text in sample.items():
        rng = np.random.default_rng([seed, *name.encode()])
        columns[name] = sampler_of(name, text).draw(rng, members)
    return [{name: column[i] for name, column in columns.items()} for i in range(members)]


def configurations_of(
    grid: Mapping[str, Sequence[Any]] | None, sample: Mapping[str, str] | None,
    members: int | None, seed: int
) -> list[Settings]:
    """Return the settings of every configuration: each grid point with each draw."""
    both = sorted(set(grid or ()) & set(sample or ()))
    if both:
        raise ConfigError("sample", both[0], "a setting that is not in the grid too")
    if sample and members is None:
        raise ConfigError("members", None, "the number of settings to draw: settings are sampled")
    if members is not None and not sample:
        raise ConfigError("members", members,
                          "None without settings to sample: a grid has one member a point")
    drawn = samples_of(sample, members, seed) if sample else [{}]
    return [point | draw for point in grid_of(grid or {}) for draw in drawn]


def check_names(algo: Algorithm, env: Environment, grid: Mapping[str, Any],
                sample: Mapping[str, str], config: RunConfig) -> None:
    """Raise ConfigError for unknown settings, and for continuous samplers of static ones."""
    known = setting_names(algo, env)
    for name in (*grid, *sample):
        if name not in known:
            raise ConfigError("setting", name,
                              f"a setting of {algo.name} or {env.spec.name}{nearest(name, known)}")
    fields = {f"algo.{field}": value for field, value in algorithm_settings(algo).items()}
    static = "integer:LOW,HIGH or choice:A,B,...: each value of this setting is another program"
    for name, text in sample.items():
        sampler = sampler_of(name, text)
        if not sampler.continuous:
            continue
        if name in fields and not (isinstance(fields[name], float) or callable(fields[name])):
            raise ConfigError(name, text, static)
        at = lambda u, name=name, sampler=sampler: configure(algo, env, {name: sampler.at(u)})
        here, there = (program_of(build_run(*at(u), config, True)) for u in (0.0, 1.0))
        if here != there:
            raise ConfigError(name, text, static)
