"""The host loop: chunks of one compiled program with donated state, and between them everything that is not maths.

Chunk k's metrics are fetched while chunk k + 1 runs. Logs, progress, evaluation, checkpoints, early stop, NaN checks
and signals live here; none of them is inside the program, and none of them depends on the chunk's size.
"""

from __future__ import annotations

import time
import warnings
from typing import Any

import jax
import numpy as np

from jaxrl_fast import distributed
from jaxrl_fast.engine.programs import ROWS, Part
from jaxrl_fast.envs.host.api import HostError
from jaxrl_fast.errors import NonFiniteError
from jaxrl_fast.logs.sinks import Row
from jaxrl_fast.logs.walltime import TRAIN
from jaxrl_fast.runs.checkpoint import Checkpoints
from jaxrl_fast.runs.saves import rescue, restore, save
from jaxrl_fast.runs.session import Session, emit, evaluate, leave_out, make_row, not_finite
from jaxrl_fast.runs.signals import Interrupted, Signals, Stopped

AS_IT_WAS = "while compiling; the run is as it was"
COMPILING = {"new": "while compiling; nothing is written", "saved": AS_IT_WAS, "memory": AS_IT_WAS}  # what ended by a signal


def loop(s: Session, checkpoints: Checkpoints | None, signals: Signals, start: str) -> None:
    """A session to its end, or to a signal. Its wall-clock time is that of its programs' clock, which has begun with it.

    start: from a "new" state, from a "saved" one, or from the session's own, in "memory".
    """
    with signals.at_once(COMPILING[start]):
        if start != "memory":
            s.state = s.programs.init(s.root_keys())
        if s.given is not None:
            s.state, s.given = s.programs.begin(s.state, s.given), None
        if start == "saved":
            restore(s, checkpoints, s.checkpoint)
        warmup = bool(s.grid.warmup) and (start == "new" or s.iterations < s.grid.warmup)
        s.programs.ready("warmup" if warmup else "chunk")
    for sink in s.sinks:
        sink.open()
    wall = lambda: sum(s.seconds.values())
    trained = lambda: s.programs.clock.spent(*TRAIN)
    s.programs.clock.switch("train")
    saved, saved_rows = time.monotonic(), s.rows
    row_seconds, mark = None, trained() - s.row_seconds
    pace = distributed.Pace()
    pending = None  # (rows before it, rows in it, metrics, finite)
    running = False  # whether the device is at work on the next chunk

    boundaries = s.selection.boundaries(s.grid) if s.selection else set()

    def log(rows: list[Row], finite: Any, score: bool):
        """Check rows, evaluate and select where it is time, then log them; what is not finite is in the log, and ends the run."""
        bad, failed, compiled = not_finite(s, rows, finite), None, s.programs.compile_seconds
        if score and bad is None:
            try:
                found, bad = evaluate(s)
                rows[-1].metrics.update(found)
            except HostError as error:  # what was learned is as good as before
                failed = error
        if s.rows in boundaries and bad is None:
            s.selection.select(s, rows)
        with s.programs.clock.during("log" if running or not s.programs.overlaps else "write"):
            emit(s, rows)
        leave_out(s, s.programs.compile_seconds - compiled)
        if bad:
            broken(bad)
        if failed:
            give_up(failed)

    def broken(bad: str):
        message = bad + rescue(s, checkpoints)
        if s.out and s.config.on_nan == "mark":  # the run is over, its scores are that there are none
            s.eval_return = np.full(s.config.members, np.nan)
            distributed.on_first(lambda: s.out.write_result(s))
        error = NonFiniteError(message)
        error.run = s
        raise error

    def absorb(score: bool):
        """Wait for the pending chunk, check it, log it."""
        nonlocal pending, row_seconds, mark
        start, n, metrics, finite = pending
        metrics, finite = jax.device_get((metrics, finite))  # `chunk` has put them where this host can read them
        now = trained()
        seconds, mark, pending, s.row_seconds = max(now - mark, 1e-9), now, None, 0.0
        steps = (n * s.grid.row - s.programs.uncounted) * s.grid.steps * len(s.lanes)
        if steps:
            s.train_seconds += seconds
            s.train_steps += steps
        row_seconds = pace(seconds / n)
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
            with s.programs.paused(), s.programs.clock.during("write"):
                save(s, checkpoints)
        saved, saved_rows = time.monotonic(), s.rows

    def give_up(error: Exception):
        """Environments on the host failed: what is learned is kept. Where the run is to stop, that is what ends it."""
        if s.iterations or signals.caught:
            checkpoint()
        if signals.caught:
            warnings.warn(f"{error}; what it was in the middle of is left out", stacklevel=1)
        leave(signals.caught)
        error.args = (f"{error}{rescue(s, checkpoints)}",)
        raise error

    def end_early(part: Part, finite: Any):
        """In the middle of a row on the host: the iterations that are done are saved, and whoever resumes goes on with them."""
        s.wall_seconds, s.row_seconds = wall(), trained() - mark
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
        return (s.rows - saved_rows) * (row_seconds or 0.0) if distributed.several() else time.monotonic() - saved

    def leave(signum: int | None):
        if signum:
            raise Interrupted(signum, s.out and s.out.path, s.iterations * s.grid.steps, run=s)

    s.programs.stopping = lambda: signals.caught is not None
    if warmup:
        s.state, metrics = s.programs.warmup(s.state)
        if s.programs.part:
            end_early(s.programs.part, None)
        log([make_row(s, -1, metrics, wall(), 0.0)], None, False)
        try:
            with signals.at_once(COMPILING[start]):
                s.programs.ready("chunk")
        except Stopped:
            checkpoint()
            leave(signals.caught)
        mark = trained()
    while not s.over:
        n = min(ROWS, s.grid.rows - s.rows)
        n = min(n, max(1, int(s.config.chunk_seconds / row_seconds)) if row_seconds else 1)
        if s.grid.eval_rows:
            n = min(n, s.grid.eval_rows - s.rows % s.grid.eval_rows)
        n = min([n, *(b - s.rows for b in boundaries if b > s.rows)]) if s.programs.overlaps else 1
        before = s.rows
        s.state, metrics, finite = s.programs.chunk(s.state, s.grid.warmup + s.rows * s.grid.row, n)
        if s.programs.part:
            end_early(s.programs.part, finite)
        if pending:
            running = True
            absorb(False)
            running = False
        s.rows, pending = before + n, (before, n, metrics, finite)
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
            found, bad = (s.history[-1].metrics, None) if evaluated else evaluate(s)
            s.eval_return = found["eval_return"]
            s.episodes = int(np.ravel(found["eval_episodes"])[0]) if "eval_episodes" in found else None
        except HostError as error:
            s.wall_seconds = wall()
            give_up(error)
        if bad:
            broken(bad)
    s.wall_seconds = wall()
    checkpoint()
    leave(signals.caught)
    s.programs.clock.switch("write")
    if s.out:
        checkpoints.wait()
        s.wall_seconds = wall()
        s.out.finish(s)
        leave(signals.caught)
