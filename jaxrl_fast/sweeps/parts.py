"""A sweep, its parts, which train at once, and its sweep.json."""

from __future__ import annotations

import contextlib
import dataclasses
import functools
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

import numpy as np

from jaxrl_fast import imports
from jaxrl_fast.algorithms.base import Algorithm
from jaxrl_fast.engine.backend import backend_of
from jaxrl_fast.engine.config import RunConfig
from jaxrl_fast.engine.grid import Grid, plan_grid
from jaxrl_fast.engine.iteration import Run
from jaxrl_fast.engine.members import build, configure, program_of, with_experience
from jaxrl_fast.engine.memory_plan import memory_plan
from jaxrl_fast.engine.placement import population_of
from jaxrl_fast.envs.base import Environment
from jaxrl_fast.errors import ConfigError, check_int
from jaxrl_fast.files import forms
from jaxrl_fast.runs import config_json as configs
from jaxrl_fast.runs.description import describe
from jaxrl_fast.runs.start_from import start_of
from jaxrl_fast.sweeps.configurations import Settings

FORMAT = 1  # of sweep.json


@dataclasses.dataclass(frozen=True, eq=False)
class Sweep:
    """A sweep's base, configurations and seeds."""

    algo: Algorithm  # the base of every configuration
    env: Environment
    config: RunConfig
    about: Mapping[str, Any]  # keys of config.json beside the settings
    configurations: Sequence[Settings]  # the settings of each
    hooks: Sequence[Any] = ()  # of every run, as in `jf.train`
    _built: dict[int, tuple[Run, Grid]] = dataclasses.field(
        default_factory=dict, init=False, repr=False
    )

    @property
    def grid(self) -> Grid:
        """Return the grid of the base's rows."""
        return plan_grid(self.algo.bind(self.env.spec), self.config)

    @functools.cached_property
    def base(self) -> dict[str, Any]:
        """Return the config.json of the base; raises ConfigError for a setting it cannot hold."""
        return describe(self)

    def built(self, configuration: int) -> tuple[Run, Grid]:
        """Build a configuration with the outline of its experience, once; raises ConfigError."""
        if configuration not in self._built:
            algo, env = configure(self.algo, self.env, self.configurations[configuration])
            self._built[configuration] = build(algo, env, self.config, outline=True)
        return self._built[configuration]


@dataclasses.dataclass(frozen=True)
class Part:
    """Configurations (indices into the sweep's) that train at once, each with some seeds."""

    configurations: tuple[int, ...]
    seed: int
    seeds: int


def split(sweep: Sweep, wave: int | None = None, first: int = 0) -> list[Part]:
    """Cut a sweep into groups by program, and those into as few equal waves as fit.

    wave: members of a wave at most.  first: the configuration to start with. Raises ConfigError for
    a refused setting, and if not even one member fits.
    """
    if wave is not None:
        check_int("wave", wave, 1, 1_000_000)
    config, groups = sweep.config, {}
    for i in range(first, len(sweep.configurations)):
        groups.setdefault(program_of(sweep.built(i)[0]), []).append(i)
    parts = []
    for members in groups.values():
        size = len(members) * config.seeds
        plan = memory_plan(*sweep.built(members[0]), population_of(config, size),
                           dataclasses.replace(config, seeds=size))
        most = min(plan.most_members, (wave or size) if backend_of(sweep.env).one_program else 1)
        if not most:
            plan.of_size(1).check()
        if most >= config.seeds:
            waves = -(-len(members) // (most // config.seeds))
            parts += [Part(tuple(map(int, w)), config.seed, config.seeds)
                      for w in np.array_split(members, waves)]
        else:
            edges = np.array_split(np.arange(config.seeds), -(-config.seeds // most))
            parts += [Part((m,), config.seed + int(e[0]), len(e)) for m in members for e in edges]
    for members in groups.values():
        if config.experience is not None:
            # there is room for it: what it holds is checked
            with_experience([sweep.built(i)[0] for i in members], config)
        start_of(config, None, sweep.built(members[0])[0].algo)  # raises if it does not fit
    return parts


def read_json(file: Path) -> dict[str, Any]:
    """Return sweep.json, checked."""
    remedy = "Each part below parts/ is a run directory that can be read by itself"
    content = forms.read_json(file, "sweep", "a sweep.json of jaxrl_fast", forms.SWEEP, remedy)
    if content["format"] != FORMAT:
        raise ConfigError("sweep", str(file), f"a sweep.json of format {FORMAT}")
    run = content["base"]["run"]
    if not (0 <= run["seed"] < 2**32 and 1 <= run["seeds"] <= 1_000_000):
        raise ConfigError("sweep", str(file),
                          "one with seed from 0 to 4294967295 and seeds from 1 to 1000000")
    count = len(content["configurations"])
    if len({tuple(sorted(c)) for c in content["configurations"]}) > 1:
        raise ConfigError("sweep", str(file), "one whose configurations have the same settings")
    for index, part in enumerate(content["parts"]):
        if not part["configurations"] or not all(0 <= c < count for c in part["configurations"]):
            raise ConfigError("sweep", str(file),
                              f"one whose part {index} has some of its {count} configurations")
        own = range(run["seed"], run["seed"] + run["seeds"])
        if part["seed"] not in own or part["seeds"] < 1 or part["seed"] + part["seeds"] > own.stop:
            raise ConfigError("sweep", str(file), f"one whose part {index} has seeds of the sweep, "
                                                  f"{own.start} to {own.stop - 1}")
    return content


def read_folder(path: str | Path, argument: str = "--resume") -> dict[str, Any]:
    """Return the sweep.json of a folder to resume; argument: its name in errors."""
    file = Path(path) / "sweep.json"
    if not file.is_file():
        raise ConfigError(argument, str(path), "the folder of a sweep, with its sweep.json")
    return read_json(file)


def decode_base(
    content: dict[str, Any], modules: Sequence[str] = (), folder: Path | None = None
) -> tuple[Algorithm, Environment, RunConfig, dict[str, Any]]:  # fmt: skip
    """Return the base: algorithm, environment, run, and the other keys of its config.json."""
    base = content["base"]
    for module in modules:
        imports.import_user_module(module)
    with configs.within(folder / "sweep.json") if folder else contextlib.nullcontext():
        found = configs.decode(base, folder)
    return *found, {k: base[k] for k in ("preset", "imports") if k in base}


def part_folder(out: Path, index: int) -> Path:
    return out / "parts" / f"{index:02d}"
