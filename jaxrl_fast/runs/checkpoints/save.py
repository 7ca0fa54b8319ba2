"""What a run saves, and what is said of its checkpoints when it can't go on."""

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
    """Saves a run: the log, the best agents, then the whole state. In memory, without `checkpoints`, there is nothing to do."""

    def __init__(self, run: Result, checkpoints: Checkpoints | None, sinks: Sequence[Sink]):
        self.run, self.checkpoints, self.sinks = run, checkpoints, sinks
        self.at, self.rows = time.monotonic(), run.rows  # when the newest checkpoint was taken
        self.iterations: int | None = None  # of the newest checkpoint

    def begin(self, new: bool) -> None:
        """Begin to count. new: whether the run has no checkpoint yet."""
        self.at, self.rows = time.monotonic(), self.run.rows
        self.iterations = None if new else self.run.progress.iterations

    def due(self, row_seconds: float | None) -> bool:
        """Whether it is time. Several processes go by the pace that they share, not by their clocks."""
        since = time.monotonic() - self.at
        if distributed.several():
            since = (self.run.rows - self.rows) * (row_seconds or 0.0)
        return since > self.run.config.checkpoint_minutes * 60

    def save(self) -> None:
        """Write what is not on disk yet, from a snapshot that no donation can touch."""
        run, lanes = self.run, self.run.lanes
        if self.checkpoints:
            with lanes.programs.paused(), lanes.programs.clock.during("write"):
                self.flush()
                self._save_best()
                if self.iterations != run.progress.iterations:
                    self.iterations = run.progress.iterations
                    meta = run.progress.metadata() | lanes.who()
                    meta |= {"env_steps": run.env_steps, "seconds": run.seconds, "wall_seconds": run.wall_seconds}
                    newest = self.checkpoints.latest("last")  # a part of a row has no number of its own
                    number = run.rows if newest is None else max(run.rows, newest + 1)
                    self.checkpoints.save("last", number, lanes.programs.snapshot(lanes.state), to_json(meta))
        self.at, self.rows = time.monotonic(), run.rows

    def _save_best(self) -> None:
        """Write the best agents, if they are not on disk yet.

        Their number is that of their row, or a later one: the newest is kept, and a run that was killed before its `last`
        was written and resumed with another horizon may find a better agent in an earlier row than the one on disk.
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
        """Until all of it is on disk, the log too."""
        self.checkpoints.wait()
        self.flush()

    def rescue(self) -> str:
        """Put the log and the best agents of a failed run on the disk; says which checkpoints there are."""
        run, checkpoints = self.run, self.checkpoints
        try:
            self.flush()
            if checkpoints is None:
                return ""
            self._save_best()
            checkpoints.wait()
        except WriteError as error:  # what ended the run comes first
            return f"; {error}{standing(run.out.path)}"
        number = checkpoints.newest("last")
        if number is not None:
            good = checkpoints.folder / "last" / str(number)
            return f"; the last good checkpoint is {good} (go on with {resuming(run.out.path)})"
        none = f"; no checkpoint was due before it (checkpoint_minutes = {run.config.checkpoint_minutes:g})"
        best = checkpoints.newest("best") is not None
        return none + (f", the best agent until then is in {checkpoints.folder / 'best'}" if best else "")


def standing(path: Path) -> str:
    """What is left of a run that can no longer write to its directory, and how to go on."""
    again = "start the run again"
    if whole_run(path) != path:
        again = f"once it can be written again, go on with {resuming(path)}, which begins {path.name} anew"
    if not (path / "config.json").is_file():  # orbax makes the folders of a checkpoint again
        return f"; {path} is gone: {again}"
    with Checkpoints(path / "checkpoints", read_only=True) as checkpoints:
        number = checkpoints.newest("last")
    if number is None:
        return f"; there is no whole checkpoint: {again}"
    good = checkpoints.folder / "last" / str(number)
    return f"; {good} is whole: once it can be written again, go on with {resuming(path)}"


def resuming(path: Path) -> str:
    """Say what to type to go on with a run, or with the one that a seed is a part of."""
    path = whole_run(path)
    return f"jaxrl-fast train --resume {shlex.quote(str(path))} or, from Python, jf.resume({str(path)!r})"
