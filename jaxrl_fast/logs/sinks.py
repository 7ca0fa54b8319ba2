"""Where the rows of a run go: a file of JSON lines, the terminal, and `boards`: TensorBoard, Weights & Biases.

A `Row` is what the run came to over one log interval; the host loop hands every row to every `Sink`, in order, and
calls `flush` before a checkpoint commits. A resumed run starts at a checkpoint's step and writes the rows after it
again, so at resume it first calls `cut`, which drops them: the log of a resumed run equals that of an unbroken one.

    sink.open()           the run begins; one that is refused never comes so far, so nothing is made before
    sink.write(row)       one log interval
    sink.flush()          everything written so far is on disk when this returns
    sink.cut(env_steps)   drop what was written after `env_steps`
    sink.close()          flush, and let go of files and terminal; calling it twice is harmless

A sink of your own is a subclass of `Sink` with the methods that it needs.
"""

from __future__ import annotations

import contextlib
import errno
import math
import os
import sys
import time
from collections import deque
from collections.abc import Callable
from pathlib import Path
from typing import Any, NamedTuple, TextIO

import numpy as np

from jaxrl_fast.errors import ConfigError, WriteError, expected, writing
from jaxrl_fast.logs import jsonl
from jaxrl_fast.logs.jsonl import read_jsonl
from jaxrl_fast.logs.terminal import Display
from jaxrl_fast.summary import describe

__all__ = ["JsonlSink", "ProgressSink", "Row", "Sink", "read_jsonl"]


SHOWN = ("episode_return", "eval_return")  # of a row's metrics, in its short form


class Row(NamedTuple):
    """One log row of a run with K members."""

    env_steps: int  # environment steps of one member since its start
    wall_seconds: float  # since the run's start
    steps_per_second: float  # of all members together
    metrics: dict[str, np.ndarray]  # each [K]; NaN where a member has no value (it finished no episode)

    def __repr__(self) -> str:
        named = ", ".join(f"{name}: {describe(self.metrics[name])}" for name in SHOWN if name in self.metrics)
        return f"Row(env_steps={self.env_steps:,}, {named or 'no episode'}; {len(self.metrics)} metrics)"


class Sink:
    """Base class of sinks, which take the rows of a run: does nothing with them."""

    def open(self) -> None:
        pass

    def write(self, row: Row) -> None:
        pass

    def flush(self) -> None:
        pass

    def close(self) -> None:
        pass

    def cut(self, env_steps: int) -> None:
        pass


METHODS = ("open", "write", "flush", "cut", "close")


def check_sinks(sinks: Any) -> list[Any]:
    """Return sinks as a list; ConfigError for what is none."""
    if not isinstance(sinks, (list, tuple)):
        raise expected("sinks", "a list of jf.Sink, or a function of a RunConfig that returns one", repr(sinks)[:100])
    for sink in sinks:
        if not all(callable(getattr(sink, name, None)) for name in METHODS):
            raise expected("sinks", f"objects of a subclass of jf.Sink (methods {', '.join(METHODS)})", repr(sink)[:100])
    return list(sinks)


def check_hooks(hooks: Any) -> None:
    """Raises ConfigError for hooks that are no functions."""
    if not isinstance(hooks, (list, tuple)) or not all(map(callable, hooks)):
        raise expected("hooks", "a list of functions hook(session, rows)", repr(hooks)[:100])


def line_of(row: Row) -> bytes:
    """A row as `metrics.jsonl` holds it."""
    for name in row.metrics:
        if name in jsonl.FIXED:
            raise ConfigError("metric", name, f"a name other than {', '.join(jsonl.FIXED)}")
    return jsonl.encode({
        "env_steps": int(row.env_steps),
        "wall_seconds": jsonl.number(row.wall_seconds, 3),
        "steps_per_second": jsonl.number(row.steps_per_second, 1),
        **{name: jsonl.cell(values) for name, values in row.metrics.items()},
    })  # fmt: skip


class JsonlSink(Sink):
    """`metrics.jsonl` (see `jsonl`). Rows reach the operating system one by one and the disk in `flush`.

    Nothing is created before the first row. A process that was killed in the middle of a line leaves half of one: it
    is removed when the file is next opened, and readers skip it.
    """

    def __init__(self, path: str | Path):
        self.path = Path(path)
        self._file: Any = None

    def write(self, row: Row) -> None:
        line = line_of(row)
        try:
            if self._file is None:
                self.path.parent.mkdir(parents=True, exist_ok=True)
                jsonl.mend(self.path)
                self._file = open(self.path, "ab")  # noqa: SIM115 - open as long as the sink
            self._file.write(line)
            self._file.flush()
            if not self._is_there():
                raise FileNotFoundError(errno.ENOENT, "it was removed while the run wrote it")
        except OSError as error:
            self._drop()
            raise WriteError(self.path, error) from error

    def _is_there(self) -> bool:
        try:
            return os.path.samestat(os.fstat(self._file.fileno()), os.stat(self.path))
        except FileNotFoundError:
            return False

    def _drop(self) -> None:
        """Let go of a file that cannot be written; what is in its buffer would fail again."""
        file, self._file = self._file, None
        if file is not None:
            with contextlib.suppress(OSError):
                file.close()

    def flush(self) -> None:
        if self._file is not None:
            try:
                jsonl.sync(self._file)
            except OSError as error:
                self._drop()
                raise WriteError(self.path, error) from error

    def close(self) -> None:
        self.flush()
        if self._file is not None:
            self._file.close()
            self._file = None

    def cut(self, env_steps: int) -> None:
        """Replace the file, atomically, by its rows up to `env_steps`; their bytes stay what they were."""
        self.close()
        with writing(self.path):
            jsonl.cut(self.path, env_steps)


