"""The wall-clock time of a thread, divided among activities; the `time_*` of a log row."""

from __future__ import annotations

import threading
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager

import numpy as np

from jaxrl_fast.types import Mean

# Activities that are training: on the device; on the host updates, waiting for rollouts, and
# logging beside a busy device. The others: "compile" (and the start), "evaluate", "write".
TRAIN = ("train", "learn", "wait", "log")


class WallTime:
    """A stopwatch of a thread that others may read; activities sum to the time since `began`."""

    def __init__(self, activity: str, began: float | None = None,
                 now: Callable[[], float] = lambda: time.perf_counter()):
        self.activity, self._now, self._lock = activity, now, threading.Lock()
        self._since = now() if began is None else began
        self._seconds: dict[str, float] = {}
        self._lapped: dict[str, float] = {}

    def switch(self, activity: str) -> str:
        """Start another activity, "" for none, and return the previous one."""
        with self._lock:
            self._charge()
            before, self.activity = self.activity, activity
        return before

    @contextmanager
    def during(self, activity: str) -> Iterator[None]:
        before = self.switch(activity)
        try:
            yield
        finally:
            self.switch(before)

    def seconds(self) -> dict[str, float]:
        with self._lock:
            self._charge()
            return dict(self._seconds)

    def spent(self, *activities: str) -> float:
        seconds = self.seconds()
        return sum(seconds.get(name, 0.0) for name in activities)

    def lap(self) -> dict[str, float]:
        """Return the seconds of every activity since the last lap, or the beginning."""
        seconds = self.seconds()
        found = {name: spent - self._lapped.get(name, 0.0) for name, spent in seconds.items()}
        self._lapped = seconds
        return found

    def _charge(self) -> None:
        now = self._now()
        if self.activity:
            self._seconds[self.activity] = self._seconds.get(self.activity, 0.0) + now - self._since
        self._since = now


LEARNER = {"learn": "updates", "train": "updates", "wait": "waits",
           "evaluate": "evaluates", "log": "writes", "write": "writes",
           "compile": "compiles"}  # fmt: skip
ACTORS = ("environments", "transfer", "inference", "waiting")


def shares(learner: dict[str, float], actors: dict[str, float]) -> dict[str, Mean]:
    """Return the shares of a row's wall-clock time as `time_*`; each side's sum to 1.

    Actors in other processes report whole rollouts: they count up to the whole row, and the rest is
    waiting.
    """
    wall = sum(learner.values())
    spent = dict.fromkeys(LEARNER.values(), 0.0)
    for name, value in learner.items():
        spent[LEARNER[name]] += value
    busy = {name: actors.get(name, 0.0) for name in ACTORS if name != "waiting"}
    fits = min(1.0, wall / sum(busy.values())) if any(busy.values()) else 1.0
    busy = {name: value * fits for name, value in busy.items()}
    busy["waiting"] = max(0.0, wall - sum(busy.values()))
    found = {f"time_learner_{name}": value for name, value in spent.items()}
    found |= {f"time_actors_{name}": value for name, value in busy.items()}
    return {name: Mean(np.float32(value), np.float32(wall)) for name, value in found.items()}
