"""Compile, warm and time the program of a run: `time_run(prepared)`."""

from __future__ import annotations

import contextlib
import dataclasses
import statistics
import time
from collections.abc import Callable, Iterator
from typing import Any

import jax

from jaxrl_fast import runtime
from jaxrl_fast.engine.backend import backend_of
from jaxrl_fast.engine.chunks import Chunk
from jaxrl_fast.engine.grid import ROWS, Grid
from jaxrl_fast.engine.iteration import DRAW_AHEAD_ITERATIONS
from jaxrl_fast.engine.members import in_turn
from jaxrl_fast.engine.prepared import Prepared
from jaxrl_fast.engine.programs import Context

Clock = Callable[[], float]
LONG = 0.05  # seconds of a call beside which starting it does not count
FEWEST, MOST = 3, 100  # calls of a measurement
ROW_ITERATIONS, ROW_STEPS = 256, 16_384  # of all members, in the longest log row of a measurement


@dataclasses.dataclass(frozen=True)
class Timing:
    """Measured seconds of a run's program on this machine.

    compile: until the first iteration is compiled, from the compile cache if it is there. warmup:
    of all random steps before the first update. calls: of an iteration of all members, in each call
    of the program. iterations: in a call. steps: environment steps of an iteration of all members.
    """

    compile: float
    warmup: float
    calls: tuple[float, ...]
    iterations: int
    steps: int

    @property
    def iteration(self) -> float:
        """Return the median seconds of an iteration of all members."""
        return statistics.median(self.calls)

    @property
    def steps_per_second(self) -> float:
        """Return environment steps (offline: updates) of all members in a second."""
        return self.steps / self.iteration


class TimedRun:
    """The programs of a run and its state; `warm` them, then `call` trains on."""

    def __init__(self, prepared: Prepared, clock: Clock):
        self.prepared, self.clock, self.context = prepared, clock, Context()
        self.programs = backend_of(prepared.env).programs(prepared, self.context)
        self.context.clock.switch("train")  # compiling and waiting are told apart from here on
        self.state: Any = None
        self.iterations, self.rows, self.warmup = 0, 1, 0.0
        self._between = contextlib.ExitStack()  # calls: environments on the host stand still

    def warm(self) -> None:
        """Compile, train through the warm-up and until a call takes `LONG`."""
        keys = self.prepared.population.keys(self.prepared.config.member_seeds())
        self.state = jax.block_until_ready(self.programs.init(keys))
        if self.prepared.grid.warmup:
            self.warmup, _ = self.call()
        self.call()  # compiles
        taken, _ = self.call()
        while taken < LONG and self.rows < ROWS:
            self.rows = min(ROWS, max(2, int(self.rows * LONG / max(taken, 1e-6)) + 1))
            taken, _ = self.call()

    def close(self) -> None:
        """End the compile threads and the actors of host environments."""
        self._between.close()
        self.programs.give_up()

    @property
    def compiling(self) -> float:
        """Return the seconds spent on compiling, and on opening host environments."""
        return self.context.clock.spent("compile")

    def call(self) -> tuple[float, Chunk]:
        """Train for `rows` log rows (on the host: one) -> (seconds without compiling, chunk)."""
        self._between.close()
        before, compiled, began = self.iterations, self.compiling, self.clock()
        chunk = self.programs.chunk(self.state, before, self.rows)
        self.state = jax.block_until_ready(chunk.state)
        if isinstance(chunk.stopped, Exception):
            raise chunk.stopped
        self.iterations = chunk.iterations
        seconds = self.clock() - began - (self.compiling - compiled)
        self._between.enter_context(self.programs.paused())
        return seconds, chunk

    def timing(self, seconds: float = 3.0,
               seen: Callable[[Chunk], Any] = lambda chunk: None) -> Timing:
        """Return the timing of calls that take about `seconds` in all, three calls at least.

        seen: is called with the result of each.
        """
        calls, end = [], self.clock() + seconds
        while len(calls) < FEWEST or (self.clock() < end and len(calls) < MOST):
            before = self.iterations
            taken, chunk = self.call()
            seen(chunk)
            each = self.iterations - before
            calls.append(taken / each)
        steps = self.prepared.grid.steps * self.prepared.population.size
        return Timing(self.compiling, self.warmup, tuple(calls), each, steps)


@contextlib.contextmanager
def start_timed_run(prepared: Prepared, clock: Clock = time.perf_counter) -> Iterator[TimedRun]:
    """Compile the programs of a run and train through its warm-up and some calls.

    Seeds that take turns (host environments): the first one. Log rows are those of `short_row`.

    Raises:
        ConfigError: the run does not fit the device.
        HostError: a host environment failed.
    """
    runtime.enable_compile_cache()
    if in_turn(prepared.env, prepared.config):
        prepared = prepared.seed(0)
    prepared.plan.check()
    one = TimedRun(with_short_rows(prepared), clock)
    try:
        one.warm()
        yield one
    finally:
        one.close()


def with_short_rows(prepared: Prepared) -> Prepared:
    """Return the run with log rows of `short_row`; its iterations are the same."""
    row = short_row(prepared.grid, prepared.population.size)
    return dataclasses.replace(prepared, grid=dataclasses.replace(prepared.grid, row=row))


def short_row(grid: Grid, members: int) -> int:
    """Return the iterations of a log row that a measurement can afford: the run's own, or fewer.

    Whole groups of iterations that draw together, where that many fit.
    """
    most = min(ROW_ITERATIONS, max(1, ROW_STEPS // (grid.steps * members)))
    drawn = DRAW_AHEAD_ITERATIONS
    return grid.row if grid.row <= most else most // drawn * drawn or most


def time_run(prepared: Prepared, seconds: float = 3.0, clock: Clock = time.perf_counter) -> Timing:
    """Compile, warm and time a run for about `seconds` of training; see `start_timed_run`."""
    with start_timed_run(prepared, clock) as one:
        return one.timing(seconds)


def take_turns(
    one: Callable[[], float], other: Callable[[], float], turns: int
) -> Iterator[tuple[float, float]]:
    """Yield what both measure, in alternating order: a load that comes and goes meets both."""
    for turn in range(turns):
        if turn % 2 == 0:
            first = one()
            yield first, other()
        else:
            second = other()
            yield one(), second
