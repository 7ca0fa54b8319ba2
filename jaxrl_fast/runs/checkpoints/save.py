"""Saving and restoring a run, and messages about its checkpoints after a failure."""

from __future__ import annotations

import functools
import shlex
import time
import warnings
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import jax

from jaxrl_fast import distributed
from jaxrl_fast.errors import WriteError
from jaxrl_fast.files.forms import to_json
from jaxrl_fast.logs.sinks import Sink
from jaxrl_fast.runs.checkpoints.arrays import abstract
from jaxrl_fast.runs.checkpoints.errors import DamagedError
from jaxrl_fast.runs.checkpoints.metadata import Saved
from jaxrl_fast.runs.checkpoints.settings import KEY, settings_of
from jaxrl_fast.runs.checkpoints.store import Checkpoints
from jaxrl_fast.runs.logged import describe_holes
from jaxrl_fast.runs.result import Result
from jaxrl_fast.runs.rundir import whole_run


class Saver:
    """Saves and restores a run: log, best agents, whole state; nothing without `checkpoints`."""

    def __init__(self, run: Result, checkpoints: Checkpoints | None, sinks: Sequence[Sink]):
        self.run, self.checkpoints, self.sinks = run, checkpoints, sinks
        self.begin(True)

    @functools.cached_property
    def settings(self) -> dict[str, Any]:
        """Return the metadata of every checkpoint: the settings that it comes from."""
        prepared = self.run.prepared
        return {KEY: settings_of(prepared.algo, prepared.env, prepared.config)}

    def begin(self, new: bool) -> None:
        """Start counting. new: the run has no checkpoint yet."""
        # time and rows of the newest checkpoint, as `iterations`
        self.at, self.rows = time.monotonic(), self.run.rows
        self.iterations = None if new else self.run.progress.iterations

    def restore(self, saved: Saved) -> None:
        """Read the state from `last` and the score to beat from `best`; cut the log there."""
        run, lanes, population = self.run, self.run.lanes, self.run.population
        programs = lanes.programs
        like = jax.eval_shape(programs.unpadded, lanes.state)
        lanes.state = None  # a second one may not fit
        if population.size in (1, population.padded):
            lanes.state = self.checkpoints.restore("last", saved.number,
                                                   population.abstract_state(like))
        else:
            whole = abstract(like, population.replicated)
            lanes.state = programs.padded(self.checkpoints.restore("last", saved.number, whole))
        self.checkpoints.pass_over("last", saved.number)
        lanes.lost = saved.lost
        with self.checkpoints.reading("last", saved.number):
            lanes.change(saved.settings)
        try:
            best = self.checkpoints.read(("best",), self.checkpoints.meta)
        except DamagedError as error:
            best = None
            warnings.warn(f"{error}; the score to beat is that of the next evaluation",
                          stacklevel=2)
        if best is not None:
            run.best.score, run.best.rows = float(best["best_score"]), int(best["best_rows"])
        distributed.on_first(lambda: [sink.cut(run.env_steps) for sink in self.sinks] and None)
        run.history.extend(run.out.history(run.env_steps))
        _warn_of_holes(run)
        distributed.on_first(lambda: run.out.update(run.prepared))  # after the checkpoint

    def sync(self) -> None:
        """Put the names of finished checkpoints on the disk. Raises WriteError."""
        if self.checkpoints:
            self.checkpoints.sync_names()

    def due(self, row_seconds: float | None) -> bool:
        """Return whether a checkpoint is due; several processes use their common pace."""
        since = time.monotonic() - self.at
        if distributed.several():
            since = (self.run.rows - self.rows) * (row_seconds or 0.0)
        return since > self.run.config.checkpoint_minutes * 60

    def save(self) -> None:
        """Write the parts that are missing on disk, from a snapshot safe from donation."""
        run, lanes = self.run, self.run.lanes
        if self.checkpoints:
            with lanes.programs.paused(), lanes.programs.clock.during("write"):
                self.flush()
                self._save_best()
                if self.iterations != run.progress.iterations:
                    self.iterations = run.progress.iterations
                    meta = run.progress.metadata() | lanes.who() | self.settings
                    meta |= {"env_steps": run.env_steps, "seconds": run.seconds,
                             "row_steps": run.grid.row * run.grid.steps,
                             "wall_seconds": run.wall_seconds}
                    newest = self.checkpoints.latest("last")  # a partial row has no own number
                    number = run.rows if newest is None else max(run.rows, newest + 1)
                    self.checkpoints.save("last", number, lanes.programs.snapshot(lanes.state),
                                          to_json(meta))
        self.at, self.rows = time.monotonic(), run.rows

    def _save_best(self) -> None:
        """Write the best agents if not on disk yet.

        Their number is their row's, or higher: with another horizon a better one may come in an
        earlier row.
        """
        best = self.run.best
        if best.agent is None:
            return
        newest = self.checkpoints.latest("best")
        number = best.rows if newest is None else max(best.rows, newest + 1)
        self.checkpoints.save("best", number, best.agent, to_json(best.metadata() | self.settings))
        best.agent = None

    def flush(self) -> None:
        for sink in self.sinks:
            sink.flush()

    def wait(self) -> None:
        """Wait until orbax's threads have written the checkpoints. Raises WriteError."""
        if self.checkpoints:
            self.checkpoints.wait()
        self.flush()

    def raise_saved(self, error: BaseException) -> None:
        """Raise a failure that is not the run's, such as a hook's, after the run is saved."""
        if self.checkpoints and not distributed.several():  # a hook may fail in one of them
            try:
                self.save()
                self.wait()
                error.add_note(f"the run is saved{self.rescue()}")
            except WriteError as unsaved:
                error.add_note(f"the run is not saved: {unsaved}"
                               f"{describe_last_good(self.run.out.path)}")
        raise error

    def rescue(self) -> str:
        """Write the log and best agents of a failed run; return a text about its checkpoints."""
        run, checkpoints = self.run, self.checkpoints
        try:
            self.flush()
            if checkpoints is None:
                return ""
            self._save_best()
            checkpoints.wait()
        except WriteError as error:  # the run's own error comes first
            return f"; {error}{describe_last_good(run.out.path)}"
        number = checkpoints.newest("last")
        if number is not None:
            good = checkpoints.folder / "last" / str(number)
            again = format_resume_command(run.out.path)
            return f"; the last good checkpoint is {good} (go on with {again})"
        none = ("; no checkpoint was due before it (checkpoint_minutes = "
                f"{run.config.checkpoint_minutes:g})")
        best = checkpoints.newest("best") is not None
        return none + (f", the best agent until then is in {checkpoints.folder / 'best'}" if best
                       else "")


