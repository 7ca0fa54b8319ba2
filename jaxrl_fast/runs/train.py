"""`jf.train`, and the resources around a run: opening and closing them."""

from __future__ import annotations

import contextlib
import dataclasses
import functools
import sys
import warnings
from collections.abc import Callable, Iterator, Sequence
from pathlib import Path
from typing import Any, NamedTuple, Unpack

from jaxrl_fast import distributed, runtime
from jaxrl_fast.algorithms.base import Algorithm
from jaxrl_fast.algorithms.presets import resolve_names
from jaxrl_fast.engine.config import RunConfig, run_config
from jaxrl_fast.engine.grid import Grid
from jaxrl_fast.engine.keywords import RunSettings
from jaxrl_fast.engine.members import in_turn
from jaxrl_fast.engine.prepared import Prepared, check_metric, prepare
from jaxrl_fast.engine.programs import Context
from jaxrl_fast.engine.tuned import add_tuned
from jaxrl_fast.envs import registry
from jaxrl_fast.envs.base import Environment
from jaxrl_fast.errors import RunError, WriteError
from jaxrl_fast.files import folders
from jaxrl_fast.logs.notebook import display
from jaxrl_fast.logs.rows import Row
from jaxrl_fast.logs.sinks import Guarded, Sink, check_hooks, check_sinks
from jaxrl_fast.logs.terminal import shows
from jaxrl_fast.memory import identity
from jaxrl_fast.runs import videos
from jaxrl_fast.runs.checkpoints.metadata import Progress, Saved
from jaxrl_fast.runs.checkpoints.save import describe_last_good
from jaxrl_fast.runs.checkpoints.store import Checkpoints
from jaxrl_fast.runs.dependencies import DEPENDENCIES, Dependencies
from jaxrl_fast.runs.description import add_content
from jaxrl_fast.runs.lanes import Lanes
from jaxrl_fast.runs.loop import AS_IT_WAS, NEW, Hook, Trainer
from jaxrl_fast.runs.result import Result
from jaxrl_fast.runs.rundir import AUTO, RunDir, check_free, check_outside, numbered, seed_folder
from jaxrl_fast.runs.seeds_in_turn import SeedsInTurn, Sinks, sinks_of_each
from jaxrl_fast.runs.sentinel import warn_of_idle_card, warn_of_settings
from jaxrl_fast.runs.signals import Interrupted, Signals, run_so_far
from jaxrl_fast.runs.start_from import Given, start_of
from jaxrl_fast.values import naming_path


def train(
    algo: Algorithm | str, env: Environment | str, total_steps: int | None = None, *,
    out: str | Path | None = None, hooks: Sequence[Hook] = (),
    sinks: Sequence[Sink] | Sinks = (), tensorboard: bool = True,
    progress: bool | None = None, about: dict[str, Any] | None = None,
    **settings: Unpack[RunSettings],
) -> Result | SeedsInTurn:  # fmt: skip
    """Train one seed or a population in one program, and return the run.

    The fields of `RunConfig` are keyword settings (`seeds`, `population`, ...). Seeds of
    environments on the host train one after another, each as a run in `out`/seed-N; their result
    reads like a `Result`.

    Args:
        algo, env: objects or names. Two names, `jf.train("ppo", "CartPole-v1")`, take their preset
            as `jaxrl-fast train` does: settings of the algorithm, the run and the environment. The
            name of an environment beside an algorithm object takes no preset.
        total_steps: environment steps of one member; None: the preset's, else 500,000.
        out: run directory (config, metrics, checkpoints, result, pictures); None: all in memory;
            "auto": a new one in `runs/`, named after algorithm, environment and seed and numbered.
        hooks: `hook(run, rows)` after every chunk, with the `Result` so far.
        sinks: see `jaxrl_fast.logs.sinks`; closed at the end. A function of the `RunConfig` makes
            them for each run, as seeds that take turns need.
        tensorboard: write TensorBoard events to `out`.
        progress: a cell that updates in place, a live bar, or plain lines; None: in a notebook or
            on a terminal.
        about: more keys for config.json, such as the modules to import first ("imports").
        start_from: a run directory, a run, an `Agent` or parameters, for every member's start.

    Raises:
        ConfigError: bad settings.
        NonFiniteError: a metric or parameter is not finite.
        Interrupted: after Ctrl-C; a KeyboardInterrupt with the run so far as `run`. A notebook or
            prompt gets that run instead. Its `resume` continues it, with and without `out`.
    """
    if out not in (None, AUTO):
        out = folders.folder_path("out", out)
        distributed.on_first(lambda: check_outside(out))
    if "dependencies" in settings:  # of `start` alone
        run_config(total_steps, settings)
    return run_so_far(lambda: start(algo, env, total_steps, out,
                                    hooks, sinks, tensorboard, progress, about, **settings))


