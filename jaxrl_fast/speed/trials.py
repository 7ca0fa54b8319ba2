"""One run with one choice of settings: its numbers, and its speed in turns with another's."""

from __future__ import annotations

import dataclasses
import hashlib
import math
import time
from collections.abc import Callable, Mapping
from typing import Any

import jax
import numpy as np

from jaxrl_fast.engine.grid import ROWS as MOST_ROWS
from jaxrl_fast.engine.prepared import Prepared, prepare
from jaxrl_fast.profiling.timing import Started, with_short_rows

TURNS = 8
LONG = 0.3  # seconds of a turn, as far as a call can be that long
Clock = Callable[[], float]


class Trial:
    """A run in training. numbers: a digest of metrics and agent after each call.

    rows: of a call, so that trials of equal rows can be compared; None: as many as take `LONG`.
    """

    def __init__(
        self, prepared: Prepared, rows: int | None = None, clock: Clock = time.perf_counter
    ):
        self.prepared, self.numbers = prepared, []
        self.started = Started(with_short_rows(prepared), clock)
        keys = prepared.population.keys(prepared.config.member_seeds())
        self.started.programs.compile(keys)
        self.started.state = jax.block_until_ready(self.started.programs.init(keys))
        if prepared.grid.warmup:
            self.call()
        self.call()  # compiles
        seconds = self.call()
        self.started.rows = rows or min(MOST_ROWS, max(1, math.ceil(LONG / max(seconds, 1e-9))))

    @property
    def rows(self) -> int:
        return self.started.rows

    def call(self) -> float:
        """Train on -> seconds of an iteration."""
        started, unpadded = self.started, self.started.programs.unpadded
        before = started.iterations
        seconds, chunk = started.call()
        seen = hashlib.sha256()
        for leaf in jax.tree.leaves(unpadded((chunk.metrics, started.state.agent))):
            seen.update(bits(leaf))
        self.numbers.append(seen.hexdigest())
        return seconds / (started.iterations - before)

    def close(self) -> None:
        self.started.programs.give_up()


def bits(leaf: Any) -> bytes:
    """Return the bits of an array or of keys."""
    if jax.dtypes.issubdtype(leaf.dtype, jax.dtypes.prng_key):
        leaf = jax.random.key_data(leaf)
    return np.asarray(leaf).tobytes()


def with_settings(prepared: Prepared, settings: Mapping[str, Any]) -> Prepared:
    """Return the run with other settings. Raises ConfigError if they do not fit."""
    config = dataclasses.replace(prepared.config, **settings)
    return prepare(prepared.algo, prepared.env, config, prepared.about)


def equal(one: Trial, other: Trial) -> bool:
    """Return whether both had the same numbers after each call that both have made."""
    return all(a == b for a, b in zip(one.numbers, other.numbers, strict=False))


def ratio(one: Trial, other: Trial, turns: int = TURNS) -> float:
    """Return the speed of `other` over that of `one` that three of four turns reach.

    The order alternates. A median of few turns would take noise for a gain.
    """
    found = []
    for turn in range(turns):
        first, second = (one, other) if turn % 2 == 0 else (other, one)
        seconds = {id(x): x.call() for x in (first, second)}
        found.append(seconds[id(one)] / seconds[id(other)])
    return sorted(found)[turns // 4]
