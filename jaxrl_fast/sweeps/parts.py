"""Cut a sweep into parts that train at once: by program, and by device memory."""

from __future__ import annotations

import dataclasses
import functools
from collections.abc import Mapping, Sequence
from typing import Any

import numpy as np

from jaxrl_fast.algorithms.base import Algorithm
from jaxrl_fast.engine.backend import backend_of
from jaxrl_fast.engine.config import RunConfig
from jaxrl_fast.engine.grid import Grid, plan_grid
from jaxrl_fast.engine.iteration import Run
from jaxrl_fast.engine.members import build, configure, program_of, with_experience
from jaxrl_fast.engine.memory_plan import memory_plan
from jaxrl_fast.engine.population import population_of
from jaxrl_fast.envs.base import Environment
from jaxrl_fast.errors import check_int
from jaxrl_fast.runs.rundir import describe
from jaxrl_fast.runs.start_from import given_by
from jaxrl_fast.sweeps.configurations import Settings


@dataclasses.dataclass(frozen=True, eq=False)
class Sweep:
    """A sweep's base, configurations and seeds."""

    algo: Algorithm  # the base of every configuration
    env: Environment
    config: RunConfig
    about: Mapping[str, Any]  # keys of config.json beside the settings
    configurations: Sequence[Settings]  # the settings of each
    hooks: Sequence[Any] = ()  # of every run, as in `jf.train`
    _built: dict[int, tuple[Run, Grid]] = dataclasses.field(default_factory=dict, init=False, repr=False)

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
        plan = memory_plan(*sweep.built(members[0]), population_of(config, size), dataclasses.replace(config, seeds=size))
        most = min(plan.most_members, (wave or size) if backend_of(sweep.env).one_program else 1)
        if not most:
            plan.of_size(1).check()
        if most >= config.seeds:
            waves = -(-len(members) // (most // config.seeds))
            parts += [Part(tuple(map(int, w)), config.seed, config.seeds) for w in np.array_split(members, waves)]
        else:
            edges = np.array_split(np.arange(config.seeds), -(-config.seeds // most))
            parts += [Part((m,), config.seed + int(e[0]), len(e)) for m in members for e in edges]
    for members in groups.values():
        if config.experience is not None:
            with_experience([sweep.built(i)[0] for i in members], config)  # there is room for it: what it holds is checked
        given_by(config, None, sweep.built(members[0])[0].algo)  # raises if it does not fit
    return parts