def start(
    algo: Algorithm | str, env: Environment | str, total_steps: int | None = None,
    out: Path | str | None = None, hooks=(), sinks=(),
    tensorboard: bool = True, progress: bool | None = None, about: dict[str, Any] | None = None,
    dependencies: Dependencies = DEPENDENCIES, **settings: Any,
) -> Result:  # fmt: skip
    """Train for callers that stop with the run: Ctrl-C always raises `Interrupted`.

    dependencies: other programs, signals or filming, for tests.
    """
    check_hooks(hooks)
    progress = shows(progress)
    algo, env, total_steps, settings, about = resolve_names(algo, env, total_steps, settings, about)
    config = at_start(run_config(total_steps, settings, algo))
    prepared, tuned = add_tuned(prepare(algo, env, config, about))
    if tuned and progress:
        print(f"speed: {tuned}; tuned=False leaves it out", file=sys.stderr)
    if out == AUTO:
        out = numbered("runs", algo.name, registry.name_of(env), f"s{prepared.config.seed}")
        distributed.on_first(lambda: check_outside(out))
    source = settings.get("start_from")
    source = None if isinstance(source, (str, Path)) else source
    return begin(prepared, out, Around(hooks, sinks, tensorboard, progress, dependencies), source)


class Around(NamedTuple):
    """Hooks, sinks and display around a run, see `train`."""

    hooks: Sequence[Hook] = ()
    sinks: Sequence[Sink] | Sinks = ()
    tensorboard: bool = True
    progress: bool = False
    dependencies: Dependencies = DEPENDENCIES


def begin(
    prepared: Prepared, out: Path | None, around: Around = Around(), source: Any = None
) -> Result | SeedsInTurn:
    """Start a prepared run. source: the object of `start_from`, unless it is a directory."""
    create = None
    if out is not None:
        prepared = check_out(out, prepared)
        create = lambda: distributed.on_first(lambda: RunDir.create(out, prepared)) or RunDir(out)
    if not in_turn(prepared.env, prepared.config):
        return run_prepared(prepared, create, around, source=source)
    make_sinks, rundir = sinks_of_each(around.sinks), None

    def train_seed(part: Prepared, sinks: Sequence[Sink]) -> Result:
        folder = rundir and seed_folder(rundir.path, part.config.seed)
        return begin(part, folder, around._replace(sinks=sinks), source)

    try:
        with contextlib.ExitStack() as stack:
            if create:
                rundir = create()
                stack.callback(rundir.release)
            return SeedsInTurn(prepared, rundir, train_seed, make_sinks, around.progress).train()
    except BaseException:
        if rundir:
            rundir.discard()
        raise


def at_start(config: RunConfig) -> RunConfig:
    """Return the config with its start fixed: horizon, and identity of the experience."""
    if config.experience and not config.experience_id:
        with naming_path("experience"):
            config = dataclasses.replace(config, experience_id=identity(config.experience))
    return config if config.horizon else dataclasses.replace(config, horizon=config.total_steps)


def check_out(out: Path, prepared: Prepared) -> Prepared:
    """Return the run with config.json's content. Raises ConfigError if `out` cannot hold it."""
    prepared = add_content(prepared)
    distributed.on_first(lambda: check_free(out))
    return prepared


def check_start(prepared: Prepared, hooks=(), source: Any = None, resumes=False) -> Given | None:
    """Return the start of a new run's agents; raises for what the settings alone do not show."""
    videos.check(prepared.config)
    if not hooks:  # hooks may add the metric to the log
        check_metric(prepared)
    return None if resumes else start_of(prepared.config, source, prepared.members.first.algo)


