"""The host loop: chunks of one compiled program, and work between them, whatever their size.

Chunk k's metrics are fetched while chunk k + 1 runs.
"""

from __future__ import annotations

import warnings
from collections.abc import Callable, Sequence
from typing import Any

import jax
import numpy as np

from jaxrl_fast import distributed, runtime
from jaxrl_fast.engine.chunks import Chunk
from jaxrl_fast.engine.grid import next_rows
from jaxrl_fast.errors import NonFiniteError
from jaxrl_fast.logs.rows import UNTIMED, HookColumns, Measured, Row, measure, rate_of
from jaxrl_fast.logs.sinks import Sink
from jaxrl_fast.logs.walltime import TRAIN
from jaxrl_fast.runs.checkpoints.metadata import Saved
from jaxrl_fast.runs.checkpoints.save import Saver
from jaxrl_fast.runs.checkpoints.store import Checkpoints
from jaxrl_fast.runs.live_pictures import LivePictures
from jaxrl_fast.runs.result import Result
from jaxrl_fast.runs.scores import Scorer
from jaxrl_fast.runs.sentinel import Sanity, format_step, not_finite, warn_of
from jaxrl_fast.runs.signals import Interrupted, Signals, Stopped
from jaxrl_fast.runs.start_from import Given
from jaxrl_fast.runs.videos import Filming, Videos

Hook = Callable[[Result, list[Row]], Any]
AS_IT_WAS = "while compiling; the run is as it was"  # after a signal
NEW = "while compiling; nothing is written"


