"""The host loop: chunks of one compiled program with donated state, and between them everything that is not maths.

Chunk k's metrics are fetched while chunk k + 1 runs. Logs, progress, evaluation, checkpoints, early stop, NaN checks
and signals live here; none of them is inside the program, and none of them depends on the chunk's size.
"""

from __future__ import annotations

import time
import warnings
from collections.abc import Collection, Sequence
from typing import Any, NamedTuple

import jax
import numpy as np

from jaxrl_fast import distributed
from jaxrl_fast.engine.grid import Grid
from jaxrl_fast.engine.programs import ROWS, Part
from jaxrl_fast.envs.host.api import HostError
from jaxrl_fast.errors import NonFiniteError
from jaxrl_fast.logs.rows import Measured, Row, measure
from jaxrl_fast.logs.walltime import TRAIN
from jaxrl_fast.runs.checkpoint import Checkpoints
from jaxrl_fast.runs.evaluation import evaluate
from jaxrl_fast.runs.lost import not_finite, warn_of
from jaxrl_fast.runs.saves import rescue, restore, save
from jaxrl_fast.runs.session import Session
from jaxrl_fast.runs.signals import Interrupted, Signals, Stopped

AS_IT_WAS = "while compiling; the run is as it was"
COMPILING = {"new": "while compiling; nothing is written", "saved": AS_IT_WAS, "memory": AS_IT_WAS}  # what ended by a signal


class Pending(NamedTuple):
    """A chunk that the device was given, and whose rows are not checked yet."""

    start: int  # rows before it
    rows: int
    metrics: Any
    finite: Any


def next_rows(
    grid: Grid, done: int, boundaries: Collection[int], chunk_seconds: float, row_seconds: float | None, most: int = ROWS
) -> int:
    """Return how many log rows the next chunk runs, after `done` rows.

    As many as take `chunk_seconds`, one before the time of a row is known, and never past an evaluation, a row of
    `boundaries` or the end of the run.
    """
    n = min(most, grid.rows - done, max(1, int(chunk_seconds / row_seconds)) if row_seconds else 1)
    if grid.eval_rows:
        n = min(n, grid.eval_rows - done % grid.eval_rows)
    return min([n, *(b - done for b in boundaries if b > done)])


