"""Saving a run, and messages about its checkpoints after a failure."""

from __future__ import annotations

import shlex
import time
from collections.abc import Sequence
from pathlib import Path

from jaxrl_fast import distributed
from jaxrl_fast.errors import WriteError
from jaxrl_fast.files.forms import to_json
from jaxrl_fast.logs.sinks import Sink
from jaxrl_fast.runs.checkpoints.store import Checkpoints
from jaxrl_fast.runs.result import Result
from jaxrl_fast.runs.rundir import whole_run


class Saver:
    """Saves a run: log, best agents, whole state; nothing without `checkpoints`."""

    def __init__(self, run: Result, checkpoints: Checkpoints | None, sinks: Sequence[Sink]):
        self.run, self.checkpoints, self.sinks = run, checkpoints, sinks
        self.begin(True)

    def begin(self, new: bool) -> None:
        """Start counting. new: the run has no checkpoint yet."""
        self.at, self.rows = time.monotonic(), self.run.rows  # of the newest checkpoint, as `iterations`
        self.iterations = None if new else self.run.progress.iterations

    def due(self, row_seconds: float | None) -> bool:
        """Return whether a checkpoint is due; several processes use their common pace."""
        since = time.monotonic() - self.at
        if distributed.several():
            since = (self.run.rows - self.rows) * (row_seconds or 0.0)
        return since > self.run.config.checkpoint_minutes * 60

    def save(self) -> None:
        """Write what is missing on disk, from a snapshot safe from donation."""
        run, lanes = self.run, self.run.lanes
        if self.checkpoints:
            with lanes.programs.paused(), lanes.programs.clock.during("write"):
                self.flush()
                self._save_best()
                if self.iterations != run.progress.iterations:
                    self.iterations = run.progress.iterations
                    meta = run.progress.metadata() | lanes.who()
                    meta |= {"env_steps": run.env_steps, "seconds": run.seconds, "wall_seconds": run.wall_seconds}
                    newest = self.checkpoints.latest("last")  # a partial row has no own number
                    number = run.rows if newest is None else max(run.rows, newest + 1)
                    self.checkpoints.save("last", number, lanes.programs.snapshot(lanes.state), to_json(meta))
        self.at, self.rows = time.monotonic(), run.rows

    def _save_best(self) -> None:
        """Write the best agents if not on disk yet.

        Their number is their row's, or a later one, because the newest is kept. A killed run
        resumed with another horizon may find a better agent in an earlier row than the one on disk.
        """
        best = self.run.best
        if best.agent is None:
            return
        newest = self.checkpoints.latest("best")
        number = best.rows if newest is None else max(best.rows, newest + 1)
        self.checkpoints.save("best", number, best.agent, to_json(best.metadata()))
        best.agent = None

    def flush(self) -> None:
        for sink in self.sinks:
            sink.flush()

    def wait(self) -> None:
        """Wait until everything, the log too, is on disk."""
        self.checkpoints.wait()
        self.flush()

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
            return f"; {error}{standing(run.out.path)}"
        number = checkpoints.newest("last")
        if number is not None:
            good = checkpoints.folder / "last" / str(number)
            return f"; the last good checkpoint is {good} (go on with {resuming(run.out.path)})"
        none = f"; no checkpoint was due before it (checkpoint_minutes = {run.config.checkpoint_minutes:g})"
        best = checkpoints.newest("best") is not None
        return none + (f", the best agent until then is in {checkpoints.folder / 'best'}" if best else "")


def standing(path: Path) -> str:
    """Return a text about the remains of a run that cannot write its directory, and the remedy."""
    again = "start the run again"
    if whole_run(path) != path:
        again = f"once it can be written again, go on with {resuming(path)}, which begins {path.name} anew"
    if not (path / "config.json").is_file():  # orbax recreates the folders of a checkpoint
        return f"; {path} is gone: {again}"
    with Checkpoints(path / "checkpoints", read_only=True) as checkpoints:
        number = checkpoints.newest("last")
    if number is None:
        return f"; there is no whole checkpoint: {again}"
    good = checkpoints.folder / "last" / str(number)
    return f"; {good} is whole: once it can be written again, go on with {resuming(path)}"


def resuming(path: Path) -> str:
    """Return the command that resumes a run, or the run that a seed belongs to."""
    path = whole_run(path)
    return f"jaxrl-fast train --resume {shlex.quote(str(path))} or, from Python, jf.resume({str(path)!r})"
