"""`jf.train`, and what stands around a run: what is opened for it, and closed again."""

from __future__ import annotations

import contextlib
import dataclasses
import functools
import sys
import warnings
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import Any

from jaxrl_fast import distributed, runtime
from jaxrl_fast.algorithms.base import Algorithm
from jaxrl_fast.engine.config import RunConfig, run_config
from jaxrl_fast.engine.grid import Grid
from jaxrl_fast.engine.members import in_turn
from jaxrl_fast.engine.prepared import Prepared, prepare
from jaxrl_fast.envs.base import Environment
from jaxrl_fast.errors import RunError, WriteError
from jaxrl_fast.files import folders
from jaxrl_fast.logs.progress import ProgressSink
from jaxrl_fast.logs.sinks import Sink, check_hooks, check_sinks
from jaxrl_fast.logs.terminal import is_watched
from jaxrl_fast.logs.walltime import WallTime
from jaxrl_fast.memory import identity
from jaxrl_fast.runs.checkpoints.metadata import Progress
from jaxrl_fast.runs.checkpoints.save import standing
from jaxrl_fast.runs.checkpoints.store import Checkpoints
from jaxrl_fast.runs.lanes import Lanes
from jaxrl_fast.runs.loop import AS_IT_WAS, NEW, Hook, Trainer
from jaxrl_fast.runs.result import Result
from jaxrl_fast.runs.rundir import RunDir, check_free, check_outside, described, seed_folder
from jaxrl_fast.runs.seeds_in_turn import SeedsInTurn, Sinks, sinks_of_each
from jaxrl_fast.runs.signals import Interrupted, Signals, run_so_far
from jaxrl_fast.runs.start_from import given_by


def train(
    algo: Algorithm,
    env: Environment,
    total_steps: int = 500_000,
    *,
    out: str | Path | None = None,
    hooks: Sequence[Hook] = (),
    sinks: Sequence[Sink] | Sinks = (),
    tensorboard: bool = True,
    progress: bool | None = None,
    about: dict[str, Any] | None = None,
    **settings: Any,
) -> Result | SeedsInTurn:
    """Train one seed or a population in one program, and return the run.

    The fields of `RunConfig` are the keyword settings (`seeds`, `population`, ...).

    Seeds of environments on the host train one after another, each as a run of its own in `out`/seed-N; what is returned
    of them reads as a `Result` does.

    out: a run directory to write (config, metrics, checkpoints, result, pictures); None keeps everything in memory.
    progress: a live bar, or plain lines; None: where somebody looks, on a terminal or in a notebook.
    about: more keys for config.json, such as the modules to import first ("imports").
    start_from: what every member begins with: a run directory or a run (its trained agent), an `Agent`, or parameters.
    hooks: `hook(run, rows)` after every chunk, with the `Result` so far.
    sinks: see `jaxrl_fast.logs.sinks`; closed at the end. A function of the `RunConfig` makes them for each run, which seeds
    that train one after another need.
    Raises ConfigError for bad settings, NonFiniteError when a metric or a parameter is no longer finite, and `Interrupted`, a
    KeyboardInterrupt whose `run` is the run so far, after Ctrl-C. In a notebook and at a Python prompt Ctrl-C returns that run
    instead. Its `resume` goes on as if it had never stopped, with `out` and without.
    """
    if out is not None:
        out = folders.folder_path("out", out)
        distributed.on_first(lambda: check_outside(out))
    return run_so_far(lambda: start(algo, env, total_steps, out, hooks, sinks, tensorboard, progress, about, **settings))


def start(
    algo: Algorithm, env: Environment, total_steps: int = 500_000, out: str | Path | None = None, hooks=(), sinks=(),
    tensorboard: bool = True, progress: bool | None = None, about: dict[str, Any] | None = None, **settings: Any,
) -> Result:  # fmt: skip
    """`train` for callers that stop when the run does: Ctrl-C raises `Interrupted` everywhere."""
    check_hooks(hooks)
    progress = is_watched(sys.stderr) if progress is None else progress
    prepared = prepare(algo, env, at_start(run_config(total_steps, settings)), about)
    source = None if isinstance(settings.get("start_from"), (str, Path)) else settings.get("start_from")
    return begin(prepared, out, hooks, sinks, tensorboard, progress, source)


def begin(
    prepared: Prepared, out: str | Path | None, hooks=(), sinks=(), tensorboard: bool = True, progress: bool = False,
    source: Any = None,
) -> Result | SeedsInTurn:  # fmt: skip
    """`start` of a run that is prepared. source: the object of `start_from`, where it is no run directory."""
    create = None
    if out is not None:
        out = folders.folder_path("out", out)
        prepared = check_out(out, prepared)
        create = lambda: distributed.on_first(lambda: RunDir.create(out, prepared)) or RunDir(out)
    if in_turn(prepared.env, prepared.config):
        return _begin_in_turn(prepared, create, hooks, sinks_of_each(sinks), tensorboard, progress, source)
    sinks = sinks(prepared.config) if callable(sinks) else sinks
    return run_prepared(prepared, create, hooks, sinks, tensorboard, progress, source=source)


