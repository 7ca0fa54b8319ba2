"""The host loop: chunks of one compiled program with donated state, and between them everything that is not maths.

Chunk k's metrics are fetched while chunk k + 1 runs. Logs, progress, evaluation, checkpoints, early stop, NaN checks
and signals live here; none of them is inside the program, and none of them depends on the chunk's size.
"""

from __future__ import annotations

import contextlib
import dataclasses
import functools
import math
import time
import warnings
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any

import jax
import numpy as np

from jaxrl_fast import runtime, tree
from jaxrl_fast.algorithms.base import Algorithm
from jaxrl_fast.checkpoint import Checkpoints, abstract, to_json
from jaxrl_fast.envs.api import Env
from jaxrl_fast.errors import ConfigError, NonFiniteError
from jaxrl_fast.grid import Grid, RunConfig, plan_grid
from jaxrl_fast.iterate import Run
from jaxrl_fast.population import Population, plan_population
from jaxrl_fast.programs import ROWS, Programs
from jaxrl_fast.rundir import RunDir, check_free
from jaxrl_fast.signals import Interrupted, Signals
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
    best_score: float = -math.inf
    best_rows: int = -1
    best_agent: Any = None
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
        """Of all members together, the first chunk left out; of the whole run where there was only one chunk."""
        return self.train_steps / self.train_seconds if self.train_seconds else 0.0

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


def train(
    algo: Algorithm,
    env: Env,
    total_steps: int = 500_000,
    *,
    out: str | Path | None = None,
    hooks: Sequence[Callable[[Session, list[Row]], None]] = (),
    sinks: Sequence[Sink] = (),
    tensorboard: bool = True,
    progress: bool = False,
    about: dict[str, Any] | None = None,
    **settings: Any,
) -> Session:
    """Train `settings["seeds"]` members in one program; the fields of `RunConfig` are the keyword settings.

    out: a run directory to write (config, metrics, checkpoints, result, pictures); None keeps everything in memory.
    about: more keys for config.json, such as the modules to import first ("imports").
    hooks: `hook(session, rows)` after every chunk.  sinks: see `jaxrl_fast.sinks`; closed at the end.
    Raises ConfigError for bad settings, NonFiniteError when a metric or a parameter is no longer finite.
    """
    known = {f.name for f in dataclasses.fields(RunConfig)}
    for name, value in settings.items():
        if name not in known:
            raise ConfigError(name, value, f"a setting of train: {', '.join(sorted(known))}")
    config = RunConfig(total_steps=total_steps, **settings)
    if config.horizon is None:
        config = dataclasses.replace(config, horizon=config.total_steps)
    runtime.request_host_devices(min(config.seeds, runtime.cpu_count()))  # where it is not too late
    plan_grid(algo.bind(env.spec), config)  # refuse before anything is written
    create = None
    if out is not None:
        check_free(Path(out))
        create = functools.partial(RunDir.create, Path(out), algo, env, config, **about or {})
    return run_session(algo, env, config, create, hooks, sinks, tensorboard, progress)


def run_session(algo, env, config, open_rundir, hooks=(), sinks=(), tensorboard=True, progress=False, resume=False):
    """Build the session, restore it if asked, run it to its end, and close what was opened.

    `open_rundir()` is called once it is clear that the run fits the device, so a refused run leaves nothing behind.
    """
    runtime.enable_compile_cache()
    began = time.perf_counter()
    algo = algo.bind(env.spec)
    population = plan_population(config.seeds, config.population)
    grid = plan_grid(algo, config)
    run = jax.device_put(tree.as_float32(Run(env, algo, float(grid.horizon))), population.replicated)
    with contextlib.ExitStack() as stack:
        for sink in sinks:
            stack.callback(_close, sink)
        opened = []
        if progress:
            from jaxrl_fast.sinks import ProgressSink

            opened.append(ProgressSink(grid.env_steps(grid.rows)))
            opened[-1].status("compiling")
            stack.callback(_close, opened[-1])
        programs = Programs(run, grid, population, config)
        programs.compile(population.keys(config.seed))
        rundir = open_rundir() if open_rundir else None
        for sink in rundir.sinks(tensorboard) if rundir else ():
            opened.append(sink)
            stack.callback(_close, sink)
        session = Session(
            algo, env, config, grid, population, run, programs, rundir, [*opened, *sinks], hooks,
            reached=[None] * config.seeds,
        )  # fmt: skip
        checkpoints = stack.enter_context(contextlib.closing(Checkpoints(rundir.checkpoints))) if rundir else None
        _loop(session, checkpoints, stack.enter_context(Signals()), began, resume)
    return session


