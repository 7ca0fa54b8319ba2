"""Seeds trained as runs of their own: results, rows side by side, folders at a resume."""

from __future__ import annotations

import dataclasses
import gc
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any

import jax
import numpy as np

from jaxrl_fast.engine.config import RunConfig
from jaxrl_fast.engine.grid import Grid
from jaxrl_fast.engine.prepared import Prepared
from jaxrl_fast.engine.start_text import IN_MEMORY
from jaxrl_fast.errors import ConfigError, expected
from jaxrl_fast.files.folders import check_folder
from jaxrl_fast.logs.rows import Row, rate_of, read_row
from jaxrl_fast.runs import config_json as configs
from jaxrl_fast.runs.agent import Agent
from jaxrl_fast.runs.checkpoints.store import Checkpoints
from jaxrl_fast.runs.config_values import reading
from jaxrl_fast.runs.logged import read_log
from jaxrl_fast.runs.reading import check_seed, read_member
from jaxrl_fast.runs.result import Result
from jaxrl_fast.runs.rundir import RunDir, seed_folder
from jaxrl_fast.types import RunState


@dataclasses.dataclass(frozen=True)
class Trained:
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
    agent.state = jax.device_get(agent.state)
    score = np.nan if run.eval_return is None else float(run.eval_return[0])
    kept = Trained(
        run.history, score, run.eval_episodes, run.best_score, run.env_steps,
        run.seconds, run.steps_per_second,
        run.lost.get(0), run.reached[0], lambda: _on_device(agent),
    )  # fmt: skip
    run.lanes.state = run.best.agent = None
    gc.collect()  # programs and their reports refer to each other
    return kept


def _on_device(agent: Agent) -> Agent:
    state = jax.device_put(agent.state)
    return Agent(agent.algo, agent.env, agent.config, state, agent.iteration, agent.score)


def of_folder(folder: Path, modules: Sequence[str] = ()) -> Trained:
    """Read a seed's results from its run directory. Raises ConfigError for another form."""
    with reading("result", str(folder / "result.json")):
        rundir = RunDir(folder)
        result = rundir.result()
        history = [read_row(row) for row in read_log(folder)]
        if len(result["eval_return"]) != 1:
            raise ConfigError("result", str(folder / "result.json"), "the result of one seed")
        number = lambda value, other: value if isinstance(value, (int, float)) else other
        score, seconds = result["eval_return"][0], result.get("seconds")
        lost, reached = (result.get(name) or [None] for name in ("lost", "reached"))

        def make_agent() -> Agent:
            run, env, config, state, row, _, _ = read_member(folder, ("last",), 0, modules)
            return Agent(run.algo, env, config, state.agent if isinstance(state, RunState)
                         else state, row, score)

        lost = lost[0] and {k: lost[0][k] for k in ("env_steps", "reason")}
        seconds = (
            {k: number(v, 0.0) for k, v in seconds.items()} if isinstance(seconds, dict) else {}
        )
        return Trained(
            history, number(score, np.nan), number(result.get("eval_episodes"), 0),
            number(result.get("best_eval_return"), -np.inf), result["env_steps"], seconds,
            number(result.get("steps_per_second"), np.nan), lost, reached[0], make_agent,
        )  # fmt: skip


def side_by_side(histories: Sequence[Sequence[Row]]) -> list[Row]:
    """Join rows of single seeds to rows of a population: NaN for missing ones, times summed."""
    columns = [{row.env_steps: row for row in rows} for rows in histories]
    walls, found = [0.0] * len(columns), []
    for steps in sorted(set().union(*columns)):
        rows = [column.get(steps) for column in columns]
        walls = [wall if row is None else float(np.nan_to_num(row.wall_seconds))
                 for wall, row in zip(walls, rows, strict=True)]
        there = [row for row in rows if row is not None]
        names = dict.fromkeys(name for row in there for name in row.metrics)
        rate = overall_rate([(1, row.steps_per_second) for row in there])
        found.append(Row(steps, sum(walls), rate, {name: _column(name, rows) for name in names}))
    return found


def _column(name: str, rows: Sequence[Row | None]) -> np.ndarray:
    values = [np.ravel(row.metrics[name])[:1] if row is not None and name in row.metrics else ()
              for row in rows]
    dtype = np.result_type(np.float32, *(x.dtype for x in values if len(x)))
    return np.array([x[0] if len(x) else np.nan for x in values], dtype)


def overall_rate(parts: Sequence[tuple[float, float]]) -> float:
    """Return all steps over all seconds of the parts (steps, rate) with a rate, or NaN."""
    known = [(steps, rate) for steps, rate in parts if rate > 0]
    seconds = sum(steps / rate for steps, rate in known)
    return rate_of(sum(steps for steps, _ in known), seconds)


def ended_seeds(path: Path, prepared: Prepared, modules: Sequence[str] = ()) -> dict[int, Trained]:
    """Return {member: results} of finished seeds; the others can continue or restart.

    prepared: with the new end. Raises ConfigError for a seed's folder that cannot be part of it.
    """
    ended, config = {}, prepared.config
    planned = config.total_steps, config.horizon
    for seed in config.member_seeds():
        folder = seed_folder(path, seed)
        check_folder(folder)
        if not folder.exists():
            _check_anew(folder, config)
            continue
        if (folder / "config.json").is_file():
            one = prepared.seed(seed - config.seed)
            check_seed(folder, one.algo, one.env, one.config, modules)
        result = of_folder(folder, modules) if (folder / "result.json").is_file() else None
        same = lambda run: (run["total_steps"], run.get("horizon")) == planned
        if result and (result.lost or same(configs.read_config(folder)["run"])):
            ended[seed - config.seed] = result
        elif RunDir(folder).resumable:
            _check_done(folder, config, prepared.grid)
        elif result:
            remedy = f"move {folder.name} elsewhere and resume the run, which restarts this seed"
            raise expected(str(folder), "a run with its checkpoints",
                           f"one that has ended and lost them; {remedy}")
        else:
            _check_anew(folder, config)
    return ended


def _check_done(folder: Path, config: RunConfig, grid: Grid) -> None:
    """Raise ConfigError without a whole checkpoint, or with one past the end of the run."""
    with Checkpoints(RunDir(folder).checkpoints, read_only=True) as checkpoints:
        checkpoints.check_own()
        meta = checkpoints.read(("last",), checkpoints.meta)
    done = grid.env_steps(meta["rows"])
    if done > grid.env_steps(grid.rows):
        go_on = "give that many, or more, as total_steps (--total-steps)"
        raise expected("total_steps", f"at least the {done:,} steps that {folder.name} has",
                       f"{config.total_steps:,}: {go_on}")


def _check_anew(folder: Path, config: RunConfig) -> None:
    """Raise ConfigError for a seed without checkpoints that cannot restart."""
    if (config.start_from or "").startswith(IN_MEMORY):
        gone = (
            f"parameters in memory, which are gone with their process, and {folder.name} has no "
            "checkpoint"
        )
        remedy = (
            "`resume()` of the run in that process goes on with it; jf.load reads the seeds that "
            "have ended"
        )
        raise expected("start_from", "a run directory", f"{gone}; {remedy}")