def run_prepared(
    prepared: Prepared, open_rundir: Callable[[], RunDir] | None, around: Around,
    saved: Saved | None = None, source: Any = None,
) -> Result:  # fmt: skip
    """Build a run, restore `saved` if given, train it to its end, and close its resources.

    `open_rundir()` is called once the run is known to fit the device, so a refused run leaves no
    files; neither does a failure before the first row.
    """
    if callable(around.sinks):
        around = around._replace(sinks=around.sinks(prepared.config))
    given = check_start(prepared, around.hooks, source, resumes=saved is not None)
    runtime.enable_compile_cache()
    warn_of_idle_card()
    if saved is None and given is None:
        warn_of_settings(prepared.members.run.algo)
    config, signals, rundir = prepared.config, around.dependencies.signals(), None
    done = saved.progress if saved else Progress(reached=[None] * config.members)
    context = Context(done.reported, lambda: signals.caught)  # its clock starts here
    if distributed.several():
        content = add_content(prepared).content
        same = ("algorithm", "environment", "run", "versions")
        distributed.check_same("config", {k: content[k] for k in same})
        around = around if distributed.is_first() else around._replace(sinks=(), progress=False)
    # a second signal must stop neither `discard` nor the collection of garbage after it
    with signals, runtime.pause_gc():
        try:
            with _closing(around, prepared.grid, context.history) as (stack, bar):
                for sink in bar:
                    sink.status("compiling")
                with signals.at_once(AS_IT_WAS if saved else NEW):
                    lanes = Lanes(prepared, saved.members if saved else range(config.members),
                                  context, around.dependencies.programs)
                    stack.callback(lambda: lanes.programs.give_up())
                    lanes.programs.compile(lanes.keys())
                rundir = open_rundir() if open_rundir else None
                if rundir:
                    stack.callback(rundir.release)
                    distributed.check_shared(rundir.path / "config.json")
                run = Result(prepared, lanes, rundir, done)
                _play(run, around, signals, stack, bar, given, saved)
        except BaseException as error:
            if rundir and saved is None and distributed.is_first():
                rundir.discard()
            if rundir and isinstance(error, WriteError):
                raise RunError(f"{error}{describe_last_good(rundir.path)}") from error
            raise
    return _raise_if_signalled(run, signals)


def _play(run: Result, around: Around, signals: Signals, stack: contextlib.ExitStack,
          bar, given=None, saved=None) -> None:
    written = run.out.sinks(around.tensorboard) if run.out and distributed.is_first() else []
    for sink in written:
        stack.push(functools.partial(_close, sink))
    keep = run.config.keep_checkpoints
    checkpoints = None
    if run.out:
        checkpoints = stack.enter_context(Checkpoints(run.out.checkpoints, keep=keep))
    run.go_on = lambda sinks: _go_on(run, around._replace(sinks=sinks), signals)
    try:
        sinks = [*bar, *written, *map(Guarded, around.sinks)]
        trainer = Trainer(run, around.hooks, sinks, checkpoints, signals,
                          around.dependencies.filming)
        trainer.train(given, saved)
    finally:
        run.lanes.programs.clock.switch("")
    run.go_on = None  # training is finished


def _go_on(run: Result, around: Around, signals: Signals) -> Result:
    run.lanes.programs.clock.switch("compile")
    lock = folders.hold_lock("resume", run.out.path) if run.out else contextlib.nullcontext()
    with lock, signals, _closing(around, run.grid, run.history) as (stack, bar):
        run.stop_requested = False
        stack.callback(run.lanes.programs.give_up)
        try:
            _play(run, around, signals, stack, bar)
        except WriteError as error:
            raise RunError(f"{error}{describe_last_good(run.out.path)}") from error
    return _raise_if_signalled(run, signals)


def _raise_if_signalled(run: Result, signals: Signals) -> Result:
    """Return the run, or raise Interrupted for a signal during closing."""
    if signals.caught is not None:
        raise Interrupted.of(run, signals.caught)
    return run


@contextlib.contextmanager
def _closing(
    around: Around, grid: Grid, history: Sequence[Row]
) -> Iterator[tuple[contextlib.ExitStack, list[Sink]]]:
    """Return a stack of resources to close at a run's end, and its progress display, if any."""
    with contextlib.ExitStack() as stack:
        first, last = grid.env_steps(0), grid.env_steps(grid.rows)
        bar = [display(last, history, first)] if around.progress else []
        for sink in (*check_sinks(around.sinks), *bar):
            stack.push(functools.partial(_close, sink))
        yield stack, bar


def _close(sink: Sink, error: type[BaseException] | None, *_: Any) -> None:
    """Close a sink; a failure (a full disk) must not hide the run's own error.

    error: the class of the run's error, None without one.
    """
    failed = "interrupted" if error and issubclass(error, KeyboardInterrupt) else "failed"
    try:
        sink.ended(failed if error else "finished")
        sink.close()
    except Exception as error:
        warnings.warn(f"{type(sink).__name__} could not be closed: {error}", stacklevel=1)
