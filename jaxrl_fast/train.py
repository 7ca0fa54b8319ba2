"""The host loop: chunks of one compiled program with donated state, and between them everything that is not maths.

Chunk k's metrics are fetched while chunk k + 1 runs. Logs, progress, evaluation, checkpoints, early stop, NaN checks
and signals live here; none of them is inside the program, and none of them depends on the chunk's size.
"""

from __future__ import annotations

import contextlib
import dataclasses
import sys
import time
import warnings
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any

import jax
import numpy as np

from jaxrl_fast import hosts, runtime
from jaxrl_fast.algorithms.base import Algorithm
from jaxrl_fast.checkpoint import Checkpoints
from jaxrl_fast.envs.api import Env
from jaxrl_fast.envs.host import HostEnv, HostError
from jaxrl_fast.errors import NonFiniteError
from jaxrl_fast.grid import Grid, RunConfig, plan_grid, run_config
from jaxrl_fast.members import gather, leaf_names
from jaxrl_fast.memory import forget_experience, identity
from jaxrl_fast.population import Members, Population, population_of, spread
from jaxrl_fast.programs import ROWS, Part, Programs
from jaxrl_fast.rundir import RunDir, check_free, describe
from jaxrl_fast.selection import decode_selection, encode_selection
from jaxrl_fast.session import Session, emit, evaluate, make_row, not_finite, rescue, restore, root_keys, save
from jaxrl_fast.signals import Interrupted, Signals
from jaxrl_fast.sinks import Row, Sink
from jaxrl_fast.terminal import is_watched


def train(
    algo: Algorithm,
    env: Env,
    total_steps: int = 500_000,
    *,
    out: str | Path | None = None,
    hooks: Sequence[Callable[[Session, list[Row]], None]] = (),
    sinks: Sequence[Sink] = (),
    tensorboard: bool = True,
    progress: bool | None = None,
    about: dict[str, Any] | None = None,
    **settings: Any,
) -> Session:
    """Train a population in one program; the fields of `RunConfig` are the keyword settings (`seeds`, `population`, ...).

    out: a run directory to write (config, metrics, checkpoints, result, pictures); None keeps everything in memory.
    progress: a live bar, or plain lines; None: where somebody looks, on a terminal or in a notebook.
    about: more keys for config.json, such as the modules to import first ("imports").
    hooks: `hook(session, rows)` after every chunk.  sinks: see `jaxrl_fast.sinks`; closed at the end.
    Raises ConfigError for bad settings, NonFiniteError when a metric or a parameter is no longer finite.
    """
    progress = is_watched(sys.stderr) if progress is None else progress
    settings = settings | {"selection": encode_selection(settings.get("selection"))}
    config = at_start(run_config(total_steps, settings))
    spread(config)
    check_members(algo, env, config)  # refuse before anything is written
    create = None
    if out is not None:
        out = Path(out)
        check_out(out, algo, env, config)
        create = lambda: hosts.on_first(lambda: RunDir.create(out, algo, env, config, **about or {})) or RunDir(out)
    return run_session(algo, env, config, create, hooks, sinks, tensorboard, progress)


def at_start(config: RunConfig) -> RunConfig:
    """With what is fixed from the start on: the horizon, and which experience it is."""
    if config.experience and not config.experience_id:
        config = dataclasses.replace(config, experience_id=identity(config.experience))
    return config if config.horizon else dataclasses.replace(config, horizon=config.total_steps)


def check_out(out: Path, algo: Algorithm, env: Env, config: RunConfig) -> None:
    """ConfigError where the run cannot be written there, or config.json cannot hold it; before anything is compiled."""
    describe(algo, env, at_start(config))
    hosts.on_first(lambda: check_free(out))