def _warn_of_holes(run: Result) -> None:
    there = {row.env_steps for row in run.history}
    missing = [steps for steps in map(run.grid.env_steps, range(1, run.rows + 1))
               if steps not in there]
    if missing and distributed.is_first():
        warnings.warn(
            describe_holes(run.out.metrics, len(missing), run.rows, run.env_steps,
                           f" (the first at {missing[0]:,})")
            + "; the run goes on without them",
            stacklevel=2,
        )


def describe_last_good(path: Path) -> str:
    """Return a text about the remains of a run that cannot write its directory, and the remedy."""
    again = "start the run again"
    if whole_run(path) != path:
        again = (f"once it can be written again, go on with {format_resume_command(path)}, which "
                 f"begins {path.name} anew")
    if not (path / "config.json").is_file():  # orbax recreates the folders of a checkpoint
        return f"; {path} is gone: {again}"
    with Checkpoints(path / "checkpoints", read_only=True) as checkpoints:
        number = checkpoints.newest("last")
    if number is None:
        return f"; there is no whole checkpoint: {again}"
    good = checkpoints.folder / "last" / str(number)
    again = format_resume_command(path)
    return f"; {good} is whole: once it can be written again, go on with {again}"


def format_resume_command(path: Path) -> str:
    """Return the command that resumes a run, or the run that a seed belongs to."""
    path = whole_run(path)
    return (f"jaxrl-fast train --resume {shlex.quote(str(path))} or, from Python, "
            f"jf.resume({str(path)!r})")
