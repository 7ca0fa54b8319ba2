"""A run that is checked and can begin: what `train`, `resume`, `plan` and the command line make once and hand on.

Nothing is compiled, and nothing written. What writes a run directory takes a `Prepared`, so a run that is refused leaves
nothing behind.
"""

from __future__ import annotations

import dataclasses
import functools
from collections.abc import Mapping, Sequence
from typing import Any

from jaxrl_fast.algorithms.base import Algorithm
from jaxrl_fast.engine.config import RunConfig, run_config
from jaxrl_fast.engine.grid import Grid
from jaxrl_fast.engine.iteration import Run
from jaxrl_fast.engine.members import configurations, gather, one_at_a_time, spread_members, with_experience
from jaxrl_fast.engine.memory_plan import MemoryPlan, memory_plan
from jaxrl_fast.engine.population import Members, Population, population_of
from jaxrl_fast.envs.base import Environment


@dataclasses.dataclass(frozen=True, eq=False, repr=False)
class Prepared:
    """A run whose settings fit each other, its environment and the devices. `prepare` makes it.

    Members, grid, population and plan are those of what is trained at once: of seeds that train one after another one.
    """

    algo: Algorithm  # as it was given, which is what config.json holds
    env: Environment
    config: RunConfig
    members: Members
    grid: Grid
    population: Population
    about: Mapping[str, Any] = dataclasses.field(default_factory=dict)  # keys of config.json beside the settings
    content: Mapping[str, Any] | None = None  # of config.json, where the run is to be written (`runs.rundir.described`)

    @functools.cached_property
    def bound(self) -> Algorithm:
        """The algorithm bound to the environment."""
        return self.algo.bind(self.env.spec)

    @functools.cached_property
    def plan(self) -> MemoryPlan:
        """The forecast of bytes, made when it is first asked for."""
        return memory_plan(self.members.first, self.grid, self.population, one_at_a_time(self.env, self.config))

    def seed(self, member: int) -> Prepared:
        """Return the run of one seed, where seeds train one after another: they differ in nothing else."""
        return dataclasses.replace(self, config=one_at_a_time(self.env, self.config, member), content=None)

    def take(self, lanes: Sequence[int]) -> Prepared:
        """Return the run in which only these members are trained."""
        if len(lanes) == self.population.size == self.config.members:
            return self
        size, same = len(lanes), len(lanes) == self.population.size
        population = self.population if same else population_of(self.config, size)
        return dataclasses.replace(self, members=self.members.take(lanes), population=population)


def prepare(
    algo: Algorithm, env: Environment, config: RunConfig, about: Mapping[str, Any] | None = None, *,
    size: int | None = None, outline: bool = False, built: Sequence[tuple[Run, Grid]] | None = None,
) -> Prepared:  # fmt: skip
    """Check a run, and build once what it is trained with.

    CPU devices for its members are asked for, where JAX's backend has not started yet.

    Args:
        algo: settings of the algorithm, bound to an environment or not.
        env: the environment.
        config: all other settings.
        about: more keys for config.json, such as the modules to import first ("imports").
        size: members that are trained at once; by default all of them. A resumed run may have dropped some.
        outline: leave experience unread but for its layout; enough for a plan.
        built: the configurations of `config.population`, where a sweep has built them to tell which ones are one program.

    Raises:
        ConfigError: settings do not fit each other, the environment or the devices, or experience does not fit the memory.
    """
    spread_members(env, config)
    at_once = one_at_a_time(env, config)
    traced = ()
    if at_once.selection:
        at_once.selection.check(at_once)
        traced = at_once.selection.traced
    runs, grid = configurations(algo, env, at_once) if built is None else ([run for run, _ in built], built[0][1])
    members, population = gather(runs, at_once, traced), population_of(at_once, size)
    prepared = Prepared(algo, env, config, members, grid, population, about or {})
    if config.experience is None or outline:
        return prepared
    prepared.plan.check()  # there is room for it
    return dataclasses.replace(prepared, members=gather(with_experience(runs, at_once), at_once, traced))


def plan(algo: Algorithm, env: Environment, total_steps: int = 500_000, **settings: Any) -> MemoryPlan:
    """Forecast what `jf.train` with the same arguments takes of the memory.

    Print it, or read `need`, `have` and `remedies()`.

    Seeds of environments on the host train one after another: the plan is that of one.
    """
    return prepare(algo, env, run_config(total_steps, settings), outline=True).plan