def _close(sink: Sink) -> None:
    """A sink that cannot be closed (a full disk) must not hide what ended the run."""
    try:
        sink.close()
    except Exception as error:
        warnings.warn(f"{type(sink).__name__} could not be closed: {error}", stacklevel=1)


def _loop(s: Session, checkpoints: Checkpoints | None, signals: Signals, began: float, resume: bool) -> None:
    s.state = s.programs.init(s.population.keys(s.config.seed))
    if resume:
        _restore(s, checkpoints)
    earlier = s.wall_seconds
    wall = lambda: earlier + time.perf_counter() - began
    if s.grid.warmup and not resume:
        s.state, metrics = s.programs.warmup(s.state)
        _emit(s, [_row(s, -1, metrics, wall(), 0.0)])
    saved = time.monotonic()
    row_seconds, mark, first = None, time.perf_counter(), True
    pending = None  # (rows before it, rows in it, metrics, finite, time of dispatch)

    def absorb(evaluate: bool):
        """Wait for the pending chunk, check it, log it."""
        nonlocal pending, row_seconds, mark, first
        start, n, metrics, finite, dispatched = pending
        metrics, finite = jax.device_get((metrics, finite))
        now = time.perf_counter()
        seconds, mark, pending = now - max(mark, dispatched), now, None
        steps = n * s.grid.row * s.grid.steps * s.config.seeds
        if not first or (s.rows >= s.grid.rows and not s.train_seconds):
            s.train_seconds += seconds
            s.train_steps += steps
        first, row_seconds = False, seconds / n
        s.wall_seconds = wall()
        rows = [
            _row(s, start + i, jax.tree.map(lambda x, i=i: x[..., i], metrics), s.wall_seconds - (n - 1 - i) * row_seconds,
                 steps / seconds)
            for i in range(n)
        ]  # fmt: skip
        bad = _not_finite(s, rows, finite)
        if evaluate and bad is None:
            rows[-1].metrics["eval_return"] = _evaluate(s)
            mark = time.perf_counter()
        _emit(s, rows)
        if bad:
            for sink in s.sinks:
                sink.flush()
            last = "" if s.out is None else f"; the last good checkpoint is in {s.out.checkpoints}"
            raise NonFiniteError(bad + last)
        for hook in s.hooks:
            hook(s, rows)

    def save():
        nonlocal saved
        if checkpoints:
            _save(s, checkpoints)
        saved = time.monotonic()

    while s.rows < s.grid.rows and not s.stop_requested:
        n = min(ROWS, s.grid.rows - s.rows)
        n = min(n, max(1, int(s.config.chunk_seconds / row_seconds)) if row_seconds else 1)
        if s.grid.eval_rows:
            n = min(n, s.grid.eval_rows - s.rows % s.grid.eval_rows)
        before, dispatched = s.rows, time.perf_counter()
        s.state, metrics, finite = s.programs.chunk(s.state, s.grid.warmup + s.rows * s.grid.row, n)
        if pending:
            absorb(False)
        s.rows, pending = before + n, (before, n, metrics, finite, dispatched)
        at_eval = bool(s.grid.eval_rows) and s.rows % s.grid.eval_rows == 0
        due = time.monotonic() - saved > s.config.checkpoint_minutes * 60
        if at_eval or due or signals.caught or s.hooks:
            absorb(at_eval)
        if due or signals.caught:
            save()
        if signals.caught:
            raise Interrupted(signals.caught, s.out and s.out.path, s.env_steps)
        if s.config.target_return is not None and all(s.reached):
            break
    if pending:
        absorb(False)
    if s.history and "eval_return" in s.history[-1].metrics:
        s.eval_return = s.history[-1].metrics["eval_return"]
    else:
        s.eval_return = _evaluate(s)
    s.wall_seconds = wall()
    if s.out:
        save()
        checkpoints.wait()
        s.out.finish(s)


