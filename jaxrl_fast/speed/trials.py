"""One run with one choice of settings: its numbers, and its speed in turns with another's."""

from __future__ import annotations

import hashlib
import time
from collections.abc import Callable
from typing import NamedTuple

import jax
import numpy as np

from jaxrl_fast import random
from jaxrl_fast.engine.grid import ROWS as MOST_ROWS
from jaxrl_fast.engine.prepared import Prepared
from jaxrl_fast.profiling.timing import TimedRun, take_turns, with_short_rows

TURNS = 8
LEAST = 1.03  # times as fast: less is noise
Clock = Callable[[], float]


class Trial:
    """A run in training; a call is a chunk of the run.

    numbers: {iterations: a digest of all log rows up to there and of the agent}.
    like: a trial whose calls end at the same iterations, so that the numbers can be compared.
    """

    def __init__(
        self, prepared: Prepared, like: Trial | None = None, clock: Clock = time.perf_counter
    ):
        self.prepared, self.numbers, self.seen = prepared, {}, hashlib.sha256()
        self.started = TimedRun(with_short_rows(prepared), clock)
        try:
            self._begin(like)
        except BaseException:
            self.close()
            raise

    def _begin(self, like: Trial | None) -> None:
        """Compile, warm up and choose the rows of a call."""
        prepared = self.prepared
        keys = prepared.population.keys(prepared.config.member_seeds())
        self.started.programs.compile(keys)
        self.started.state = jax.block_until_ready(self.started.programs.init(keys))
        if prepared.grid.warmup:
            self.call()
        self.call()  # compiles
        each, long = self.call() * self.started.prepared.grid.row, prepared.config.chunk_seconds
        rows = int(long / max(each, 1e-9))
        if like:
            times = int(long / like.prepared.config.chunk_seconds)
            rows = like.rows * max(1, min(times, MOST_ROWS // like.rows))
        self.started.rows = max(1, min(MOST_ROWS, rows))

    @property
    def rows(self) -> int:
        return self.started.rows

    def call(self) -> float:
        """Train on -> seconds of an iteration."""
        started, before = self.started, self.started.iterations
        seconds, chunk = started.call()
        measured = {k: v for k, v in chunk.fetch()[0].items() if not k.startswith("time_")}
        rows = jax.tree.leaves(started.programs.unpadded(measured))
        count = max(1, (started.iterations - before) // started.prepared.grid.row)
        for i in range(count if before >= started.prepared.grid.warmup else 1):
            for leaf in rows:
                self.seen.update(leaf[..., i].tobytes())
        agent = self.seen.copy()
        for leaf in jax.tree.leaves(started.programs.unpadded(started.state.agent)):
            agent.update(np.asarray(random.as_data(leaf)).tobytes())
        self.numbers[started.iterations] = agent.hexdigest()
        return seconds / (started.iterations - before)

    def close(self) -> None:
        self.started.close()


def equal(one: Trial, other: Trial) -> bool:
    """Return whether both had the same numbers at every iteration that both reached."""
    common = one.numbers.keys() & other.numbers.keys()
    return bool(common) and all(one.numbers[t] == other.numbers[t] for t in common)


def ratio(one: Trial, other: Trial, turns: int = TURNS) -> float:
    """Return the speed of `other` over that of `one` that three of four turns reach.

    A median of few turns would take noise for a gain. The turns end when `LEAST` is out of reach.
    """
    found: list[float] = []
    for mine, its in take_turns(one.call, other.call, turns):
        found.append(mine / its)
        if sum(each < LEAST for each in found) > turns // 4:
            break
    return sorted(found)[min(turns // 4, len(found) - 1)]


class Measure(NamedTuple):
    """How a search begins and compares trials; tests do otherwise."""

    begin: Callable[..., Trial] = Trial
    ratio: Callable[[Trial, Trial], float] = ratio
    equal: Callable[[Trial, Trial], bool] = equal
