"""The progress display of a run: steps, speed, return and time left."""

from __future__ import annotations

import math
import time
from collections import deque
from collections.abc import Callable
from typing import TextIO

import numpy as np

from jaxrl_fast.logs.rows import Row
from jaxrl_fast.logs.sinks import Sink
from jaxrl_fast.logs.terminal import Display


class ProgressSink(Display, Sink):
    """Steps, speed, return and time left, as a mean and range of several members."""

    def __init__(self, total_steps: int, stream: TextIO | None = None,
                 clock: Callable[[], float] = time.monotonic, warmup: int = 0):
        super().__init__(total_steps, stream, clock)
        self._warmup = warmup  # steps of random actions, which say nothing of the speed to come
        self._return = "return -"
        self._row = ""  # text of the last row
        # (wall_seconds, env_steps) of the last half minute
        self._seen: deque[tuple[float, int]] = deque(maxlen=1000)

    def write(self, row: Row) -> None:
        try:
            text = self._text(row)
        except Exception as error:  # an unprintable row must not fail the run
            text = f"{row.env_steps:,} steps ({type(error).__name__} in the display)"
        self._row = text
        self.show(row.env_steps, text)

    def cut(self, env_steps: int) -> None:
        self._seen.clear()

    def evaluating(self, played: int, episodes: int) -> None:
        """Show beside the last row how many episodes of an evaluation were played."""
        self.beside(self._row, f"evaluating {played}/{episodes}" if played < episodes else "")

    def exclude_time(self, seconds: float) -> None:
        """Leave `seconds` since the last row out of the forecast (a compilation)."""
        self._seen = deque(((wall + seconds, steps) for wall, steps in self._seen),
                           self._seen.maxlen)

    def _text(self, row: Row) -> str:
        members = np.asarray(row.metrics.get("episode_return", ()), np.float64).reshape(-1)
        if np.isfinite(members).any():  # else keep the last one
            self._return = f"return {summary(members)}"
        total = f"{self.total:,}"
        parts = [
            f"{row.env_steps:>{len(total)},} / {total} steps",
            f"{_rounded(row.steps_per_second)} steps/s",
            self._return,
        ]
        left = self._seconds_left(row, max(members.size, 1))
        return "  ".join(parts if left is None else [*parts, f"ETA {_clock_text(left)}"])

    def _seconds_left(self, row: Row, members: int) -> float | None:
        """Return seconds left at the speed of the last half minute; None after the last row."""
        if not self._warmup < row.env_steps < self.total or not row.steps_per_second > 0:
            return None
        self._seen.append((float(row.wall_seconds), int(row.env_steps)))
        while len(self._seen) > 2 and self._seen[-1][0] - self._seen[0][0] > 30:
            self._seen.popleft()
        (wall0, steps0), (wall1, steps1) = self._seen[0], self._seen[-1]
        rate = row.steps_per_second / members
        if wall1 > wall0:
            rate = (steps1 - steps0) / (wall1 - wall0)
        return (self.total - row.env_steps) / rate if 0 < rate < math.inf else None


def summary(values: np.ndarray) -> str:
    """Return `475.1`, or for several members `475.1 (401.2..500.0)`; finite values only."""
    finite = values[np.isfinite(values)]
    text = _short(finite.mean())
    return f"{text} ({_short(finite.min())}..{_short(finite.max())})" if values.size > 1 else text


def _short(value: float) -> str:
    return (f"{value:.2f}" if abs(value) < 10 else f"{value:.1f}" if abs(value) < 1e5
            else f"{value:,.0f}")


def _rounded(value: float) -> str:
    """Return three significant digits, `268,000`, or `-` for a row without a speed."""
    if not math.isfinite(value) or value <= 0:
        return "-"
    return f"{float(f'{value:.3g}'):,.0f}" if value >= 10 else f"{value:.3g}"


def _clock_text(seconds: float) -> str:
    """Return `0:05`, `12:34`, `1:02:03`."""
    minutes, rest = divmod(round(seconds), 60)
    hours, minutes = divmod(minutes, 60)
    return f"{hours}:{minutes:02d}:{rest:02d}" if hours else f"{minutes}:{rest:02d}"
