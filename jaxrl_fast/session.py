"""A run in progress: what the host knows of it, and its rows, evaluations and checkpoints."""

from __future__ import annotations

import dataclasses
import math
from collections.abc import Callable, Sequence
from typing import Any

import jax
import numpy as np

from jaxrl_fast.algorithms.base import Algorithm
from jaxrl_fast.checkpoint import Checkpoints, abstract, to_json
from jaxrl_fast.envs.api import Env
from jaxrl_fast.errors import ConfigError
from jaxrl_fast.grid import Grid, RunConfig
from jaxrl_fast.iterate import Run
from jaxrl_fast.population import Population
from jaxrl_fast.programs import Programs
from jaxrl_fast.rundir import RunDir
from jaxrl_fast.sinks import Row, Sink


@dataclasses.dataclass
class Session:
    """A run in progress, and what `train` returns when it has ended.

    `state` is the RunState on the device, leaves [seeds, ...] (no such axis for one seed). It is donated to the next
    chunk: a hook that wants to keep any of it must copy. `rows` counts log rows that are done, `history` holds them.
    """

    algo: Algorithm  # bound to the environment
    env: Env
    config: RunConfig
    grid: Grid
    population: Population
    run: Run
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
    reached: list[Any] = dataclasses.field(default_factory=list)
    history: list[Row] = dataclasses.field(default_factory=list)
    eval_return: np.ndarray | None = None
    stop_requested: bool = False

    @property
    def env_steps(self) -> int:
        """Environment steps of one member so far."""
        return self.grid.env_steps(self.rows)

    @property
    def steps_per_second(self) -> float:
        """Of all members together, the first chunk left out; of the first one where there was no other."""
        if self.train_seconds:
            return self.train_steps / self.train_seconds
        return float(self.history[-1].steps_per_second or 0.0) if self.history else 0.0

    @property
    def over(self) -> bool:
        """Whether there is nothing left to train."""
        at_target = self.config.target_return is not None and all(self.reached)
        return self.rows >= self.grid.rows or self.stop_requested or at_target

    def stop(self) -> None:
        """For hooks: end the run after this chunk."""
        self.stop_requested = True

    def agent(self, member: int = 0) -> Any:
        """The trained agent of one member."""
        return self.population.member(self.state.agent, member)

    def curve(self, metric: str = "episode_return") -> tuple[np.ndarray, np.ndarray]:
        """(env_steps [rows], values [rows, seeds]) of a logged metric."""
        rows = [r for r in self.history if metric in r.metrics]
        return np.array([r.env_steps for r in rows]), np.array([r.metrics[metric] for r in rows])


def make_row(s: Session, index: int, metrics: Any, wall_seconds: float, rate: float) -> Row:
    """Sums and counts -> means [seeds]; 0/0, a member without a finished episode, is NaN (null in the files)."""
    values = {}
    for name, mean in s.population.members(jax.device_get(metrics)).items():
        with np.errstate(invalid="ignore", divide="ignore"):
            values[name] = np.where(mean.count > 0, mean.total / mean.count, np.nan)
        if np.any(mean.count > 0) and not np.all(np.isfinite(values[name][mean.count > 0])):
            values[name + "/bad"] = (mean.count > 0) & ~np.isfinite(values[name])
    return Row(s.grid.env_steps(index + 1), wall_seconds, rate, values)


def not_finite(s: Session, rows: list[Row], finite: Any) -> str | None:
    """Name the first metric, step and member that is not finite; the marks are taken out of the rows.

    finite: whether each member's agent is, None where nothing has been learned.
    """
    message = None
    for row in rows:
        for name in [k for k in row.metrics if k.endswith("/bad")]:
            member = int(np.argmax(row.metrics.pop(name)))
            metric = name.removesuffix("/bad")
            message = message or (
                f"{metric} is {row.metrics[metric][member]} at {row.env_steps:,} environment steps in member {member} "
                f"(seed {s.config.seed + member})"
            )
    flags = True if finite is None else s.population.members(finite)
    if message is None and not np.all(flags):
        member = int(np.argmin(flags))
        where = f"at {rows[-1].env_steps:,} environment steps in member {member} (seed {s.config.seed + member})"
        message = f"agent parameters or priorities are not finite {where}"
    return message


