"""A checked run, made once and passed on; nothing is compiled or written here."""

from __future__ import annotations

import dataclasses
import functools
from collections.abc import Mapping, Sequence
from typing import Any, Unpack

from jaxrl_fast.algorithms.base import Algorithm
from jaxrl_fast.algorithms.presets import resolve_names
from jaxrl_fast.engine.config import RunConfig, run_config
from jaxrl_fast.engine.footprint import metric_names
from jaxrl_fast.engine.grid import Grid
from jaxrl_fast.engine.iteration import Run
from jaxrl_fast.engine.keywords import RunSettings
from jaxrl_fast.engine.members import (
    configurations,
    gather,
    one_at_a_time,
    spread_members,
    with_experience,
)
from jaxrl_fast.engine.memory_plan import MemoryPlan, memory_plan
from jaxrl_fast.engine.placement import check_switches, population_of
from jaxrl_fast.engine.population import Members, Population
from jaxrl_fast.envs.base import Environment
from jaxrl_fast.errors import ConfigError, nearest
from jaxrl_fast.logs.rows import FAULTS


@dataclasses.dataclass(frozen=True, eq=False, repr=False)
class Prepared:
    """A checked run. Members, grid, population and plan are one seed's, if seeds take turns."""

    algo: Algorithm  # as given; config.json holds it
    env: Environment
    config: RunConfig
    members: Members
    grid: Grid
    population: Population
    # keys of config.json beside the settings
    about: Mapping[str, Any] = dataclasses.field(default_factory=dict)
    # the content of config.json, for a run to write (`runs.description.add_content`)
    content: Mapping[str, Any] | None = None

    @functools.cached_property
    def bound(self) -> Algorithm:
        return self.algo.bind(self.env.spec)

    @functools.cached_property
    def plan(self) -> MemoryPlan:
        return memory_plan(self.members.first, self.grid, self.population,
                           one_at_a_time(self.env, self.config))

    def seed(self, member: int) -> Prepared:
        """Return the run of one seed, for seeds that take turns; only the seed differs."""
        return dataclasses.replace(self, config=one_at_a_time(self.env, self.config, member),
                                   content=None)

    def take(self, lanes: Sequence[int]) -> Prepared:
        if len(lanes) == self.population.size == self.config.members:
            return self
        size, same = len(lanes), len(lanes) == self.population.size
        population = self.population if same else population_of(self.config, size)
        return dataclasses.replace(self, members=self.members.take(lanes), population=population)


def prepare(
    algo: Algorithm, env: Environment, config: RunConfig, about: Mapping[str, Any] | None = None, *,
    size: int | None = None, outline: bool = False, built: Sequence[tuple[Run, Grid]] | None = None,
) -> Prepared:  # fmt: skip
    """Check a run and build its parts, on CPU devices for the members if JAX has not started.

    Args:
        about: more keys for config.json, such as the modules to import first ("imports").
        size: members to train at once; None: all. A resumed run may have dropped some.
        outline: read only the layout of experience, enough for a plan.
        built: configurations of `config.population`, if a sweep has built them already.

    Raises ConfigError for settings that do not fit each other, the environment or the devices.
    """
    check_switches()
    spread_members(env, config)
    at_once = one_at_a_time(env, config)
    traced = ()
    if at_once.selection:
        at_once.selection.check(at_once)
        traced = at_once.selection.traced
    runs, grid = (configurations(algo, env, at_once) if built is None
                  else ([run for run, _ in built], built[0][1]))
    members, population = gather(runs, at_once, traced), population_of(at_once, size)
    prepared = Prepared(algo, env, config, members, grid, population, about or {})
    if config.experience is None or outline:
        return prepared
    prepared.plan.check()  # there is room for the experience
    return dataclasses.replace(prepared,
                               members=gather(with_experience(runs, at_once), at_once, traced))


def check_metric(prepared: Prepared) -> None:
    """Raise ConfigError if a selection compares members by a metric that no log row will have."""
    metric = getattr(prepared.config.selection, "metric", "episode_return")
    if metric == "episode_return":
        return
    grid, population, config = prepared.grid, prepared.population, prepared.config
    found = metric_names(prepared.members.first, grid, population, config)
    found = [name for name in found if name != FAULTS] + ["eval_return"] * bool(grid.eval_rows)
    if metric not in found:
        raise ConfigError("selection.metric", metric,
                          f"a metric of the log ({', '.join(found)}){nearest(metric, found)}")


def plan(algo: Algorithm | str, env: Environment | str, total_steps: int | None = None,
         **settings: Unpack[RunSettings]) -> MemoryPlan:
    """Forecast the memory that `jf.train` needs with the same arguments.

    Print it, or read `need`, `have` and `remedies()`. Seeds of environments on the host take turns:
    the plan is one seed's.
    """
    algo, env, total_steps, settings, _ = resolve_names(algo, env, total_steps, settings)
    return prepare(algo, env, run_config(total_steps, settings, algo), outline=True).plan