class Trainer:
    """Trains a session to its end, or to a signal. Its wall-clock time is that of its programs' clock, which has begun.

    start: from a "new" state, from a "saved" one, or from the session's own, in "memory".
    """

    def __init__(self, s: Session, checkpoints: Checkpoints | None, signals: Signals, start: str):
        self.s, self.checkpoints, self.signals, self.start = s, checkpoints, signals, start
        self.boundaries = s.selection.boundaries(s.grid) if s.selection else set()
        self.pace = distributed.Pace()
        self.pending: Pending | None = None
        self.running = False  # whether the device is at work on the next chunk
        self.row_seconds: float | None = None
        self.mark = 0.0  # seconds of training when the last chunk was checked
        self.saved, self.saved_rows = 0.0, 0  # when the last checkpoint was taken

    def run(self) -> None:
        self.prepare()
        while not self.s.over:
            self.turn()
        if self.pending:
            self.absorb(False)
        self.score()
        self.finish()

    # The start -------------------------------------------------------------------------------------------------------

    def prepare(self) -> None:
        """Compile, make or restore the state, open the sinks, and warm the replay up."""
        s = self.s
        with self.signals.at_once(COMPILING[self.start]):
            if self.start != "memory":
                s.state = s.programs.init(s.root_keys())
            if s.given is not None:
                s.state, s.given = s.programs.begin(s.state, s.given), None
            if self.start == "saved":
                restore(s, self.checkpoints, s.checkpoint)
            warmup = bool(s.grid.warmup) and (self.start == "new" or s.iterations < s.grid.warmup)
            s.programs.ready("warmup" if warmup else "chunk")
        for sink in s.sinks:
            sink.open()
        s.programs.clock.switch("train")
        self.saved, self.saved_rows = time.monotonic(), s.rows
        self.mark = self.trained() - s.row_seconds
        s.programs.stopping = lambda: self.signals.caught is not None
        if warmup:
            self.warm_up()

    def warm_up(self) -> None:
        s = self.s
        s.state, metrics = s.programs.warmup(s.state)
        if s.programs.part:
            self.end_early(s.programs.part, None)
        self.log([self.measure(-1, metrics)], None, [self.wall()], 0.0, False)
        try:
            with self.signals.at_once(COMPILING[self.start]):
                s.programs.ready("chunk")
        except Stopped:
            self.checkpoint()
            self.leave(self.signals.caught)
        self.mark = self.trained()

    # One turn --------------------------------------------------------------------------------------------------------

    def turn(self) -> None:
        """Send a chunk to the device, check the one before it, and save, evaluate or leave where it is time."""
        s = self.s
        most = ROWS if s.programs.overlaps else 1
        n = next_rows(s.grid, s.rows, self.boundaries, s.config.chunk_seconds, self.row_seconds, most)
        before = s.rows
        s.state, metrics, finite = s.programs.chunk(s.state, s.grid.warmup + s.rows * s.grid.row, n)
        if s.programs.part:
            self.end_early(s.programs.part, finite)
        if self.pending:
            self.running = True
            self.absorb(False)
            self.running = False
        s.rows, self.pending = before + n, Pending(before, n, metrics, finite)
        at_eval = bool(s.grid.eval_rows) and s.rows % s.grid.eval_rows == 0
        due = self.since_checkpoint() > s.config.checkpoint_minutes * 60
        self.signals.poll()
        now = at_eval or due or self.signals.caught or s.hooks or s.rows in self.boundaries
        if now or not s.programs.overlaps:
            self.absorb(at_eval)
        signum = None if self.pending else self.signals.caught  # nothing is saved that was not checked and logged
        if due or signum:
            self.checkpoint()
        self.leave(signum)

    def absorb(self, score: bool) -> None:
        """Wait for the pending chunk, check it, log it. score: with an evaluation."""
        s, (start, n, metrics, finite) = self.s, self.pending
        metrics, finite = jax.device_get((metrics, finite))  # `chunk` has put them where this process can read them
        now = self.trained()
        seconds, self.mark, self.pending, s.row_seconds = max(now - self.mark, 1e-9), now, None, 0.0
        steps = (n * s.grid.row - s.programs.uncounted) * s.grid.steps * len(s.lanes)
        if steps:
            s.train_seconds += seconds
            s.train_steps += steps
        self.row_seconds = self.pace(seconds / n)
        s.wall_seconds = self.wall()
        walls = [s.wall_seconds - (n - 1 - i) * self.row_seconds for i in range(n)]
        measured = [self.measure(start + i, jax.tree.map(lambda x, i=i: x[..., i], metrics)) for i in range(n)]
        rows = self.log(measured, finite, walls, steps / seconds, score)
        for hook in s.hooks:
            hook(s, rows)

    def measure(self, index: int, sums: Any) -> Measured:
        """Row `index` of its sums, {name: Mean [lanes]}, before it is checked."""
        s = self.s
        return measure(s.grid.env_steps(index + 1), s.by_member(s.population.members(jax.device_get(sums))), s.settings)

    def log(self, measured: Sequence[Measured], finite: Any, walls: Sequence[float], rate: float, score: bool) -> list[Row]:
        """Check rows, evaluate and select where it is time, then make and log them.

        What is not finite is in the log, and ends the run.
        """
        s, columns, failed, compiled = self.s, {}, None, self.s.programs.compile_seconds
        measured, bad = not_finite(s, measured, finite)
        if score and bad is None:
            try:
                columns, bad = evaluate(s)
            except HostError as error:  # what was learned is as good as before
                failed = error
        if s.rows in self.boundaries and bad is None:
            last = measured[-1]._replace(metrics=measured[-1].metrics | columns)
            columns |= s.selection.select(s, [*measured[:-1], last])
        more = [{}] * (len(measured) - 1) + [columns]
        rows = [one.row(wall, rate, own) for one, wall, own in zip(measured, walls, more, strict=True)]
        with s.programs.clock.during("log" if self.running or not s.programs.overlaps else "write"):
            emit(s, rows)
        compiled = s.programs.compile_seconds - compiled
        if compiled:
            for sink in s.sinks:
                sink.exclude_time(compiled)
        if bad:
            self.broken(bad)
        if failed:
            self.give_up(failed)
        return rows

    def checkpoint(self) -> None:
        s = self.s
        if self.checkpoints:
            with s.programs.paused(), s.programs.clock.during("write"):
                save(s, self.checkpoints)
        self.saved, self.saved_rows = time.monotonic(), s.rows

    # The end ---------------------------------------------------------------------------------------------------------

    def score(self) -> None:
        """The last evaluation, unless the last row has it or a signal came: then whoever resumes evaluates."""
        s = self.s
        if self.signals.caught:
            return
        evaluated = s.history and "eval_return" in s.history[-1].metrics
        try:
            found, bad = (s.history[-1].metrics, None) if evaluated else evaluate(s)
            s.eval_return = found["eval_return"]
            s.episodes = int(np.ravel(found["eval_episodes"])[0]) if "eval_episodes" in found else None
        except HostError as error:
            s.wall_seconds = self.wall()
            self.give_up(error)
        if bad:
            self.broken(bad)

    def finish(self) -> None:
        """The last checkpoint, result.json and the pictures."""
        s = self.s
        s.wall_seconds = self.wall()
        self.checkpoint()
        self.leave(self.signals.caught)
        s.programs.clock.switch("write")
        if s.out:
            self.checkpoints.wait()
            s.wall_seconds = self.wall()
            s.out.finish(s)
            self.leave(self.signals.caught)

    def end_early(self, part: Part, finite: Any) -> None:
        """In the middle of a row on the host: the iterations that are done are saved, and a resume goes on with them."""
        s = self.s
        s.wall_seconds, s.row_seconds = self.wall(), self.trained() - self.mark
        (measured,), bad = not_finite(s, [self.measure(s.rows, part.metrics)], jax.device_get(finite))
        if bad:
            emit(s, [measured.row(s.wall_seconds, 0.0, {})])
            self.broken(bad)
        if part.error:
            self.give_up(part.error)
        self.checkpoint()
        self.leave(self.signals.caught)

    def broken(self, bad: str) -> None:
        """End a run that is no longer finite: NonFiniteError."""
        s, message = self.s, bad + rescue(self.s, self.checkpoints)
        if s.out and s.config.on_nan == "mark":  # the run is over, its scores are that there are none
            s.eval_return = np.full(s.config.members, np.nan)
            distributed.on_first(lambda: s.out.write_result(s))
        error = NonFiniteError(message)
        error.run = s
        raise error

    def give_up(self, error: Exception) -> None:
        """Environments on the host failed: what is learned is kept. Where the run is to stop, that is what ends it."""
        caught = self.signals.caught
        if self.s.iterations or caught:
            self.checkpoint()
        if caught:
            warnings.warn(f"{error}; what it was in the middle of is left out", stacklevel=1)
        self.leave(caught)
        error.args = (f"{error}{rescue(self.s, self.checkpoints)}",)
        raise error

    def leave(self, signum: int | None) -> None:
        """Raise Interrupted where the run was asked to stop."""
        s = self.s
        if signum:
            raise Interrupted(signum, s.out and s.out.path, s.iterations * s.grid.steps, run=s)

    # Time ------------------------------------------------------------------------------------------------------------

    def wall(self) -> float:
        """Seconds of the run so far."""
        return sum(self.s.seconds.values())

    def trained(self) -> float:
        """Seconds of training in this process."""
        return self.s.programs.clock.spent(*TRAIN)

    def since_checkpoint(self) -> float:
        """Seconds; of several processes by the pace that they share, not by their clocks."""
        if distributed.several():
            return (self.s.rows - self.saved_rows) * (self.row_seconds or 0.0)
        return time.monotonic() - self.saved


def emit(s: Session, rows: Sequence[Row]) -> None:
    """Log rows: to the session's history and to its sinks. Warns of members that have diverged."""
    for row in rows:
        warn_of(s, s.sanity.look(row.metrics), row.env_steps)
    s.history.extend(rows)
    for sink in s.sinks:
        for row in rows:
            sink.write(row)