def emit(s: Session, rows: list[Row]) -> None:
    s.history.extend(rows)
    for sink in s.sinks:
        for row in rows:
            sink.write(row)


def evaluate(s: Session) -> np.ndarray:
    """Mean return of every member; keeps the best agent and who reached the target."""
    scores = s.programs.evaluate(s.state, s.rows)
    for i, value in enumerate(scores):
        if s.config.target_return is not None and s.reached[i] is None and value >= s.config.target_return:
            s.reached[i] = {"env_steps": s.env_steps, "eval_return": float(value)}
    if scores.mean() > s.best_score:
        s.best_score, s.best_scores, s.best_rows = float(scores.mean()), scores, s.rows
        s.best_agent = s.programs.snapshot(s.state.agent)
    return scores


def save(s: Session, checkpoints: Checkpoints) -> None:
    """Flush the log, then write the best agent and the whole state from a snapshot that no donation can touch."""
    for sink in s.sinks:
        sink.flush()
    save_best(s, checkpoints)
    if checkpoints.latest("last") != s.rows:
        meta = {
            "rows": s.rows, "env_steps": s.env_steps, "wall_seconds": s.wall_seconds, "reached": s.reached,
            "seeds": s.config.seeds, "train_seconds": s.train_seconds, "train_steps": s.train_steps,
        }  # fmt: skip
        checkpoints.save("last", s.rows, s.programs.snapshot(s.state), to_json(meta))


def save_best(s: Session, checkpoints: Checkpoints) -> None:
    """The best agent, if it is not on disk yet.

    Its number is that of its row, or a later one: the newest is kept, and a run that was killed before its `last`
    was written and resumed with another horizon may find a better agent in an earlier row than the one on disk.
    """
    if s.best_agent is None:
        return
    newest = checkpoints.latest("best")
    number = s.best_rows if newest is None else max(s.best_rows, newest + 1)
    meta = {"best_rows": s.best_rows, "best_score": s.best_score, "best_scores": s.best_scores, "seeds": s.config.seeds}
    checkpoints.save("best", number, s.best_agent, to_json(meta))
    s.best_agent = None


def rescue(s: Session, checkpoints: Checkpoints | None) -> str:
    """Put the log and the best agent of a failed run on the disk; says which checkpoints there are."""
    for sink in s.sinks:
        sink.flush()
    if checkpoints is None:
        return ""
    save_best(s, checkpoints)
    checkpoints.wait()
    if checkpoints.latest("last") is not None:
        return f"; the last good checkpoint is in {checkpoints.folder}"
    none = f"; no checkpoint was due before it (checkpoint_minutes = {s.config.checkpoint_minutes:g})"
    best = checkpoints.latest("best") is not None
    return none + (f", the best agent until then is in {checkpoints.folder / 'best'}" if best else "")


def restore(s: Session, checkpoints: Checkpoints) -> None:
    """The whole state from `last`, the score to beat from `best`; the log ends where the state does."""
    rows = checkpoints.latest("last")
    if rows is None:
        raise ConfigError("--resume", str(s.out.path), "a run that has saved a checkpoint")
    meta = checkpoints.meta("last", rows)
    like = s.programs.unpadded(s.state)
    s.state = s.programs.padded(checkpoints.restore("last", rows, abstract(like, s.population.replicated)))
    s.rows, s.wall_seconds, s.reached = int(meta["rows"]), float(meta["wall_seconds"]), list(meta["reached"])
    s.train_seconds, s.train_steps = float(meta["train_seconds"]), int(meta["train_steps"])
    newest = checkpoints.latest("best")
    if newest is not None:
        best = checkpoints.meta("best", newest)
        s.best_score, s.best_rows = float(best["best_score"]), int(best["best_rows"])
    for sink in s.sinks:
        sink.cut(s.env_steps)
    if s.out:
        s.history = s.out.history(s.env_steps)
        s.out.update(s.config)  # now that the checkpoint was read
