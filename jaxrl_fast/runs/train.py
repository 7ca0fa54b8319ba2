"""`jf.train`, and what stands around a session: what is opened for it, and closed again."""

from __future__ import annotations

import contextlib
import dataclasses
import functools
import sys
import time
import warnings
from collections.abc import Callable, Iterator, Sequence
from pathlib import Path
from typing import Any

import jax
import numpy as np

from jaxrl_fast import distributed, runtime
from jaxrl_fast.algorithms.base import Algorithm
from jaxrl_fast.engine.backend import backend_of
from jaxrl_fast.engine.config import RunConfig, run_config
from jaxrl_fast.engine.grid import Grid
from jaxrl_fast.engine.members import in_turn, leaf_names
from jaxrl_fast.engine.prepared import Prepared, prepare
from jaxrl_fast.envs.base import Environment
from jaxrl_fast.errors import RunError, WriteError
from jaxrl_fast.files import folders
from jaxrl_fast.logs.progress import ProgressSink
from jaxrl_fast.logs.rows import Row
from jaxrl_fast.logs.sinks import Sink, check_hooks, check_sinks
from jaxrl_fast.logs.terminal import is_watched
from jaxrl_fast.logs.walltime import WallTime
from jaxrl_fast.memory import forget_experience, identity
from jaxrl_fast.runs.checkpoint import Checkpoints
from jaxrl_fast.runs.loop import COMPILING, Trainer
from jaxrl_fast.runs.rundir import RunDir, check_free, check_outside, described, seed_folder
from jaxrl_fast.runs.saves import standing
from jaxrl_fast.runs.seeds_in_turn import SeedsInTurn, Sinks, sinks_of_each
from jaxrl_fast.runs.session import Session, root_keys
from jaxrl_fast.runs.signals import Interrupted, Signals, run_so_far
from jaxrl_fast.runs.start_from import given_by


def train(
    algo: Algorithm,
    env: Environment,
    total_steps: int = 500_000,
    *,
    out: str | Path | None = None,
    hooks: Sequence[Callable[[Session, list[Row]], None]] = (),
    sinks: Sequence[Sink] | Sinks = (),
    tensorboard: bool = True,
    progress: bool | None = None,
    about: dict[str, Any] | None = None,
    **settings: Any,
) -> Session | SeedsInTurn:
    """Train one seed or a population in one program, and return the run.

    The fields of `RunConfig` are the keyword settings (`seeds`, `population`, ...).

    Seeds of environments on the host train one after another, each as a run of its own in `out`/seed-N; what is returned
    of them reads as a `Session` does.

    out: a run directory to write (config, metrics, checkpoints, result, pictures); None keeps everything in memory.
    progress: a live bar, or plain lines; None: where somebody looks, on a terminal or in a notebook.
    about: more keys for config.json, such as the modules to import first ("imports").
    start_from: what every member begins with: a run directory or a run (its trained agent), an `Agent`, or parameters.
    hooks: `hook(session, rows)` after every chunk.  sinks: see `jaxrl_fast.logs.sinks`; closed at the end. A function of the
    `RunConfig` makes them for each run, which seeds that train one after another need.
    Raises ConfigError for bad settings, NonFiniteError when a metric or a parameter is no longer finite, and `Interrupted`, a
    KeyboardInterrupt whose `run` is the session, after Ctrl-C. In a notebook and at a Python prompt Ctrl-C returns that session
    instead. Its `resume` goes on as if it had never stopped, with `out` and without.
    """
    if out is not None:
        out = folders.folder_path("out", out)
        distributed.on_first(lambda: check_outside(out))
    return run_so_far(lambda: start(algo, env, total_steps, out, hooks, sinks, tensorboard, progress, about, **settings))