class Trainer:
    """Trains a run to its end or to a signal; its programs' clock measures the time."""

    def __init__(
        self, run: Result, hooks: Sequence[Hook], sinks: Sequence[Sink],
        checkpoints: Checkpoints | None, signals: Signals, filming: Filming
    ):
        self.run, self.hooks, self.sinks, self.signals = run, hooks, sinks, signals
        self.saver = Saver(run, checkpoints, sinks)
        selection = run.config.selection
        self.videos = Videos(run, sinks, filming)
        self.pictures = LivePictures(run, sinks, filming)
        self.selecting = selection.boundaries(run.grid) if selection else set()
        self.sanity = Sanity(run.config.members)
        self.scorer = Scorer(run, sinks, signals, self.sanity)
        self.pace = distributed.Pace()
        self.pending: tuple[int, Chunk] | None = None  # (its first iteration, an unchecked chunk)
        self.row_seconds: float | None = None
        self.columns = HookColumns()

    @property
    def programs(self):
        return self.run.lanes.programs

    def train(self, given: Given | None = None, saved: Saved | None = None) -> None:
        """Train. given: the new agents' start. saved: the checkpoint to resume from."""
        with self.videos, self.pictures:
            self.prepare(given, saved)
            runtime.resume_gc()  # compiled: from here on a user's environment may run
            while not self.run.over:
                self.turn()
            if self.pending:
                self.absorb(False)
            self.score()
            self.finish()

    def prepare(self, given: Given | None, saved: Saved | None) -> None:
        """Compile, make or restore the state, open the sinks and warm up the replay."""
        run, lanes = self.run, self.run.lanes
        new = lanes.state is None and saved is None
        with self.signals.at_once(NEW if new else AS_IT_WAS):
            if lanes.state is None:
                lanes.state = self.programs.init(lanes.keys())
            if given is not None:
                lanes.state = self.programs.begin(lanes.state, given)
            if saved is not None:
                self.saver.restore(saved)
            warmup = run.progress.iterations < run.grid.warmup
            self.programs.ready("warmup" if warmup else "chunk")
        for sink in self.sinks:
            sink.open()
        self.programs.clock.switch("train")
        self.saver.begin(new)
        self.mark = self.trained()  # seconds of training at the last checked chunk
        if warmup:
            runtime.resume_gc()
            self.warm_up(NEW if new else AS_IT_WAS)

    def warm_up(self, where: str) -> None:
        run, t0 = self.run, self.run.progress.iterations
        chunk = self.programs.chunk(run.state, t0, 1)
        self.take(chunk)
        measured = self.measure(-1, 1, chunk.fetch()[0])
        self.log(measured, None, [run.wall_seconds], UNTIMED, chunk.ready)
        try:
            with self.signals.at_once(where):
                self.programs.ready("chunk")
        except Stopped:
            self.saver.save()
            self.leave(self.signals.caught)
        self.mark = self.trained()

    def turn(self) -> None:
        """Start a chunk, check the one before it, and save, evaluate or leave when due."""
        run, grid, t0 = self.run, self.run.grid, self.run.progress.iterations
        stops = self.selecting | self.videos.stops()
        n = next_rows(grid, run.rows, stops, run.config.chunk_seconds, self.row_seconds)
        chunk = self.programs.chunk(run.state, t0, n)
        if self.pending:
            run.lanes.state = chunk.state
            self.absorb(busy=True)
        self.pending = t0, chunk
        self.take(chunk)
        at_eval = bool(grid.eval_rows) and run.rows % grid.eval_rows == 0
        self.saver.sync()
        due = self.saver.due(self.row_seconds)
        self.signals.poll()
        score = at_eval or (run.rows >= grid.rows and not self.signals.caught)
        now = score or due or self.signals.caught or self.hooks or run.rows in stops
        if now or chunk.ready:
            self.absorb(score, chunk.ready)
        self.videos.look(at_eval, self.pending is None)
        self.pictures.look()
        signum = None if self.pending else self.signals.caught  # save only checked chunks
        if due or signum:
            self.saver.save()
        self.leave(signum)

    def take(self, chunk: Chunk) -> None:
        self.run.lanes.state = chunk.state
        if chunk.stopped is not None:
            self.end_early(chunk)
        progress, iterations = self.run.progress, chunk.iterations
        progress.iterations, progress.rows = iterations, self.run.grid.whole_rows(iterations)

    def absorb(self, score: bool = False, busy: bool = False) -> None:
        """Wait for the pending chunk, check and log it, and evaluate if asked.

        busy: the device, or the actors, work meanwhile.
        """
        run, (t0, chunk), self.pending = self.run, self.pending, None
        start = run.grid.whole_rows(t0)
        n = run.grid.whole_rows(chunk.iterations) - start
        metrics, finite = chunk.fetch()
        seconds, rate = self.count(t0, chunk)
        self.row_seconds, wall = self.pace(seconds / n), run.wall_seconds
        walls = [wall - (n - 1 - i) * self.row_seconds for i in range(n)]
        self.log(self.measure(start, n, metrics), finite, walls, rate, busy, score, self.hooks)

    def count(self, t0: int, chunk: Chunk) -> tuple[float, float]:
        """Note a chunk's time -> (seconds, environment steps a second of all members)."""
        run, progress, now = self.run, self.run.progress, self.trained()
        seconds, self.mark = max(now - self.mark, 1e-9), now
        steps = (chunk.iterations - t0 - chunk.untimed) * run.grid.steps * len(run.lanes)
        if steps:
            progress.train_seconds += seconds
            progress.train_steps += steps
        return seconds, rate_of(steps, seconds)

    def measure(self, start: int, n: int, metrics: Any) -> list[Measured]:
        """Return n rows from `start` of their sums {name: Mean [lanes, rows]}, unchecked."""
        run, lanes = self.run, self.run.lanes
        metrics, run.progress.part = run.progress.with_part(metrics), {}
        one = lambda i: jax.tree.map(lambda x: x[..., i], metrics)
        sums = lambda i: lanes.by_member(lanes.population.members(one(i)))
        steps = lambda i: run.grid.env_steps(start + i + 1)
        return [measure(steps(i), sums(i), lanes.settings) for i in range(n)]

    def log(
        self, measured: list[Measured], finite: Any, walls: Sequence[float], rate: float,
        busy: bool, score: bool = False, hooks: Sequence[Hook] = (),
    ) -> None:  # fmt: skip
        """Check rows, evaluate and select when due, then log; a non-finite value ends the run."""
        run, columns, failed, failure = self.run, {}, None, None
        compiled = self.programs.clock.spent("compile")
        measured, bad = not_finite(run, measured, finite)
        if score and bad is None:
            columns, bad, failed, failure = self.scorer.evaluate(measured)
        skipped = run.rows in self.selecting and failure is not None
        if run.rows in self.selecting and bad is None and not skipped:
            last = measured[-1]._replace(metrics=measured[-1].metrics | columns)
            columns |= run.config.selection.select(run, [*measured[:-1], last])
        more = [{}] * (len(measured) - 1) + [columns]
        each = zip(measured, walls, more, strict=True)
        rows = [one.row(wall, rate, own) for one, wall, own in each]
        run.history.extend(rows)
        try:
            for hook in () if bad else hooks:
                run.history[-1] = rows[-1] = self.columns.extended(rows[-1], hook, hook(run, rows))
            if hooks and self.scorer.due() and not (bad or failed or failure):  # a hook ended it
                columns, bad, failed, failure = self.scorer.evaluate()
                self.scorer.extend(rows, columns)
        except (Exception, Stopped) as error:  # a hook's: the chunk is sound
            failure = failure or error
        finally:
            with self.programs.clock.during("log" if busy else "write"):
                self.emit(rows)
                self.videos.deliver()
        compiled = self.programs.clock.spent("compile") - compiled
        if compiled:
            for sink in self.sinks:
                sink.exclude_time(compiled)
        if failure and skipped:  # a resume must come to this selection again
            raise failure
        self.fail(bad, failed, failure)

    def emit(self, rows: Sequence[Row]) -> None:
        """Log rows to the sinks; warn of diverged members."""
        for row in rows:
            warn_of(self.run.config, self.sanity.look(row.metrics), row.env_steps)
        for sink in self.sinks:
            for row in rows:
                sink.write(row)

    def score(self) -> None:
        """Take the final scores, unless a signal leaves them to the resume."""
        self.fail(*self.scorer.end()[1:])

    def finish(self) -> None:
        """Write the last checkpoint, result.json and the pictures."""
        run = self.run
        self.saver.save()
        self.leave(self.signals.caught)
        self.programs.clock.switch("write")
        if run.out:
            self.saver.wait()
            for sink in self.sinks:
                sink.status("drawing")
            run.out.finish(run)
            self.leave(self.signals.caught)
        self.videos.end(run.config.host_timeout, lambda: self.signals.caught)

    def end_early(self, chunk: Chunk) -> None:
        """End a row on the host early: save the finished iterations for a resume."""
        run, progress = self.run, self.run.progress
        if chunk.finite is not None:
            self.count(progress.iterations, chunk)
        metrics, finite = chunk.fetch()
        part = progress.with_part(metrics)
        (measured,), bad = not_finite(run, self.measure(run.rows, 1, metrics), finite)
        progress.iterations = chunk.iterations
        progress.part = jax.tree.map(lambda x: x[..., 0], part)
        if bad:
            run.history.append(measured.row(run.wall_seconds, UNTIMED, {}))
            self.emit(run.history[-1:])
            self.broken(bad)
        if isinstance(chunk.stopped, Exception):
            self.give_up(chunk.stopped)
        self.saver.save()
        self.leave(self.signals.caught)

    def fail(self, bad: str | None, failed: Exception | None, failure: Exception | None) -> None:
        """Raise the error that ends the run, if there is one; see `Scored`."""
        if bad:
            self.broken(bad)
        if failed:
            self.give_up(failed)
        if failure:
            self.saver.raise_saved(failure)

    def broken(self, bad: str) -> None:
        """End a run that is not finite: NonFiniteError."""
        run, message = self.run, bad + self.saver.rescue()
        if run.out and run.config.on_nan == "mark":  # the run is over, without scores
            run.eval_return = np.full(run.config.members, np.nan)
            distributed.on_first(lambda: run.out.write_result(run))
        error = NonFiniteError(message)
        error.run = run
        raise error

    def give_up(self, error: Exception) -> None:
        """End after a failure of host environments, and save; a noted signal goes first."""
        caught = self.signals.caught
        if self.run.progress.iterations or caught:
            self.saver.save()
        if caught:
            warnings.warn(f"{error}; its unfinished part is left out", stacklevel=1)
        self.leave(caught)
        error.args = (f"{error}{format_step(self.run)}{self.saver.rescue()}",)
        raise error

    def leave(self, signum: int | None) -> None:
        if signum:
            self.saver.wait()  # a failed write replaces "saved"
            raise Interrupted.of(self.run, signum)

    def trained(self) -> float:
        return self.programs.clock.spent(*TRAIN)
