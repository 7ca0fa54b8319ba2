"""Results of single seeds, each trained as its own run, and their rows side by side."""

from __future__ import annotations

import dataclasses
import gc
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any

import jax
import numpy as np

from jaxrl_fast.errors import ConfigError
from jaxrl_fast.logs.rows import Row
from jaxrl_fast.runs.agent import Agent
from jaxrl_fast.runs.config_values import reading
from jaxrl_fast.runs.reading import read_member
from jaxrl_fast.runs.result import Result
from jaxrl_fast.runs.rundir import RunDir
from jaxrl_fast.types import RunState


@dataclasses.dataclass(frozen=True)
class Trained:
    """The results of a seed that has ended."""

    history: list[Row]
    eval_return: float  # NaN if lost
    eval_episodes: int
    best_score: float
    env_steps: int
    seconds: dict[str, float]
    steps_per_second: float
    lost: dict[str, Any] | None
    reached: Any
    make_agent: Callable[[], Agent]


def of_run(run: Result) -> Trained:
    """Return the results of an ended run; frees its replay and environments for the next one."""
    agent = run.agent(0)
    state = jax.device_get(agent.state)
    parts = agent.algo, run.env, run.config  # not the run: it holds its programs
    about = agent.iteration, agent.score
    del agent
    score = np.nan if run.eval_return is None else float(run.eval_return[0])
    kept = Trained(
        run.history, score, run.eval_episodes, run.best_score, run.env_steps, run.seconds, run.steps_per_second,
        run.lost.get(0), run.reached[0], lambda: Agent(*parts, jax.device_put(state), *about),
    )  # fmt: skip
    run.lanes.state = run.best.agent = None
    gc.collect()  # programs and their reports refer to each other
    return kept


def of_folder(folder: Path, modules: Sequence[str] = ()) -> Trained:
    """Read a seed's results from its run directory. Raises ConfigError for another form."""
    with reading("result", str(folder / "result.json")):
        return _of_folder(folder, modules)


def _of_folder(folder: Path, modules: Sequence[str]) -> Trained:
    rundir = RunDir(folder)
    result, history = rundir.result(), rundir.history(2**63)
    if len(result["eval_return"]) != 1:
        raise ConfigError("result", str(folder / "result.json"), "the result of one seed")
    number = lambda value, otherwise: value if isinstance(value, (int, float)) else otherwise
    score, seconds = result["eval_return"][0], result.get("seconds")
    lost, reached = (result.get(name) or [None] for name in ("lost", "reached"))

    def make_agent() -> Agent:
        run, env, config, state, row, _, _ = read_member(folder, ("last",), 0, modules)
        return Agent(run.algo, env, config, state.agent if isinstance(state, RunState) else state, row, score)

    return Trained(
        history, number(score, np.nan), number(result.get("eval_episodes"), 0), number(result.get("best_eval_return"), -np.inf),
        result["env_steps"], {k: number(v, 0.0) for k, v in seconds.items()} if isinstance(seconds, dict) else {},
        number(result.get("steps_per_second"), 0.0), lost[0] and {k: lost[0][k] for k in ("env_steps", "reason")}, reached[0],
        make_agent,
    )  # fmt: skip


def side_by_side(histories: Sequence[Sequence[Row]]) -> list[Row]:
    """Join rows of single seeds to rows of a population, NaN where a seed has no row.

    wall_seconds: of all seeds up to the row. steps_per_second: all steps by all seconds.
    """
    columns = [{row.env_steps: row for row in rows} for rows in histories]
    walls, found = [0.0] * len(columns), []
    for steps in sorted(set().union(*columns)):
        rows = [column.get(steps) for column in columns]
        walls = [wall if row is None else row.wall_seconds or 0.0 for wall, row in zip(walls, rows, strict=True)]
        there = [row for row in rows if row is not None]
        names = dict.fromkeys(name for row in there for name in row.metrics)
        rate = overall_rate([(1, row.steps_per_second or 0.0) for row in there])
        found.append(Row(steps, sum(walls), rate, {name: _column(name, rows) for name in names}))
    return found


def _column(name: str, rows: Sequence[Row | None]) -> np.ndarray:
    values = [np.ravel(row.metrics[name])[:1] if row is not None and name in row.metrics else () for row in rows]
    dtype = np.result_type(np.float32, *(x.dtype for x in values if len(x)))
    return np.array([x[0] if len(x) else np.nan for x in values], dtype)


def overall_rate(parts: Sequence[tuple[float, float]]) -> float:
    """Return all steps over all seconds of parts (steps, rate), without parts of unknown rate."""
    known = [(steps, rate) for steps, rate in parts if rate > 0]
    seconds = sum(steps / rate for steps, rate in known)
    return sum(steps for steps, _ in known) / seconds if seconds else 0.0