def run_session(algo, env, config, open_rundir, hooks=(), sinks=(), tensorboard=True, progress=False, resume=None):
    """Build the session, restore it if asked, run it to its end, and close what was opened.

    `open_rundir()` is called once it is clear that the run fits the device, so a refused run leaves nothing behind;
    nor does one that fails before its first row.  resume: what the checkpoint to go on from says of itself.
    """
    runtime.enable_compile_cache()
    began, rundir = time.perf_counter(), None
    if hosts.several():
        content = describe(algo, env, config)
        hosts.check_same("config", {k: content[k] for k in ("algorithm", "environment", "run", "versions")})
        sinks, progress = (sinks, progress) if hosts.is_first() else ((), False)
    selection = decode_selection(config.selection)
    members = check_members(algo, env, config)
    settings = {}
    if selection:
        names, leaves = leaf_names(members.first), jax.tree.leaves(members.run)
        settings = {name: np.asarray(leaves[names.index(name)]) for name in selection.traced}
    algo = algo.bind(env.spec)
    grid = plan_grid(members.first.algo, config)
    lanes = np.asarray(resume["lanes"] if resume else range(config.members), np.int64)
    population = population_of(config, len(lanes))
    try:
        with contextlib.ExitStack() as stack:
            stack.callback(forget_experience)
            for sink in sinks:
                stack.callback(_close, sink)
            own = []
            if progress:
                from jaxrl_fast.sinks import ProgressSink

                own.append(ProgressSink(grid.env_steps(grid.rows)))
                own[-1].status("compiling")
                stack.callback(_close, own[-1])
            programs = programs_of(env, members.take(lanes), grid, population, config)
            stack.callback(programs.give_up)
            programs.compile(root_keys(config, population, lanes))
            rundir = open_rundir() if open_rundir else None
            if rundir:
                hosts.check_shared(rundir.path / "config.json")
            for sink in rundir.sinks(tensorboard) if rundir and hosts.is_first() else ():
                own.append(sink)
                stack.callback(_close, sink)
            session = Session(
                algo, env, config, grid, members, population, lanes, programs, rundir, [*own, *sinks], hooks,
                reached=[None] * config.members, selection=selection, settings=settings,
            )  # fmt: skip
            checkpoints = stack.enter_context(contextlib.closing(Checkpoints(rundir.checkpoints))) if rundir else None
            _loop(session, checkpoints, stack.enter_context(Signals()), began, resume is not None)
    except BaseException:
        if rundir and resume is None and hosts.is_first():
            rundir.discard()
        raise
    return session


def programs_of(env: Env, members: Members, grid: Grid, population: Population, config: RunConfig) -> Programs:
    if not isinstance(env, HostEnv):
        return Programs(members, grid, population, config)
    from jaxrl_fast.host_programs import HostPrograms

    return HostPrograms(members, grid, population, config, env)


def check_members(algo: Algorithm, env: Env, config: RunConfig) -> Members:
    """The members of a run as its programs take them; ConfigError where there cannot be such a population."""
    selection = decode_selection(config.selection)
    if selection:
        selection.check(config)
    return gather(algo, env, config, selection.traced if selection else ())


def _close(sink: Sink) -> None:
    """A sink that cannot be closed (a full disk) must not hide what ended the run."""
    try:
        sink.close()
    except Exception as error:
        warnings.warn(f"{type(sink).__name__} could not be closed: {error}", stacklevel=1)


