"""A live bar on a terminal, plain lines elsewhere. Its failures never reach the run."""

from __future__ import annotations

import contextlib
import functools
import math
import os
import sys
import time
from collections.abc import Callable, Sequence
from typing import Any, TextIO

FREE = 3  # columns at a terminal's right edge that stay empty


def _safely(method: Callable[..., None]) -> Callable[..., None]:
    @functools.wraps(method)
    def guarded(self: Display, *args: Any) -> None:
        if self._closed:
            return
        try:
            method(self, *args)
        except Exception:
            self._closed, self._plain = self._live is None, True
            self._stop_live()

    return guarded


class Display:
    """Show how much of `total` is done, beside a line of text.

    On a terminal it is a live bar that rich's thread draws; elsewhere `show` prints a line in two
    seconds at most, and `close` the last one. A failure switches the bar off, then the lines.
    """

    def __init__(self, total: int, stream: TextIO | None = None,
                 clock: Callable[[], float] = time.monotonic):
        self.total = int(total)
        self._stream, self._clock = sys.stderr if stream is None else stream, clock
        self._live: Any = None  # rich's Progress while the bar is shown
        self._task: Any = None
        self._plain = not is_terminal(self._stream)
        self._closed = self._stream is None
        self._began: float | None = None
        self._printed = -math.inf
        self._pending: str | None = None  # the latest plain line that is not printed
        self._active = False  # whether an activity is told beside the lines

    @_safely
    def status(self, text: str) -> None:
        """Show an activity without progress ("compiling"), beside the bar or as a line."""
        if not self._plain and self._start_live():
            self._live.update(self._task, text=text, refresh=True)
        else:
            self._print(text)

    @_safely
    def message(self, text: str) -> None:
        """Print `text` above the bar."""
        if self._live is None:
            self._print(text)
        else:
            self._live.console.print(text, markup=False, highlight=False, soft_wrap=True)

    @_safely
    def show(self, done: int, text: str) -> None:
        """Show the bar at `done`, with `text` beside it."""
        if not self._plain and self._start_live():
            self._live.update(self._task, completed=min(done, self.total), text=text)
            return
        now = self._clock()
        self._began = now if self._began is None else self._began
        self._pending = f"  {text}"
        if self._due(now):
            line, self._pending, self._printed = self._pending, None, now
            self._print(line)

    @_safely
    def beside(self, text: str, now: str) -> None:
        """Show an activity beside the last `text`; as a plain line if it goes on and one is due."""
        if self._live is not None:
            self._live.update(self._task, text="  ".join(part for part in (text, now) if part))
            return
        begins, self._active, moment = not self._active, bool(now), self._clock()
        if now and not begins and self._began is not None and self._due(moment):
            self._printed = moment
            self._print(f"  {now}")

    def _due(self, now: float) -> bool:
        return now - self._printed >= min(max(2.0, (now - self._began) / 100), 60.0)

    @_safely
    def close(self) -> None:
        """Leave the bar, or the last line, as it stands; only messages are printed afterwards."""
        self._stop_live()  # draws the last row once more
        self._plain = True
        line, self._pending = self._pending, None
        if line is not None:
            self._print(line)

    def _print(self, text: str) -> None:
        _write(self._stream, text + "\n")
        self._stream.flush()

    def _start_live(self) -> bool:
        if self._live is not None:
            return True
        try:
            from rich.progress import BarColumn, Progress, TextColumn
            from rich.table import Column

            # Never folded: a bar of two lines on a narrow terminal leaves half of it behind.
            text = TextColumn("{task.fields[text]}", markup=False,
                              table_column=Column(no_wrap=True))
            bar = BarColumn(bar_width=None, table_column=Column(ratio=1))
            # `train > log` must still fill the log
            lifts = [is_terminal(stream) for stream in (sys.stdout, sys.stderr)]
            live = Progress(bar, text, console=_console(self._stream), refresh_per_second=4,
                            expand=True,
                            redirect_stdout=lifts[0], redirect_stderr=lifts[1])  # fmt: skip
            self._task = live.add_task("", total=self.total, text="")
            live.start()
        except Exception:
            self._plain = True
            return False
        self._live = live
        return True

    def _stop_live(self) -> None:
        live, self._live = self._live, None
        if live is not None:
            with contextlib.suppress(Exception):
                live.stop()


def _console(stream: TextIO) -> Any:
    """Return rich's console of a terminal with the last columns free for the terminal's ^C."""
    from rich.console import Console, ConsoleDimensions

    class Free(Console):
        @property
        def size(self) -> ConsoleDimensions:
            width, height = super().size
            return ConsoleDimensions(max(width - FREE, 1), height)

    return Free(file=_Forgiving(stream), force_terminal=True)


class _Forgiving:
    """A stream with silent failures, also in rich's thread."""

    def __init__(self, stream: TextIO):
        self._stream = stream

    def write(self, text: str) -> int:
        with contextlib.suppress(OSError, ValueError):  # the terminal is gone or the stream closed
            _write(self._stream, text)
        return len(text)

    def flush(self) -> None:
        with contextlib.suppress(OSError, ValueError):
            self._stream.flush()

    def __getattr__(self, name: str) -> Any:
        return getattr(self._stream, name)


def _write(stream: TextIO, text: str) -> None:
    try:
        stream.write(text)
    except UnicodeEncodeError:
        stream.write(text.encode("ascii", "replace").decode())


def is_terminal(stream: Any) -> bool:
    """Return whether a stream is a terminal that can move its cursor."""
    try:
        moves = os.environ.get("TERM", "").lower() not in ("dumb", "unknown")
        return moves and bool(stream.isatty())
    except (AttributeError, ValueError, OSError):
        return False


def is_watched(stream: Any) -> bool:
    """Return whether a stream is watched as it is written: a terminal or a notebook."""
    return is_terminal(stream) or rich_shell() is not None


def rich_shell() -> Any:
    """Return the IPython shell with a front end that shows HTML (a kernel's), or None."""
    shell = getattr(sys.modules.get("IPython"), "get_ipython", lambda: None)()
    return shell if hasattr(shell, "kernel") else None


def shows(progress: bool | None) -> bool:
    """Return whether to show progress; None: in a notebook or on a terminal."""
    return is_watched(sys.stderr) if progress is None else progress


def align_columns(lines: Sequence[Sequence[str]], left: int = 0) -> list[str]:
    """Align lines of cells in columns: the first `left` flush left, the others flush right."""
    widths = [max(map(len, column)) for column in zip(*lines, strict=True)]
    cell = lambda i, text: text.ljust(widths[i]) if i < left else text.rjust(widths[i])
    return ["  ".join(cell(i, text) for i, text in enumerate(line)).rstrip() for line in lines]