def start(
    algo: Algorithm, env: Environment, total_steps: int = 500_000, out: str | Path | None = None, hooks=(), sinks=(),
    tensorboard: bool = True, progress: bool | None = None, about: dict[str, Any] | None = None, **settings: Any,
) -> Session:  # fmt: skip
    """`train` for callers that stop when the run does: Ctrl-C raises `Interrupted` everywhere."""
    check_hooks(hooks)
    progress = is_watched(sys.stderr) if progress is None else progress
    prepared = prepare(algo, env, at_start(run_config(total_steps, settings)), about)
    source = None if isinstance(settings.get("start_from"), (str, Path)) else settings.get("start_from")
    return begin(prepared, out, hooks, sinks, tensorboard, progress, source)


def begin(
    prepared: Prepared, out: str | Path | None, hooks=(), sinks=(), tensorboard: bool = True, progress: bool = False,
    source: Any = None,
) -> Session | SeedsInTurn:  # fmt: skip
    """`start` of a run that is prepared. source: the object of `start_from`, where it is no run directory."""
    create = None
    if out is not None:
        out = folders.folder_path("out", out)
        prepared = check_out(out, prepared)
        create = lambda: distributed.on_first(lambda: RunDir.create(out, prepared)) or RunDir(out)
    if in_turn(prepared.env, prepared.config):
        return _begin_in_turn(prepared, create, hooks, sinks_of_each(sinks), tensorboard, progress, source)
    sinks = sinks(prepared.config) if callable(sinks) else sinks
    return run_session(prepared, create, hooks, sinks, tensorboard, progress, source=source)


def _begin_in_turn(prepared, create, hooks, make_sinks, tensorboard, progress, source) -> SeedsInTurn:
    """`begin` of seeds that train one after another."""
    rundir = None

    def train_seed(member: int, sinks: Sequence[Sink]) -> Session:
        part = prepared.seed(member)
        folder = rundir and seed_folder(rundir.path, part.config.seed)
        return begin(part, folder, hooks, sinks, tensorboard, progress, source)

    try:
        with contextlib.ExitStack() as stack:
            if create:
                rundir = create()
                stack.callback(rundir.release)
            p = prepared
            return SeedsInTurn(p.bound, p.env, p.config, rundir, train_seed, make_sinks, progress).train()
    except BaseException:
        if rundir:
            rundir.discard()
        raise


def at_start(config: RunConfig) -> RunConfig:
    """With what is fixed from the start on: the horizon, and which experience it is."""
    if config.experience and not config.experience_id:
        config = dataclasses.replace(config, experience_id=identity(config.experience))
    return config if config.horizon else dataclasses.replace(config, horizon=config.total_steps)


def check_out(out: Path, prepared: Prepared) -> Prepared:
    """Return the run with the content of its config.json; before anything is compiled.

    Raises ConfigError where the run cannot be written to `out`, or config.json cannot hold it.
    """
    prepared = described(prepared)
    distributed.on_first(lambda: check_free(out))
    return prepared


