"""The settings of a run beside its algorithm and environment, and where its rows and evaluations fall."""

from __future__ import annotations

import dataclasses
import os
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

from jaxrl_fast.algorithms.base import Algorithm
from jaxrl_fast.errors import ConfigError, check_choice, check_float, check_int, check_seed

EVAL_EPISODES = 128  # by default; environments on the host play as many of them as fit the share
EVAL_SHARE, FEWEST_EPISODES = 1 / 8, 5  # steps of an evaluation, of those trained for it; episodes in any case
ROWS = 64  # log rows that fit a chunk; how many it really runs is an argument, so one program serves every chunk
IN_MEMORY = "<parameters in memory>"  # what config.json holds of a `start_from` that is no run directory
AHEAD = 16  # rows that an environment may be ahead of the slowest before it waits, where they are acted for as they come
SELECTS = ("kind", "traced", "check", "boundaries", "select")  # what a selection among members has


@dataclasses.dataclass(frozen=True)
class RunConfig:
    """The settings of a run beside its algorithm and environment. Step counts are environment steps of one member."""

    total_steps: int = 500_000
    seed: int = 0
    seeds: int = 1
    log_every: int | None = None  # None: a hundredth of the run
    eval_every: int | None = None  # None: a tenth of the run; 0: only at the end
    eval_episodes: int | None = None  # None: 128; on the host as many of them as fit an eighth of the steps
    eval_mode: str = "greedy"
    target_return: float | None = None  # stop when every member's evaluation has reached it
    checkpoint_minutes: float = 5.0
    keep_checkpoints: int = 2  # of each kind, the newest; a damaged one is passed over for the one before it
    chunk_seconds: float = 1.0
    horizon: int | None = None  # environment steps that schedules are fractions of; None: total_steps at the start
    batching: str = "auto"
    devices: int | None = None  # None: all that there are, at most one a member
    mesh: Mapping[str, int] | None = None  # {"population": 4, "env": 2}; None: all devices along the population
    groups: int | None = None  # parts of the environments that are sampled by themselves; None: as many as mesh["env"]
    population: Mapping[str, Sequence[Any]] | None = None  # settings that differ: {"algo.learning_rate": one a configuration}
    on_nan: str = "stop"  # or "mark": a member that is no longer finite has no values from there on
    unroll: int = 1  # steps of a rollout compiled in a row: seldom faster, and the compiler takes longer
    actors: int = 1  # environments on the host: in how many vectors, which take turns
    actors_on: str = "threads"  # of this process, or "ray": each a process of Ray's
    ahead: int | None = None  # rollouts that actors may be ahead of the learner; None: 1 where old ones are learned from
    host_timeout: float = 120.0  # seconds in which an environment on the host must answer
    restarts: int = 0  # how often environments on the host that fail are begun anew
    experience: str | None = None  # a folder of old experience, that is learned from too; kept as an absolute path
    experience_id: str | None = None  # which it was at the start; `train` fills it in
    experience_fraction: float = 0.5  # of a batch, drawn from it; 0: the replay starts with it; 1: nothing else is learned from
    start_from: str | None = None  # a run whose trained agent all members begin with; kept as an absolute path
    selection: Any = None  # jf.PBT or jf.Halving

    def __post_init__(self):
        check_int("total_steps", self.total_steps, 1, 2**53)
        check_seed("seed", self.seed)
        check_int("seeds", self.seeds, 1, 1_000_000)
        _check_population(self.population)
        check_int("members", self.members, 1, 1_000_000)
        if self.seed + self.seeds > 2**32:
            raise ConfigError("seed", self.seed, f"at most {2**32 - self.seeds} with seeds = {self.seeds}")
        for name in ("log_every", "horizon"):
            if getattr(self, name) is not None:
                check_int(name, getattr(self, name), 1, 2**53)
        if self.eval_every is not None:
            check_int("eval_every", self.eval_every, 0, 2**53)
        if self.eval_episodes is not None:
            check_int("eval_episodes", self.eval_episodes, 1, 1_000_000)
        check_choice("eval_mode", self.eval_mode, ("greedy", "sample"))
        check_choice("batching", self.batching, ("auto", "vmap", "map"))
        if self.devices is not None:
            check_int("devices", self.devices)
        _check_mesh(self.mesh)
        if self.groups is not None:
            check_int("groups", self.groups)
        if self.sampling_groups % self.env_devices:
            raise ConfigError("groups", self.groups, f"a multiple of mesh env = {self.env_devices}")
        check_choice("on_nan", self.on_nan, ("stop", "mark"))
        if self.target_return is not None:
            check_float("target_return", self.target_return)
            if self.eval_every == 0:
                raise ConfigError("target_return", self.target_return, "None where eval_every = 0: evaluations test it")
        check_int("unroll", self.unroll, 1, 1024)
        check_int("actors", self.actors)
        check_choice("actors_on", self.actors_on, ("threads", "ray"))
        if self.ahead is not None:
            check_int("ahead", self.ahead, 0, 8)
        check_float("host_timeout", self.host_timeout, 0, open_low=True)
        check_int("restarts", self.restarts, 0)
        check_float("experience_fraction", self.experience_fraction, 0, 1)
        if self.experience is not None:
            if not isinstance(self.experience, (str, Path)):
                raise ConfigError("experience", self.experience, "the name of a folder, or None")
            object.__setattr__(self, "experience", os.path.abspath(self.experience))
        elif self.experience_fraction != RunConfig.experience_fraction:
            raise ConfigError("experience_fraction", self.experience_fraction, "left out without experience")
        if not isinstance(self.experience_id, (str, type(None))):
            raise ConfigError("experience_id", self.experience_id, "the text that a run has written, or None")
        if self.start_from not in (None, IN_MEMORY):
            if not isinstance(self.start_from, (str, Path)):
                raise ConfigError("start_from", type(self.start_from).__name__, "a run directory, or None")
            object.__setattr__(self, "start_from", os.path.abspath(self.start_from))
        check_float("checkpoint_minutes", self.checkpoint_minutes, 0, open_low=True)
        check_float("chunk_seconds", self.chunk_seconds, 0, open_low=True)
        check_int("keep_checkpoints", self.keep_checkpoints, 1, 1000)
        if self.selection is not None and not all(hasattr(self.selection, name) for name in SELECTS):
            raise ConfigError("selection", self.selection, "a jf.PBT or jf.Halving, or None")

    def settings(self) -> dict[str, Any]:
        """Return {name: value} of every setting, objects as they are: what `train` takes."""
        return {f.name: getattr(self, f.name) for f in dataclasses.fields(self)}

    @property
    def most_episodes(self) -> int:
        """Episodes of an evaluation, at most."""
        return EVAL_EPISODES if self.eval_episodes is None else self.eval_episodes

    @property
    def env_devices(self) -> int:
        """Devices that one member is divided over."""
        return (self.mesh or {}).get("env", 1)

    @property
    def sampling_groups(self) -> int:
        return self.env_devices if self.groups is None else self.groups

    @property
    def offline(self) -> bool:
        """Whether no environment is stepped but for evaluations; steps are updates then."""
        return self.experience is not None and self.experience_fraction == 1

    @property
    def configurations(self) -> int:
        """How many different settings there are among the members; each has `seeds` members."""
        return len(next(iter(self.population.values()))) if self.population else 1

    @property
    def members(self) -> int:
        return self.configurations * self.seeds

    def member_seeds(self) -> list[int]:
        """The seed of every member: configuration by configuration, each with the same seeds."""
        return [self.seed + i % self.seeds for i in range(self.members)]

    def settings_of(self, member: int) -> dict[str, Any]:
        """What this member has for itself; empty where all are the same but for their seeds."""
        return {name: values[member // self.seeds] for name, values in (self.population or {}).items()}

    def member_settings(self) -> dict[str, list[Any]]:
        """{setting: one value a member}."""
        return {name: [v for v in values for _ in range(self.seeds)] for name, values in (self.population or {}).items()}

    def label(self, member: int) -> str:
        """`seed 3, algo.learning_rate = 0.001`."""
        own = [f"{name} = {value:g}" if isinstance(value, float) else f"{name} = {value}"
               for name, value in self.settings_of(member).items()]  # fmt: skip
        return ", ".join([f"seed {self.member_seeds()[member]}", *own])


def _check_mesh(mesh: Any) -> None:
    if mesh is None:
        return
    if not isinstance(mesh, Mapping) or not mesh or not set(mesh) <= {"population", "env"}:
        raise ConfigError("mesh", mesh, 'axes "population" and "env", such as {"population": 4, "env": 2}')
    for name, size in mesh.items():
        check_int(f"mesh {name}", size)


def _check_population(population: Any) -> None:
    if population is None:
        return
    valid = 'a mapping such as {"algo.learning_rate": [1e-4, 1e-3]}, as many values for each setting, at least one'
    if not isinstance(population, Mapping) or not population or not all(isinstance(k, str) for k in population):
        raise ConfigError("population", population, valid)
    lengths = {len(v) if isinstance(v, (list, tuple)) else 0 for v in population.values()}
    if len(lengths) != 1 or 0 in lengths:
        raise ConfigError("population", dict(population), valid)


def run_config(total_steps: int, settings: dict[str, Any]) -> RunConfig:
    """Make a RunConfig of keyword settings. Raises ConfigError for an unknown name and lists the valid ones."""
    known = {f.name for f in dataclasses.fields(RunConfig)}
    for name, value in settings.items():
        if name not in known:
            raise ConfigError(name, value, f"a setting of train: {', '.join(sorted(known))}")
    if not isinstance(settings.get("start_from"), (str, Path, type(None))):
        settings = settings | {"start_from": IN_MEMORY}
    population = settings.get("population")
    if isinstance(population, Mapping):  # arrays may come as arrays
        settings = settings | {"population": {k: _column(k, v) for k, v in population.items()}}
    return RunConfig(total_steps=total_steps, **settings)


def _column(name: str, values: Any) -> Any:
    """Values of a setting as config.json can hold them."""
    if hasattr(values, "tolist"):
        return values.tolist()
    if not isinstance(values, (list, tuple)) or not any(map(callable, values)):
        return values
    from jaxrl_fast.ops.optimizer_settings import as_text  # here, because optax is slow to import

    return [as_text(name, v) for v in values]


@dataclasses.dataclass(frozen=True)
class Grid:
    """Where rows, evaluations and the end fall, in iterations: fixed by the settings, never by the chunk.

    Row 0 is the warm-up, if there is one; row r covers `row` iterations from warmup + r * row.
    """

    steps: int  # environment steps of an iteration; offline its updates
    warmup: int  # iterations
    row: int  # iterations of a log row
    rows: int  # log rows, the warm-up's not counted
    eval_rows: int  # rows between evaluations; 0: never before the end
    horizon: int  # iterations

    @property
    def planned_rows(self) -> int:
        """Log rows of the horizon: of the whole run, where this is a part of it."""
        return max(1, -(-(self.horizon - self.warmup) // self.row))

    def env_steps(self, rows: int) -> int:
        return (self.warmup + rows * self.row) * self.steps


def plan_grid(algo: Algorithm, config: RunConfig) -> Grid:
    """Whole rows that cover `total_steps`: the run is rounded up to them, by at most one row."""
    steps, warmup = (algo.updates, 0) if config.offline else (algo.steps_per_iteration, algo.warmup_iterations)
    total = -(-config.total_steps // steps)
    if warmup >= total:
        raise ConfigError(
            "total_steps", config.total_steps,
            f"more than the {warmup * steps:,} steps of random actions at the start (algo.learning_starts)",
        )  # fmt: skip
    horizon = max(-(-(config.horizon or config.total_steps) // steps), warmup + 1)
    planned = horizon - warmup  # the grid follows the horizon, so a longer or resumed run has the same rows
    row = max(1, planned // 100 if config.log_every is None else min(config.log_every // steps, planned))
    rows = max(1, -(-(total - warmup) // row))
    per_eval = max(1, planned // row // 10) if config.eval_every is None else -(-config.eval_every // (row * steps))
    iterations = warmup + rows * row
    counted = {"updates": algo.updates} | ({} if config.offline else {"the rows of an environment": algo.num_steps})
    what, most = max(counted.items(), key=lambda item: item[1])
    if iterations * max(most, 1) >= 2**31:
        limit = (2**31 // max(most, 1)) * steps
        raise ConfigError("total_steps", config.total_steps, f"at most {limit:,} with these settings: {what} are int32")
    return Grid(steps, warmup, row, rows, per_eval, horizon)


def host_episodes(config: RunConfig, grid: Grid, rows: int, length: float | None) -> int:
    """Episodes of an evaluation on the host after `rows` rows; fixed beforehand, so that short ones count no more often.

    By default those of `length` steps that fit `EVAL_SHARE` of the steps since the evaluation before, at the end of the
    run of all its steps. Steps, not seconds: the same run twice plays as many.
    """
    if config.eval_episodes is not None:
        return config.eval_episodes
    between = grid.eval_rows and rows % grid.eval_rows == 0 and rows < grid.rows
    steps = grid.env_steps(grid.eval_rows) - grid.env_steps(0) if between else grid.env_steps(rows)
    fitting = int(EVAL_SHARE * steps / length) if length else 0
    return min(max(fitting, FEWEST_EPISODES), EVAL_EPISODES)


def sizes_of(num_envs: int, groups: int) -> list[int]:
    """How many environments each of the groups of actors has."""
    return [num_envs // groups + (i < num_envs % groups) for i in range(groups)]


def ahead_of(config: RunConfig, algo: Algorithm) -> int:
    """How many rollouts the actors may be ahead: by default one where old experience is learned from anyway."""
    return config.ahead if config.ahead is not None else int(algo.off_policy)


def ring_rows(num_steps: int) -> int:
    """Rows of the ring for environments that are acted for as they come: whole rollouts, and what may be ahead of them."""
    return num_steps * -(-(num_steps + 2 * AHEAD) // num_steps)
