"""The sink for TensorBoard, and the scalars of a row for it and for trackers."""

from __future__ import annotations

import math
import time
from pathlib import Path
from typing import Any

import numpy as np

from jaxrl_fast import _moved
from jaxrl_fast.errors import ConfigError, writing
from jaxrl_fast.logs.rows import Row
from jaxrl_fast.logs.sinks import Clip, LoggedRun, Sink
from jaxrl_fast.values import expand_home

_MEMBERS = 64  # single members logged beside the mean; metrics.jsonl holds all

__getattr__ = _moved.contents_of("logs.trackers", owner="logs.boards")


class TensorBoardSink(Sink):
    """TensorBoard events: each metric's mean over the members, and `metric/member_007`.

    After `cut` a new event file starts with a mark that makes TensorBoard drop later steps of older
    files. A late final evaluation needs no mark: its columns alone are added to the last row's.
    """

    form = "tensorboard[:DIR]"

    def __init__(self, directory: str | Path, members: int = _MEMBERS):
        self.directory = Path(directory)
        self._members = members
        self._purge: int | None = None
        self._late: int | None = None  # steps of the row that a late evaluation completes
        self._writer: Any = None

    @classmethod
    def of(cls, target: str, run: LoggedRun) -> TensorBoardSink:
        folder = run.own(expand_home(target)) if target else run.path / "tensorboard"
        if folder.exists() and not folder.is_dir():
            raise ConfigError("path", target, "the name of a folder; a file of this name is there")
        return cls(folder)

    def write(self, row: Row) -> None:
        from tensorboardX.proto.summary_pb2 import Summary

        values = scalars(row, self._members)
        if row.env_steps == self._late:
            values = {tag: x for tag, x in values.items() if tag.startswith("eval_")}
        self._add(row.env_steps, [Summary.Value(tag=tag, simple_value=value)
                                  for tag, value in values.items()])

    def video(self, clip: Clip) -> None:
        from tensorboardX.proto.summary_pb2 import Summary

        width, height = clip.size
        picture = Summary.Image(height=height, width=width, colorspace=3,
                                encoded_image_string=clip.gif)
        self._add(clip.env_steps, [Summary.Value(tag="video", image=picture)])

    def _add(self, env_steps: int, values: list[Any]) -> None:
        from tensorboardX.proto.event_pb2 import Event
        from tensorboardX.proto.summary_pb2 import Summary

        with writing(self.directory):
            if self._writer is None:
                self._open()
            event = Event(step=int(env_steps), wall_time=time.time(), summary=Summary(value=values))
            self._writer.write_event(event)
            self._writer.flush()

    def _open(self) -> None:
        # SummaryWriter would send one event a tag through a queue, and not wait for it in `flush`
        from tensorboardX.event_file_writer import EventsWriter
        from tensorboardX.proto.event_pb2 import Event, SessionLog

        self.directory.mkdir(parents=True, exist_ok=True)
        # names hold whole seconds: without nanoseconds a resume could overwrite earlier rows
        self._writer = EventsWriter(str(self.directory / "events"), f".{time.time_ns()}")
        if self._purge is not None:
            mark = SessionLog(status=SessionLog.START)
            self._writer.write_event(Event(step=self._purge, wall_time=time.time(),
                                           session_log=mark))

    def flush(self) -> None:
        if self._writer is not None:
            with writing(self.directory):
                self._writer.flush()

    def close(self) -> None:
        if self._writer is not None:
            writer, self._writer = self._writer, None
            with writing(self.directory):
                writer.close()

    def evaluated(self, env_steps: int, returns: np.ndarray) -> None:
        self._late = int(env_steps)

    def cut(self, env_steps: int) -> None:
        if self._late == env_steps + 1:  # a mark would drop the video of these steps too
            return
        self.close()
        self._purge = int(env_steps) + 1  # TensorBoard drops this step and all later ones


def scalars(row: Row, members: int = _MEMBERS) -> dict[str, float]:
    """Return {tag: value}: finite means over the members, and up to `members` single members."""
    found = {"steps_per_second": float(row.steps_per_second),
             "wall_seconds": float(row.wall_seconds)}
    for name, values in row.metrics.items():
        values = np.atleast_1d(np.asarray(values, np.float64)).reshape(-1)
        finite = values[np.isfinite(values)]
        if finite.size:
            found[name] = float(finite.mean())
        if values.size > 1:
            found |= {f"{name}/member_{i:03d}": v for i, v in enumerate(values[:members].tolist())}
    return {tag: value for tag, value in found.items() if math.isfinite(value)}