def run_session(prepared, open_rundir, hooks=(), sinks=(), tensorboard=True, progress=False, resume=None, source=None):
    """Build the session, restore it if asked, run it to its end, and close what was opened.

    `open_rundir()` is called once it is clear that the run fits the device, so a refused run leaves nothing behind;
    nor does one that fails before its first row.  resume: what the checkpoint to go on from says of itself.
    source: the object of `start_from`, where it is no run directory.
    """
    runtime.enable_compile_cache()
    began, rundir = time.perf_counter(), None
    if distributed.several():
        content = described(prepared).content
        distributed.check_same("config", {k: content[k] for k in ("algorithm", "environment", "run", "versions")})
        sinks, progress = (sinks, progress) if distributed.is_first() else ((), False)
    config, members, selection = prepared.config, prepared.members, prepared.config.selection
    lanes = np.asarray(resume["lanes"] if resume else range(config.members), np.int64)
    given = None if resume else given_by(config, source, members.first.algo)
    settings = {}
    if selection:
        names, leaves = leaf_names(members.first), jax.tree.leaves(members.run)
        settings = {name: np.asarray(leaves[names.index(name)]) for name in selection.traced}
    first_state = "saved" if resume else "new"
    with Signals() as signals:  # a second signal does not keep `discard` from its work
        try:
            with _closing(sinks) as stack:
                bar = _progress_bar(stack, prepared.grid, "compiling") if progress else []
                with signals.at_once(COMPILING[first_state]):
                    programs = backend_of(prepared.env).programs(prepared.take(lanes))
                    programs.clock = WallTime("compile", began)
                    stack.callback(programs.give_up)
                    programs.compile(root_keys(config, programs.population, lanes))
                rundir = open_rundir() if open_rundir else None
                if rundir:
                    stack.callback(rundir.release)
                    distributed.check_shared(rundir.path / "config.json")
                session = Session(
                    prepared, lanes, programs, rundir, bar, hooks,
                    reached=[None] * config.members, selection=selection, settings=settings,
                    checkpoint=resume["number"] if resume else None, given=given,
                )  # fmt: skip
                _play(session, signals, stack, first_state, sinks, tensorboard)
        except BaseException as error:
            if rundir and resume is None and distributed.is_first():
                rundir.discard()
            if rundir and isinstance(error, WriteError):
                raise RunError(f"{error}{standing(rundir.path)}") from error
            raise
    return _heeded(session, signals)


def _play(s: Session, signals: Signals, stack: contextlib.ExitStack, start: str, sinks, tensorboard) -> None:
    """A session to its end, with its log, its checkpoints and `sinks` opened for it; s.sinks: its progress bar, or none."""
    bar, written = list(s.sinks), s.out.sinks(tensorboard) if s.out and distributed.is_first() else []
    for sink in written:
        stack.callback(_close, sink)
    s.sinks = [*bar, *written, *sinks]
    checkpoints = stack.enter_context(Checkpoints(s.out.checkpoints, keep=s.config.keep_checkpoints)) if s.out else None
    s.go_on = functools.partial(_go_on, s, tensorboard, bool(bar))
    try:
        Trainer(s, checkpoints, signals, start).run()
    finally:
        s.programs.clock.stop()
    s.go_on = None  # nothing is left to train


def _go_on(s: Session, tensorboard: bool, progress: bool, sinks: Sequence[Sink]) -> Session:
    """Go on with a session that was interrupted, from memory."""
    s.programs.clock.switch("compile")
    lock = folders.held("resume", s.out.path) if s.out else contextlib.nullcontext()
    with lock, Signals() as signals, _closing(sinks) as stack:
        s.sinks, s.stop_requested = _progress_bar(stack, s.grid) if progress else [], False
        stack.callback(s.programs.give_up)
        try:
            _play(s, signals, stack, "memory", sinks, tensorboard)
        except WriteError as error:
            raise RunError(f"{error}{standing(s.out.path)}") from error
    return _heeded(s, signals)


def _heeded(s: Session, signals: Signals) -> Session:
    """The session, unless a signal came while what it wrote was being closed."""
    if signals.caught is not None:
        raise Interrupted(signals.caught, s.out and s.out.path, s.iterations * s.grid.steps, run=s)
    return s


@contextlib.contextmanager
def _closing(sinks: Sequence[Sink]) -> Iterator[contextlib.ExitStack]:
    """A stack of what is closed at the end of a run, the user's sinks among it."""
    with contextlib.ExitStack() as stack:
        stack.callback(forget_experience)
        for sink in check_sinks(sinks):
            stack.callback(_close, sink)
        yield stack


def _progress_bar(stack: contextlib.ExitStack, grid: Grid, status: str = "") -> list[Sink]:
    bar = ProgressSink(grid.env_steps(grid.rows))
    stack.callback(_close, bar)
    if status:
        bar.status(status)
    return [bar]




def _close(sink: Sink) -> None:
    """A sink that cannot be closed (a full disk) must not hide what ended the run."""
    try:
        sink.close()
    except Exception as error:
        warnings.warn(f"{type(sink).__name__} could not be closed: {error}", stacklevel=1)
