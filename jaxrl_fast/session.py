"""A run in progress: what the host knows of it, and its rows, evaluations and checkpoints."""

from __future__ import annotations

import dataclasses
import math
from collections.abc import Callable, Sequence
from typing import Any

import jax
import numpy as np

from jaxrl_fast import hosts, tree
from jaxrl_fast.agent import Agent
from jaxrl_fast.aggregate import frame
from jaxrl_fast.algorithms.base import Algorithm
from jaxrl_fast.envs.api import Env
from jaxrl_fast.errors import ConfigError
from jaxrl_fast.grid import Grid, RunConfig
from jaxrl_fast.members import configure, leaf_names
from jaxrl_fast.population import Members, Population, population_of
from jaxrl_fast.programs import Programs
from jaxrl_fast.rundir import RunDir
from jaxrl_fast.sinks import Row, Sink


@dataclasses.dataclass
class Session:
    """A run in progress, and what `train` returns when it has ended.

    `state` is the RunState on the device, leaves [lanes, ...] (no such axis for one). It is donated to the next
    chunk: a hook that wants to keep any of it must copy. `rows` counts log rows that are done, `history` holds them.
    `lanes` names the member that each lane of the program trains: all of them, unless some were dropped.
    """

    algo: Algorithm  # bound to the environment
    env: Env
    config: RunConfig
    grid: Grid
    members: Members
    population: Population
    lanes: np.ndarray  # int [population.size]
    programs: Programs
    out: RunDir | None
    sinks: Sequence[Sink]
    hooks: Sequence[Callable[[Session, list[Row]], None]]
    state: Any = None
    rows: int = 0
    wall_seconds: float = 0.0
    train_seconds: float = 0.0  # inside chunks, the first left out
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
    stop_requested: bool = False
    saved: int | None = None  # iterations of the newest checkpoint

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
        """Of all members together, the first chunk left out; of the first one where there was no other."""
        if self.train_seconds:
            return self.train_steps / self.train_seconds
        return float(self.history[-1].steps_per_second or 0.0) if self.history else 0.0

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

    def setup(self, member: int = 0) -> tuple[Algorithm, Env]:
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
        spent = self.programs.compile_seconds
        self.lanes = np.asarray(members, np.int64)
        self.population = population_of(self.config, len(at))
        self.programs = Programs(self.members.take(self.lanes), self.grid, self.population, self.config)
        self.programs.compile(self.root_keys())
        self.programs.compile_seconds += spent
        self.state = self.programs.padded(state)

    def root_keys(self) -> jax.Array:
        """The key of every lane: that of a single run with its member's seed."""
        return root_keys(self.config, self.population, self.lanes)

    def stop(self) -> None:
        """For hooks: end the run after this chunk."""
        self.stop_requested = True

    def agent(self, member: int | None = None) -> Agent:
        """The agent of one member as it is now, which later training leaves alone; on several hosts all of them call it.

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
            raise ConfigError("member", member, f"one that is still trained: {', '.join(map(str, self.lanes))}")
        if not hosts.several():
            return self.population.member(self.state.agent, int(lane[0]))
        taken = tree.take if self.population.size > 1 else lambda agent, _: agent
        return hosts.fetch(jax.jit(taken)(self.state.agent, lane[0]), self.population.replicated)

    def curve(self, metric: str = "episode_return") -> tuple[np.ndarray, np.ndarray]:
        """(env_steps [rows], values [rows, members]) of a logged metric: the rows in which any member has a value."""
        rows = [r for r in self.history if np.isfinite(r.metrics.get(metric, np.nan)).any()]
        values = np.array([r.metrics[metric] for r in rows]).reshape(len(rows), self.config.members)
        return np.array([r.env_steps for r in rows], np.int64), values

    def frame(self) -> Any:
        """A pandas DataFrame, a row a log row and member: what differs among members, and every metric, NaN where there
        is none. pandas must be installed."""
        seeds, own = self.config.member_seeds(), self.config.member_settings()
        return frame([
            {"env_steps": row.env_steps, "seed": seed, **{name: values[i] for name, values in own.items()},
             "wall_seconds": row.wall_seconds, "steps_per_second": row.steps_per_second,
             **{name: values[i] for name, values in row.metrics.items()}}
            for row in self.history
            for i, seed in enumerate(seeds)
        ])  # fmt: skip


def root_keys(config: RunConfig, population: Population, lanes: np.ndarray) -> jax.Array:
    seeds = config.member_seeds()
    return population.keys([seeds[i] for i in lanes])


def make_row(s: Session, index: int, metrics: Any, wall_seconds: float, rate: float) -> Row:
    """Sums and counts -> means [seeds]; 0/0, a member without a finished episode, is NaN (null in the files)."""
    values = {}
    for name, mean in s.by_member(s.population.members(jax.device_get(metrics))).items():
        with np.errstate(invalid="ignore", divide="ignore"):
            values[name] = np.where(mean.count > 0, mean.total / mean.count, np.nan)
        if np.any(mean.count > 0) and not np.all(np.isfinite(values[name][mean.count > 0])):
            values[name + "/bad"] = (mean.count > 0) & ~np.isfinite(values[name])
    values |= {name: chosen.copy() for name, chosen in s.settings.items()}
    return Row(s.grid.env_steps(index + 1), wall_seconds, rate, values)


def not_finite(s: Session, rows: list[Row], finite: Any) -> str | None:
    """Name the first metric, step and member that is not finite; the marks are taken out of the rows.

    finite: whether each lane's agent is, None where nothing has been learned. With `on_nan = "mark"` such a member is
    noted in `s.lost` and has no values from there on, and only the last one to be lost is a message.
    """
    message, stop = None, s.config.on_nan == "stop"

    def note(member: int, row: Row, what: str) -> None:
        nonlocal message
        found = f"{what} at {row.env_steps:,} environment steps in member {member} ({s.config.label(member)})"
        message = message or found
        if not stop and member not in s.lost:
            s.lost[member] = {"env_steps": row.env_steps, "reason": what}

    for row in rows:
        for name in [k for k in row.metrics if k.endswith("/bad")]:
            metric = name.removesuffix("/bad")
            for member in np.flatnonzero(row.metrics.pop(name)):
                note(int(member), row, f"{metric} is {row.metrics[metric][member]}")
        if not stop:
            hide_lost(s, row)
    for member in np.flatnonzero(~s.by_member(s.population.members(finite), True)) if finite is not None else ():
        note(int(member), rows[-1], "agent parameters or priorities are not finite")
    return message if stop or not s.live else None


def hide_lost(s: Session, row: Row) -> None:
    for member in s.lost:
        for values in row.metrics.values():
            values[member] = np.nan


def emit(s: Session, rows: list[Row]) -> None:
    s.history.extend(rows)
    for sink in s.sinks:
        for row in rows:
            sink.write(row)


def evaluate(s: Session) -> np.ndarray:
    """Mean return of every member; keeps the best agent and who reached the target."""
    scores = np.array(s.by_member(s.programs.evaluate(s.state, s.rows), np.nan))
    scores[list(s.lost)] = np.nan
    for i, value in enumerate(scores):
        if s.config.target_return is not None and s.reached[i] is None and value >= s.config.target_return:
            s.reached[i] = {"env_steps": s.env_steps, "eval_return": float(value)}
    mean = float(np.mean(scores[s.live])) if s.live else -math.inf
    if mean > s.best_score:
        s.best_score, s.best_scores, s.best_rows = mean, scores, s.rows
        s.best_agent, s.best_lanes = s.programs.snapshot(s.state.agent), s.who()
    return scores
