"""Drawing beside the training, held below a share of the run's time."""

from __future__ import annotations

import os
import time
from collections.abc import Callable
from typing import TypeVar

import jax

T = TypeVar("T")


class Share:
    """Time that drawing may take: a share of the run's time so far.

    Args:
        share: part of the run's time; 1: no limit.
        expected: seconds that the first drawing is expected to take.
        one_thread: whether the drawing thread and its processes do all the work. On a CPU both
            times are then CPU time, else they are the clock's.
        run_time: clock of the run's time.
    """

    def __init__(self, share: float, expected: float, one_thread: bool,
                 run_time: Callable[[], float] | None = None):
        by_cpu = one_thread and jax.default_backend() == "cpu"
        self.share, self.spent, self.expected = share, 0.0, expected
        self._run_time = run_time or (time.process_time if by_cpu else time.monotonic)
        self.cost = cpu_seconds if one_thread else time.monotonic
        self._begun = self._run_time()

    def allows(self) -> bool:
        """Return whether one more drawing of `expected` seconds fits."""
        allowed = self.share * (self._run_time() - self._begun)
        return self.share >= 1 or self.spent + self.expected <= allowed

    def timed(self, draw: Callable[[], T]) -> T:
        """Return draw(), and count its seconds."""
        begun = self.cost()
        try:
            return draw()
        finally:
            self.spent += self.cost() - begun


def cpu_seconds() -> float:
    """Return the CPU time of this thread and of the process's ended children, such as ffmpeg."""
    times = os.times()
    return time.thread_time() + times.children_user + times.children_system