def _row(s: Session, index: int, metrics: Any, wall_seconds: float, rate: float) -> Row:
    """Sums and counts -> means [seeds]; 0/0, a member without a finished episode, is NaN (null in the files)."""
    values = {}
    for name, mean in s.population.members(jax.device_get(metrics)).items():
        with np.errstate(invalid="ignore", divide="ignore"):
            values[name] = np.where(mean.count > 0, mean.total / mean.count, np.nan)
        if np.any(mean.count > 0) and not np.all(np.isfinite(values[name][mean.count > 0])):
            values[name + "/bad"] = (mean.count > 0) & ~np.isfinite(values[name])
    return Row(s.grid.env_steps(index + 1), wall_seconds, rate, values)


def _not_finite(s: Session, rows: list[Row], finite: Any) -> str | None:
    """Name the first metric, step and member that is not finite; the marks are taken out of the rows."""
    message = None
    for row in rows:
        for name in [k for k in row.metrics if k.endswith("/bad")]:
            member = int(np.argmax(row.metrics.pop(name)))
            metric = name.removesuffix("/bad")
            message = message or (
                f"{metric} is {row.metrics[metric][member]} at {row.env_steps:,} environment steps in member {member} "
                f"(seed {s.config.seed + member})"
            )
    flags = s.population.members(finite)
    if message is None and not np.all(flags):
        member = int(np.argmin(flags))
        seed = s.config.seed + member
        message = f"agent parameters are not finite at {rows[-1].env_steps:,} environment steps in member {member} (seed {seed})"
    return message


def _emit(s: Session, rows: list[Row]) -> None:
    s.history.extend(rows)
    for sink in s.sinks:
        for row in rows:
            sink.write(row)


def _evaluate(s: Session) -> np.ndarray:
    """Mean return of every member; keeps the best agent and who reached the target."""
    score = s.programs.evaluate(s.state, s.rows)
    for i, value in enumerate(score):
        if s.config.target_return is not None and s.reached[i] is None and value >= s.config.target_return:
            s.reached[i] = {"env_steps": s.env_steps, "eval_return": float(value)}
    if score.mean() > s.best_score:
        s.best_score, s.best_rows = float(score.mean()), s.rows
        s.best_agent = s.programs.snapshot(s.state.agent)
    return score


def _save(s: Session, checkpoints: Checkpoints) -> None:
    """Flush the log, then write the best agent and the whole state from a snapshot that no donation can touch."""
    for sink in s.sinks:
        sink.flush()
    meta = to_json(
        {
            "rows": s.rows, "env_steps": s.env_steps, "wall_seconds": s.wall_seconds, "best_score": s.best_score,
            "best_rows": s.best_rows, "reached": s.reached, "seeds": s.config.seeds,
            "train_seconds": s.train_seconds, "train_steps": s.train_steps,
        }
    )  # fmt: skip
    if s.best_agent is not None and checkpoints.latest("best") != s.best_rows:
        checkpoints.save("best", s.best_rows, s.best_agent, meta)
    if checkpoints.latest("last") != s.rows:
        checkpoints.save("last", s.rows, s.programs.snapshot(s.state), meta)


def _restore(s: Session, checkpoints: Checkpoints) -> None:
    rows = checkpoints.latest("last")
    if rows is None:
        raise ConfigError("--resume", str(s.out.path), "a run that has saved a checkpoint")
    meta = checkpoints.meta("last", rows)
    like = s.programs.unpadded(s.state)
    s.state = s.programs.padded(checkpoints.restore("last", rows, abstract(like, s.population.replicated)))
    s.rows, s.wall_seconds, s.reached = int(meta["rows"]), float(meta["wall_seconds"]), list(meta["reached"])
    s.train_seconds, s.train_steps = float(meta["train_seconds"]), int(meta["train_steps"])
    if meta["best_score"] is not None:
        s.best_score, s.best_rows = float(meta["best_score"]), int(meta["best_rows"])
    for sink in s.sinks:
        sink.cut(s.env_steps)
    if s.out:
        s.history = s.out.history(s.env_steps)
        s.out.update(s.config)  # now that the checkpoint was read
