"""The display of a run in a notebook: one output cell that updates in place."""

from __future__ import annotations

import math
import time
import uuid
from collections.abc import Callable, Sequence
from html import escape
from typing import Any, TextIO

import numpy as np

from jaxrl_fast.logs import html, svg
from jaxrl_fast.logs.progress import ProgressSink, summary
from jaxrl_fast.logs.rows import Row, shown
from jaxrl_fast.logs.sinks import Clip, Sink
from jaxrl_fast.logs.terminal import rich_shell

SHARE = 100  # an update waits for this multiple of the last one's CPU time
_NOTES = 8  # messages that stay
_PART = '<span style="display:inline-block;margin-right:2ch">'  # a long line wraps between parts


def display(total_steps: int, history: Sequence[Row], warmup: int = 0) -> Sink:
    """Return the display of a run: a cell in a notebook, else a bar or plain lines.

    warmup: environment steps of random actions at the start.
    """
    shell = rich_shell()
    if shell is None:
        return ProgressSink(total_steps, warmup=warmup)
    return NotebookSink(total_steps, history, shell, warmup=warmup)


class NotebookSink(ProgressSink):
    """Learning curve, steps, speed, returns and time left, in one output of a notebook's cell.

    A front end without HTML shows the last line of text. After a failure it prints plain lines.

    Args:
        history: the run's log rows, which the loop extends; a resume's curve has the earlier ones.
        shell: IPython's.
    """

    def __init__(
        self, total_steps: int, history: Sequence[Row], shell: Any, stream: TextIO | None = None,
        clock: Callable[[], float] = time.monotonic, warmup: int = 0,
        cpu: Callable[[], float] = time.thread_time,
    ):  # fmt: skip
        super().__init__(total_steps, stream, clock, warmup)
        self._history, self._publish = history, shell.display_pub.publish
        self._id, self._begun, self._live_cell = f"jaxrl-fast-{uuid.uuid4().hex}", False, True
        self._done, self._line, self._activity, self._evaluated = 0, "", "", ""
        self._notes: list[str] = []
        self._pictured, self._cpu = False, cpu
        self._next = -math.inf  # when the next update is due

    def open(self) -> None:
        """Draw once before the time of training counts: the first curve imports scipy."""
        svg.learning_curve({"": [{"env_steps": 1, "episode_return": [0.0]}]})

    def status(self, text: str) -> None:
        self._activity = text
        if not self._update(at_once=True):
            super().status(text)

    def message(self, text: str) -> None:
        self._notes = [*self._notes, text][-_NOTES:]
        if not self._update(at_once=True):
            super().message(text)

    def show(self, done: int, text: str) -> None:
        self._done, self._line, self._activity = done, text, ""
        if not self._update():
            super().show(done, text)

    def beside(self, text: str, now: str) -> None:
        self._activity = now
        if not self._update():
            super().beside(text, now)

    def video(self, clip: Clip) -> None:
        self.picture(clip.gif, "gif", f"the agent at {clip.env_steps:,} steps")

    @property
    def live(self) -> bool:
        """Whether the cell still shows new output."""
        return self._live_cell

    def picture(self, content: bytes, kind: str, text: str) -> None:
        """Show the newest picture in an output of its own below the curve's.

        kind: of its media type, such as "png". text: its line, below it.
        """
        if self._live_cell:
            shown = f"{html.image(content, kind, text)}<div>{escape(text)}</div>"
            data = {"text/plain": text, "text/html": shown}
            try:
                self._publish(data, {}, transient={"display_id": f"{self._id}-picture"},
                              update=self._pictured)
            except Exception:  # of the front end: it must not fail the run
                self._live_cell = False
            self._pictured = True

    def close(self) -> None:
        """Show the last state; afterwards only messages are printed."""
        self._activity = ""
        if self._begun:
            self._update(at_once=True)
        self._live_cell = False
        super().close()

    def evaluated(self, env_steps: int, returns: np.ndarray) -> None:
        members = np.asarray(returns, np.float64).reshape(-1)
        if np.isfinite(members).any():
            before = self._evaluated
            self._evaluated = f"  evaluation {summary(members)} at {env_steps:,} steps"
            self._line = self._line.removesuffix(before) + self._evaluated

    def _text(self, row: Row) -> str:
        text = super()._text(row)
        self.evaluated(row.env_steps, row.metrics.get("eval_return", ()))
        return text + self._evaluated

    def _update(self, at_once: bool = False) -> bool:
        """Show the present state if due; returns whether the cell works."""
        now, began = self._clock(), self._cpu()  # CPU time: other programs do not slow the updates
        if self._live_cell and (at_once or now >= self._next):
            try:
                data = {"text/plain": self._line or self._activity, "text/html": self._html()}
                self._publish(data, {}, transient={"display_id": self._id}, update=self._begun)
            except Exception:  # of the picture or the front end: it must not fail the run
                self._live_cell = False
            self._begun, after = True, self._clock()
            blocked = min(10.0 * (after - now), 30.0)  # by a front end
            self._next = after + max(1.0, SHARE * (self._cpu() - began), blocked)
        return self._live_cell

    def _html(self) -> str:
        done = f'max="{self.total}" value="{min(self._done, self.total)}"'
        bar = f'<progress style="width:100%" {done}></progress>'
        parts = (part.strip() for part in f"{self._line}  {self._activity}".split("  "))
        spans = "".join(f"{_PART}{escape(part)}</span>" for part in parts if part)
        text = f'<div style="font-family:monospace">{spans}</div>'
        notes = "".join(f"<div>{escape(note)}</div>" for note in self._notes)
        rows = [*map(shown, self._history)]
        curve = svg.image(svg.learning_curve({"": rows})) if rows else ""
        return f'<div style="max-width:{svg.WIDTH}px">{bar}{text}{curve}{notes}</div>'