def _begin_in_turn(prepared, create, hooks, make_sinks, tensorboard, progress, source) -> SeedsInTurn:
    """`begin` of seeds that train one after another."""
    rundir = None

    def train_seed(member: int, sinks: Sequence[Sink]) -> Result:
        part = prepared.seed(member)
        folder = rundir and seed_folder(rundir.path, part.config.seed)
        return begin(part, folder, hooks, sinks, tensorboard, progress, source)

    try:
        with contextlib.ExitStack() as stack:
            if create:
                rundir = create()
                stack.callback(rundir.release)
            return SeedsInTurn(prepared, rundir, train_seed, make_sinks, progress).train()
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


def run_prepared(prepared, open_rundir, hooks=(), sinks=(), tensorboard=True, progress=False, saved=None, source=None):
    """Build a run, restore it if asked, train it to its end, and close what was opened.

    `open_rundir()` is called once it is clear that the run fits the device, so a refused run leaves nothing behind;
    nor does one that fails before its first row.  saved: the checkpoint to go on from (`Saved`).
    source: the object of `start_from`, where it is no run directory.
    """
    runtime.enable_compile_cache()
    clock, rundir = WallTime("compile"), None
    if distributed.several():
        content = described(prepared).content
        distributed.check_same("config", {k: content[k] for k in ("algorithm", "environment", "run", "versions")})
        sinks, progress = (sinks, progress) if distributed.is_first() else ((), False)
    config = prepared.config
    given = None if saved else given_by(config, source, prepared.members.first.algo)
    done = saved.progress if saved else Progress(reached=[None] * config.members)
    with Signals() as signals:  # a second signal does not keep `discard` from its work
        try:
            with _closing(sinks) as stack:
                bar = _progress_bar(stack, prepared.grid, "compiling") if progress else []
                with signals.at_once(AS_IT_WAS if saved else NEW):
                    lanes = Lanes(prepared, saved.members if saved else range(config.members), clock, done.reported)
                    stack.callback(lambda: lanes.programs.give_up())
                    lanes.programs.compile(lanes.keys())
                rundir = open_rundir() if open_rundir else None
                if rundir:
                    stack.callback(rundir.release)
                    distributed.check_shared(rundir.path / "config.json")
                run = Result(prepared, lanes, rundir, done)
                _play(run, hooks, signals, stack, bar, sinks, tensorboard, given, saved)
        except BaseException as error:
            if rundir and saved is None and distributed.is_first():
                rundir.discard()
            if rundir and isinstance(error, WriteError):
                raise RunError(f"{error}{standing(rundir.path)}") from error
            raise
    return _heeded(run, signals)


def _play(run: Result, hooks, signals: Signals, stack: contextlib.ExitStack, bar, sinks, tensorboard, given=None, saved=None):
    """A run to its end, with its log and its checkpoints opened for it."""
    written = run.out.sinks(tensorboard) if run.out and distributed.is_first() else []
    for sink in written:
        stack.callback(_close, sink)
    keep = run.config.keep_checkpoints
    checkpoints = stack.enter_context(Checkpoints(run.out.checkpoints, keep=keep)) if run.out else None
    run.go_on = functools.partial(_go_on, run, hooks, tensorboard, bool(bar))
    try:
        Trainer(run, hooks, [*bar, *written, *sinks], checkpoints, signals).train(given, saved)
    finally:
        run.lanes.programs.clock.stop()
    run.go_on = None  # nothing is left to train


def _go_on(run: Result, hooks, tensorboard: bool, progress: bool, sinks: Sequence[Sink]) -> Result:
    """Go on with a run that was interrupted, from memory."""
    run.lanes.programs.clock.switch("compile")
    lock = folders.held("resume", run.out.path) if run.out else contextlib.nullcontext()
    with lock, Signals() as signals, _closing(sinks) as stack:
        bar, run.stop_requested = _progress_bar(stack, run.grid) if progress else [], False
        stack.callback(run.lanes.programs.give_up)
        try:
            _play(run, hooks, signals, stack, bar, sinks, tensorboard)
        except WriteError as error:
            raise RunError(f"{error}{standing(run.out.path)}") from error
    return _heeded(run, signals)


def _heeded(run: Result, signals: Signals) -> Result:
    """The run, unless a signal came while what it wrote was being closed."""
    if signals.caught is not None:
        raise Interrupted.of(run, signals.caught)
    return run


@contextlib.contextmanager
def _closing(sinks: Sequence[Sink]) -> Iterator[contextlib.ExitStack]:
    """A stack of what is closed at the end of a run, the user's sinks among it."""
    with contextlib.ExitStack() as stack:
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