def _loop(s: Session, checkpoints: Checkpoints | None, signals: Signals, began: float, resume: bool) -> None:
    s.state = s.programs.init(s.root_keys())
    if resume:
        restore(s, checkpoints)
    for sink in s.sinks:
        sink.open()
    earlier = s.wall_seconds
    wall = lambda: earlier + time.perf_counter() - began
    saved, saved_rows = time.monotonic(), s.rows
    row_seconds, mark, first = None, time.perf_counter(), True
    pace = hosts.Pace()
    pending = None  # (rows before it, rows in it, metrics, finite, time of dispatch)

    boundaries = s.selection.boundaries(s.grid) if s.selection else set()

    def log(rows: list[Row], finite: Any, score: bool):
        """Check rows, evaluate and select where it is time, then log them; what is not finite is in the log, and ends the run."""
        nonlocal mark, first
        bad, failed = not_finite(s, rows, finite), None
        if score and bad is None:
            try:
                rows[-1].metrics["eval_return"] = evaluate(s)
            except HostError as error:  # what was learned is as good as before
                failed = error
            mark = time.perf_counter()
        if s.rows in boundaries and bad is None:
            programs = s.programs
            s.selection.select(s, rows)
            mark, first = time.perf_counter(), first or s.programs is not programs
        emit(s, rows)
        if bad:
            broken(bad)
        if failed:
            give_up(failed)

    def broken(bad: str):
        message = bad + rescue(s, checkpoints)
        if s.out and s.config.on_nan == "mark":  # the run is over, its scores are that there are none
            s.eval_return = np.full(s.config.members, np.nan)
            hosts.on_first(lambda: s.out.write_result(s))
        raise NonFiniteError(message)

    def absorb(score: bool):
        """Wait for the pending chunk, check it, log it."""
        nonlocal pending, row_seconds, mark, first
        start, n, metrics, finite, dispatched = pending
        metrics, finite = jax.device_get((metrics, finite))  # `chunk` has put them where this host can read them
        now = time.perf_counter()
        seconds, mark, pending = now - max(mark, dispatched), now, None
        steps = n * s.grid.row * s.grid.steps * len(s.lanes)
        if not first:
            s.train_seconds += seconds
            s.train_steps += steps
        first, row_seconds = False, pace(seconds / n)
        s.wall_seconds = wall()
        rows = [
            make_row(s, start + i, jax.tree.map(lambda x, i=i: x[..., i], metrics),
                     s.wall_seconds - (n - 1 - i) * row_seconds, steps / seconds)
            for i in range(n)
        ]  # fmt: skip
        log(rows, finite, score)
        for hook in s.hooks:
            hook(s, rows)

    def checkpoint():
        nonlocal saved, saved_rows
        if checkpoints:
            save(s, checkpoints)
        saved, saved_rows = time.monotonic(), s.rows

    def give_up(error: Exception):
        """Environments on the host failed: what is learned is kept."""
        if s.iterations:
            checkpoint()
        raise HostError(f"{error}{rescue(s, checkpoints)}") from error

    def end_early(part: Part, finite: Any):
        """In the middle of a row on the host: the iterations that are done are saved, and whoever resumes goes on with them."""
        s.wall_seconds = wall()
        row = make_row(s, s.rows, part.metrics, s.wall_seconds, 0.0)
        bad = not_finite(s, [row], jax.device_get(finite))
        if bad:
            emit(s, [row])
            broken(bad)
        if part.error:
            give_up(part.error)
        checkpoint()
        leave(signals.caught)

    def since_checkpoint() -> float:
        """Seconds; on several hosts by the pace that they share, not by their clocks."""
        return (s.rows - saved_rows) * (row_seconds or 0.0) if hosts.several() else time.monotonic() - saved

    def leave(signum: int | None):
        if signum:
            raise Interrupted(signum, s.out and s.out.path, s.iterations * s.grid.steps)

    s.programs.stopping = lambda: signals.caught is not None
    if s.grid.warmup and (not resume or s.iterations < s.grid.warmup):
        s.state, metrics = s.programs.warmup(s.state)
        if s.programs.part:
            end_early(s.programs.part, None)
        log([make_row(s, -1, metrics, wall(), 0.0)], None, False)
    while not s.over:
        n = min(ROWS, s.grid.rows - s.rows)
        n = min(n, max(1, int(s.config.chunk_seconds / row_seconds)) if row_seconds else 1)
        if s.grid.eval_rows:
            n = min(n, s.grid.eval_rows - s.rows % s.grid.eval_rows)
        n = min([n, *(b - s.rows for b in boundaries if b > s.rows)]) if s.programs.overlaps else 1
        before, dispatched = s.rows, time.perf_counter()
        s.state, metrics, finite = s.programs.chunk(s.state, s.grid.warmup + s.rows * s.grid.row, n)
        if s.programs.part:
            end_early(s.programs.part, finite)
        if pending:
            absorb(False)
        s.rows, pending = before + n, (before, n, metrics, finite, dispatched)
        at_eval = bool(s.grid.eval_rows) and s.rows % s.grid.eval_rows == 0
        due = since_checkpoint() > s.config.checkpoint_minutes * 60
        signals.poll()
        if at_eval or due or signals.caught or s.hooks or s.rows in boundaries or not s.programs.overlaps:
            absorb(at_eval)
        signum = None if pending else signals.caught  # nothing is saved that was not checked and logged
        if due or signum:
            checkpoint()
        leave(signum)
    if pending:
        absorb(False)
    if not signals.caught:  # else whoever resumes evaluates
        evaluated = s.history and "eval_return" in s.history[-1].metrics
        try:
            s.eval_return = s.history[-1].metrics["eval_return"] if evaluated else evaluate(s)
        except HostError as error:
            s.wall_seconds = wall()
            give_up(error)
    s.wall_seconds = wall()
    checkpoint()
    leave(signals.caught)
    if s.out:
        checkpoints.wait()
        s.out.finish(s)
        leave(signals.caught)
