"""A run in progress: what the host knows of it, and its rows, evaluations and checkpoints."""

from __future__ import annotations

import dataclasses
import math
from collections.abc import Callable, Sequence
from typing import Any

import jax
import numpy as np

from jaxrl_fast import distributed, tree
from jaxrl_fast.algorithms.base import Algorithm
from jaxrl_fast.engine.config import RunConfig
from jaxrl_fast.engine.grid import Grid
from jaxrl_fast.engine.members import configure, leaf_names
from jaxrl_fast.engine.population import Members, Population
from jaxrl_fast.engine.prepared import Prepared
from jaxrl_fast.engine.programs import Programs
from jaxrl_fast.envs import registry
from jaxrl_fast.envs.base import Environment
from jaxrl_fast.errors import ConfigError
from jaxrl_fast.logs.rows import Row, curve, table
from jaxrl_fast.logs.sinks import Sink
from jaxrl_fast.logs.walltime import TRAIN
from jaxrl_fast.runs.agent import Agent
from jaxrl_fast.runs.rundir import RunDir
from jaxrl_fast.runs.sanity import Sanity
from jaxrl_fast.runs.signals import run_so_far


@dataclasses.dataclass(repr=False)
class Session:
    """A run in progress, and what `train` returns when it has ended.

    `state` is the RunState on the device, leaves [lanes, ...] (no such axis for one). It is donated to the next
    chunk: a hook that wants to keep any of it must copy. `rows` counts log rows that are done, `history` holds them.
    `lanes` names the member that each lane of the program trains: all of them, unless some were dropped.
    """

    prepared: Prepared
    lanes: np.ndarray  # int [population.size]
    programs: Programs
    out: RunDir | None
    sinks: Sequence[Sink]
    hooks: Sequence[Callable[[Session, list[Row]], None]]
    state: Any = None
    rows: int = 0
    wall_seconds: float = 0.0
    earlier: dict[str, float] = dataclasses.field(default_factory=dict)  # seconds by activity before this process
    row_seconds: float = 0.0  # of training so far, of a row that was ended early
    train_seconds: float = 0.0  # of the rows; the start of environments on the host left out
    train_steps: int = 0  # environment steps of all members in `train_seconds`
    best_score: float = -math.inf  # the mean over the members
    best_scores: np.ndarray | None = None  # of each of them
    best_rows: int = -1
    best_agent: Any = None  # until it is saved
    best_lanes: dict[str, Any] = dataclasses.field(default_factory=dict)
    reached: list[Any] = dataclasses.field(default_factory=list)
    selection: Any = None
    settings: dict[str, np.ndarray] = dataclasses.field(default_factory=dict)  # float32 [members], which selection changes
    lost: dict[int, dict[str, Any]] = dataclasses.field(default_factory=dict)  # members that went NaN, and where
    history: list[Row] = dataclasses.field(default_factory=list)
    eval_return: np.ndarray | None = None
    episodes: int | None = None  # of the last evaluation, where its number was not the settings'
    stop_requested: bool = False
    given: Any = None  # parameters to begin with, until the run has begun
    said: bool = False  # that evaluations play fewer episodes
    saved: int | None = None  # iterations of the newest checkpoint
    checkpoint: int | None = None  # number of the one that a resumed run begins with
    go_on: Callable[..., Session] | None = dataclasses.field(default=None, repr=False)  # after an interruption
    sanity: Sanity = dataclasses.field(init=False, repr=False)

    def __post_init__(self):
        self.sanity = Sanity(self.config.members)

    def __repr__(self) -> str:
        members, seeds = self.config.members, self.config.member_seeds()
        which = f"seed {seeds[0]}" if members == 1 else f"{members} members, seeds {seeds[0]} to {seeds[-1]}"
        lost = f", {len(self.lost)} of them lost" if self.lost else ""
        known = self.eval_return is not None and np.isfinite(self.eval_return).any()
        final = f"mean return {np.nanmean(self.eval_return):,.4g} at the end" if known else "not evaluated at the end"
        best = f", best {self.best_score:,.4g}" if math.isfinite(self.best_score) else ""
        place = f"in {self.out.path}" if self.out else "in memory"
        return (
            f"<Run: {self.algo.name} on {registry.name_of(self.env)}, {which}{lost}>\n"
            f"  {self.env_steps:,} of {self.grid.env_steps(self.grid.rows):,} steps; {final}{best}\n"
            f"  {self.steps_per_second:,.0f} steps/s, {self.wall_seconds:.1f} s; {place}"
        )

    @property
    def algo(self) -> Algorithm:
        """The algorithm, bound to the environment."""
        return self.prepared.bound

    @property
    def env(self) -> Environment:
        return self.prepared.env

    @property
    def config(self) -> RunConfig:
        return self.prepared.config

    @property
    def grid(self) -> Grid:
        return self.prepared.grid

    @property
    def members(self) -> Members:
        """All of them, those without a lane too."""
        return self.prepared.members

    @property
    def population(self) -> Population:
        """Where the members live that have a lane."""
        return self.programs.population

    @property
    def env_steps(self) -> int:
        """Environment steps of one member so far, in whole rows."""
        return self.grid.env_steps(self.rows)

    @property
    def iterations(self) -> int:
        """Those that are done, warm-up included, and a part of a row."""
        part = self.programs.part
        return part.iterations if part else self.grid.warmup + self.rows * self.grid.row

    @property
    def steps_per_second(self) -> float:
        """Environment steps of all members in a second of training: the rows' steps over the rows' seconds."""
        return self.train_steps / self.train_seconds if self.train_seconds else 0.0

    @property
    def seconds(self) -> dict[str, float]:
        """The wall-clock time by what it went to: compile (and start), train, evaluate, write."""
        found = {name: self.earlier.get(name, 0.0) for name in ("compile", "train", "evaluate", "write")}
        for name, spent in self.programs.clock.seconds().items():
            found["train" if name in TRAIN else name] += spent
        return found

    @property
    def eval_episodes(self) -> int:
        """Episodes of the last evaluation; on the host there may be fewer than the settings allow."""
        return self.episodes or self.config.most_episodes

    @property
    def over(self) -> bool:
        """Whether there is nothing left to train."""
        at_target = self.config.target_return is not None and all(self.reached[i] for i in self.live)
        return self.rows >= self.grid.rows or self.stop_requested or at_target

    @property
    def live(self) -> list[int]:
        """Members that are still trained, and finite."""
        return [int(i) for i in self.lanes if int(i) not in self.lost]

    def who(self) -> dict[str, Any]:
        """For a checkpoint: the member of each of its lanes, and those that were lost."""
        return {"lanes": self.lanes, "lost": [{"member": member, **where} for member, where in self.lost.items()],
                "settings": self.settings}  # fmt: skip

    def by_member(self, values: Any, fill: float = 0) -> Any:
        """NumPy arrays [lanes] as [members]; `fill` where a member has no lane."""
        if len(self.lanes) == self.config.members:
            return values

        def spread(x):
            whole = np.full((self.config.members, *x.shape[1:]), fill, x.dtype)
            whole[self.lanes] = x
            return whole

        return jax.tree.map(spread, values)

    def setup(self, member: int = 0) -> tuple[Algorithm, Environment]:
        """The settings of one member: its algorithm, bound, and its environment."""
        chosen = {name: float(values[member]) for name, values in self.settings.items()}
        algo, env = configure(self.algo, self.env, self.config.settings_of(member) | chosen)
        return algo.bind(env.spec), env

    def exploit(self, parent: np.ndarray, settings: dict[str, np.ndarray]) -> None:
        """Every member goes on with the agent of `parent` [members] and with these settings [members].

        One that was lost takes the environments and the replay of its parent too: its own hold what broke it.
        """
        lost = np.isin(self.lanes, list(self.lost)) & (parent != self.lanes)
        self.state = self.programs.move(self.state, parent, lost)
        self.lost = {member: where for member, where in self.lost.items() if not lost[member]}
        self.settings = settings
        for name, values in settings.items():
            self.programs.change(leaf_names(self.members.first).index(name), values)

    def shrink(self, members: Sequence[int]) -> None:
        """Train only these members from here on, in a program of their number."""
        at = [int(np.flatnonzero(self.lanes == i)[0]) for i in members]
        state = jax.jit(tree.take)(self.state, at[0] if len(at) == 1 else np.asarray(at))
        clock = self.programs.clock
        self.lanes = np.asarray(members, np.int64)
        self.programs = Programs(self.prepared.take(self.lanes))
        self.programs.clock = clock
        with clock.during("compile"):
            self.programs.compile(self.root_keys())
        self.state = self.programs.padded(state)

    def root_keys(self) -> jax.Array:
        """The key of every lane: that of a single run with its member's seed."""
        return root_keys(self.config, self.population, self.lanes)

    def resume(self, sinks: Sequence[Sink] = ()) -> Session:
        """Go on with a run that was interrupted, bit for bit as if it had never stopped; returns this session when it has ended.

        sinks: of your own; those that the run had were closed when it was interrupted.
        Raises ConfigError for a run that has ended, or failed.
        """
        if self.go_on is None:
            raise ConfigError("run", "over", "one that was interrupted; `jf.resume` gives a run directory a new end")
        return run_so_far(lambda: self.go_on(sinks))

    def stop(self) -> None:
        """For hooks: end the run after this chunk."""
        self.stop_requested = True

    def agent(self, member: int | None = None) -> Agent:
        """The agent of one member as it is now, which later training leaves alone; with several processes all of them call it.

        member: None takes the one that evaluated best at the end, the first before that.
        """
        if member is None:
            known = self.eval_return is not None
            member = int(np.argmax(np.nan_to_num(self.eval_return, nan=-np.inf))) if known else int(self.lanes[0])
        state = jax.device_put(jax.jit(tree.copy)(self.agent_state(member)), jax.local_devices()[0])
        score = None if self.eval_return is None else float(self.eval_return[member])
        return Agent(*self.setup(member), self.config, state, self.rows, score)

    def agent_state(self, member: int = 0) -> Any:
        """The parameters and statistics of one member, on the device; donated to the next chunk."""
        lane = np.flatnonzero(self.lanes == member)
        if not lane.size:
            raise ConfigError("member", member, f"one that is still trained ({', '.join(map(str, self.lanes))})")
        if not distributed.several():
            return self.population.member(self.state.agent, int(lane[0]))
        taken = tree.take if self.population.size > 1 else lambda agent, _: agent
        return distributed.fetch(jax.jit(taken)(self.state.agent, lane[0]), self.population.replicated)

    def curve(self, metric: str = "episode_return") -> tuple[np.ndarray, np.ndarray]:
        """(env_steps [rows], values [rows, members]) of a logged metric: the rows in which any member has a value."""
        return curve(self.history, self.config.members, metric)

    def frame(self) -> Any:
        """A pandas DataFrame, a row a log row and member: what differs among members, and every metric, NaN where there
        is none. pandas must be installed."""
        return table(self.history, self.config.member_seeds(), self.config.member_settings())


def root_keys(config: RunConfig, population: Population, lanes: np.ndarray) -> jax.Array:
    seeds = config.member_seeds()
    return population.keys([seeds[i] for i in lanes])