class ProgressSink(Sink):
    """Steps, speed, return and time left: a live bar on a terminal, else a plain line every two seconds or so.

    With several members the return is their mean and range. Never raises into the run (see `terminal.Display`).
    """

    def __init__(
        self,
        total_steps: int,
        stream: TextIO | None = None,
        metric: str = "episode_return",
        clock: Callable[[], float] = time.monotonic,
    ):
        self.total_steps = int(total_steps)
        self._display = Display(self.total_steps, sys.stderr if stream is None else stream, clock)
        self._metric, self._return = metric, "return -"
        self._row = ""  # how the last one reads
        self._seen: deque[tuple[float, int]] = deque(maxlen=1000)  # (wall_seconds, env_steps) of the last half minute

    def status(self, text: str) -> None:
        """What the run is doing while there are no rows yet ("compiling"): shown beside the bar, or as a line."""
        self._display.status(text)

    def message(self, text: str) -> None:
        """Print `text` above the bar."""
        self._display.message(text)

    def write(self, row: Row) -> None:
        try:
            text = self._text(row)
        except Exception as error:  # a row that cannot be shown is the display's trouble, not the run's
            text = f"{row.env_steps:,} steps ({type(error).__name__} in the display)"
        self._row = text
        self._display.show(row.env_steps, text)

    def close(self) -> None:
        self._display.close()

    def cut(self, env_steps: int) -> None:
        self._seen.clear()

    def evaluating(self, played: int, episodes: int) -> None:
        """Beside the last row: how many episodes of an evaluation have been played."""
        now = f"evaluating {played}/{episodes}" if played < episodes else ""
        self._display.beside(self._row, now)

    def leave_out(self, seconds: float) -> None:
        """Leave `seconds` of the time since the last row out of the forecast: they went into compiling and do not come again."""
        self._seen = deque(((wall + seconds, steps) for wall, steps in self._seen), self._seen.maxlen)

    def _text(self, row: Row) -> str:
        members = np.asarray(row.metrics.get(self._metric, ()), np.float64).reshape(-1)
        if np.isfinite(members).any():  # else the last one stays
            self._return = f"return {_summary(members)}"
        total = f"{self.total_steps:,}"
        parts = [
            f"{row.env_steps:>{len(total)},} / {total} steps",
            f"{_rounded(row.steps_per_second)} steps/s",
            self._return,
        ]
        left = self._seconds_left(row, max(members.size, 1))
        return "  ".join(parts if left is None else [*parts, f"ETA {_clock_text(left)}"])

    def _seconds_left(self, row: Row, members: int) -> float | None:
        """At the speed of the last half minute; at the first row, at the speed that it names."""
        if not row.steps_per_second > 0:  # a warm-up: between it and the next row lies the compiler's time
            return None
        self._seen.append((float(row.wall_seconds), int(row.env_steps)))
        while len(self._seen) > 2 and self._seen[-1][0] - self._seen[0][0] > 30:
            self._seen.popleft()
        (wall0, steps0), (wall1, steps1) = self._seen[0], self._seen[-1]
        rate = (steps1 - steps0) / (wall1 - wall0) if wall1 > wall0 else row.steps_per_second / members
        return max(self.total_steps - row.env_steps, 0) / rate if rate > 0 and math.isfinite(rate) else None


def _summary(values: np.ndarray) -> str:
    """`475.1`, and with several members their range: `475.1 (401.2..500.0)`. Finite ones only."""
    finite = values[np.isfinite(values)]
    text = _short(finite.mean())
    return f"{text} ({_short(finite.min())}..{_short(finite.max())})" if values.size > 1 else text


def _short(value: float) -> str:
    return f"{value:.2f}" if abs(value) < 10 else f"{value:.1f}" if abs(value) < 1e5 else f"{value:,.0f}"


def _rounded(value: float) -> str:
    """Three significant digits: `268,000`; `-` for a row whose time is that of a start, which has no speed."""
    if not math.isfinite(value) or value <= 0:
        return "-"
    return f"{float(f'{value:.3g}'):,.0f}" if value >= 10 else f"{value:.3g}"


def _clock_text(seconds: float) -> str:
    """`0:05`, `12:34`, `1:02:03`."""
    minutes, rest = divmod(round(seconds), 60)
    hours, minutes = divmod(minutes, 60)
    return f"{hours}:{minutes:02d}:{rest:02d}" if hours else f"{minutes}:{rest:02d}"
