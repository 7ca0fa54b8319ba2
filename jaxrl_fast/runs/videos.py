"""Videos of the agent in training, drawn on a thread while the program runs."""

from __future__ import annotations

import functools
import time
import warnings
from collections.abc import Callable, Sequence
from concurrent import futures
from pathlib import Path
from typing import Any, NamedTuple

import jax
import numpy as np

from jaxrl_fast import distributed, tree
from jaxrl_fast.background import aside
from jaxrl_fast.engine.config import RunConfig
from jaxrl_fast.logs.sinks import Clip, Sink
from jaxrl_fast.runs import pictures
from jaxrl_fast.runs.result import Result
from jaxrl_fast.runs.share import Share

FOLDER = "videos"
MOST = 150  # pictures of a video: drawing is what costs
FIRST = {"gif": 1.2, "mp4": 1.7}  # seconds that the first video is expected to take; it compiles


def check(config: RunConfig) -> None:
    """Raise MissingExtraError for videos that cannot be written here."""
    if config.video_every is not None and config.video_format == "mp4":
        pictures.ffmpeg()


def on_thread(function: Callable, *args: Any) -> futures.Future:
    """Call a function on a daemon thread: an executor's would hold a process that wants to end."""
    return aside(lambda: function(*args), name="video")[0]


class Filming(NamedTuple):
    """How a run draws its agent beside the training; tests draw otherwise."""

    thread: Callable[..., futures.Future] = on_thread
    film: Callable[..., pictures.Film] = pictures.film
    patience: float = 5.0  # seconds that a run that fails or is stopped waits for its video
    share: float = 0.01  # part of the run's time for the pictures of a notebook's cell
    apart: float = 3.0  # seconds between two of these pictures, at least


FILMING = Filming()


def best_member(run: Result) -> int:
    """Return the best member of the last evaluation that is still trained, or the first one."""
    found = (row.metrics["eval_return"] for row in reversed(run.history)
             if "eval_return" in row.metrics)
    scores = np.nan_to_num(next(found, np.zeros(run.config.members)), nan=-np.inf)
    return max(run.live or run.lanes.members.tolist(), key=lambda i: scores[i])


def copy_agent(agent: Any) -> Any:
    """Copy an agent to the first device: the next chunk takes the state."""
    return jax.device_put(jax.jit(tree.copy)(agent), jax.local_devices()[0])


class Videos:
    """Films an episode of the best member at evaluations, every `video_every` steps and at the end.

    A video that is due during the training is left out while another one is being drawn, or while
    videos have spent `video_share` of the run's time. The one at the end is always drawn: it costs
    no training. The sinks get a video on the main thread, as they do rows.

    Args:
        run_time: clock of the run's time; see `Share`.
    """

    def __init__(self, run: Result, sinks: Sequence[Sink], filming: Filming,
                 run_time: Callable[[], float] | None = None):
        self.run, self.sinks, self.filming = run, sinks, filming
        config, grid = run.config, run.grid
        # by the clock: XLA plays the episode on threads of its own
        self.share = Share(config.video_share, FIRST[config.video_format], False, run_time)
        self.apart = -(-(config.video_every or 0) // (grid.row * grid.steps))  # rows; 0: none
        self.begun, self.left_out, self.failed = 0, 0, False
        self._seen, self._told, self._busy, self._spent = run.rows, False, False, False
        self._drawing: futures.Future | None = None

    def __enter__(self) -> Videos:
        return self

    def __exit__(self, *_: Any) -> None:
        self.finish(self.filming.patience)

    def stops(self) -> set[int]:
        """Return the next row to end a chunk at, for a video that can be drawn there."""
        self._busy, self._spent = self._working(), not self.share.allows()
        # several processes stop in any case: to agree here would wait for the chunk before
        if not self.apart or not (distributed.several() or self._free()):
            return set()
        return {(self.run.rows // self.apart + 1) * self.apart}

    def look(self, evaluated: bool, settled: bool) -> None:
        """Begin a video if one is due at this row, and say once that one is left out.

        evaluated: at this row. settled: whether no chunk is running, as a video needs.
        """
        seen, self._seen = self._seen, self.run.rows
        if self.run.config.video_every is None:
            return
        self.deliver()
        passed = self._seen // self.apart - seen // self.apart if self.apart else 0
        here = evaluated or (passed > 0 and self._seen % self.apart == 0)
        begins = here and settled and not self.run.over and distributed.tell(self._free())
        missed = max(passed, here) - (here and (begins or self.run.over))
        if missed and (self._busy or self._drawing):
            self.left_out += missed
        elif missed and self._spent and not (self._told or self.failed):
            self._told = True
            for sink in self.sinks:
                sink.message(f"videos take at most {100 * self.share.share:g}% of the run's time: "
                             f"the one due by {self.run.env_steps:,} steps is left out "
                             "(--video-share 1, or video_share=1, lifts the limit)")
        if begins:
            self._begin()

    def _working(self) -> bool:
        return self._drawing is not None and not self._drawing.done()

    def _free(self) -> bool:
        return not self._working() and not self.failed and self.share.allows()

    def _begin(self) -> None:
        self.begun += 1
        member = best_member(self.run)
        agent = self.run.lanes.agent(member)  # by all processes
        if not distributed.is_first():
            return
        try:
            draw = functools.partial(self._draw, self.run.env_steps, *self.run.setup(member),
                                     copy_agent(agent))
            self._drawing = self.filming.thread(self.share.timed, draw)
        except Exception as error:  # such as no memory for a copy: it must not fail the run
            self._fail(error)

    def _path(self, env_steps: int) -> Path | None:
        name = f"{env_steps:012d}.{self.run.config.video_format}"
        return self.run.out and self.run.out.path / FOLDER / name

    def _draw(self, env_steps: int, algo: Any, env: Any, agent: Any) -> Clip:
        config, path = self.run.config, self._path(env_steps)
        film = self.filming.film(env, algo, agent, jax.random.key(config.seed),
                                 500, config.host_timeout, MOST)
        video = pictures.Video.of(film, env.spec.name)
        height, width, _ = video.frames[0].shape
        mp4 = pictures.mp4(video.frames, video.fps) if config.video_format == "mp4" else None
        clip = Clip(env_steps, pictures.gif(video.frames, video.fps), (width, height), mp4=mp4)
        return clip._replace(path=pictures.write_whole(path, clip.content)) if path else clip

    def deliver(self) -> None:
        """Hand a finished video to the sinks."""
        if self._drawing is None or not self._drawing.done():
            return
        drawn, self._drawing = self._drawing, None
        self.share.expected = self.share.spent / self.begun
        failure = drawn.exception()
        try:
            for sink in () if failure else self.sinks:
                sink.video(drawn.result())
        except Exception as error:
            failure = error
        if failure:
            self._fail(failure)

    def _fail(self, failure: BaseException) -> None:
        self.failed = True
        warnings.warn(f"no more videos of this run: {failure}", stacklevel=3)

    def end(self, seconds: float, stopped: Callable[[], Any] = lambda: False) -> None:
        """Draw the video at the end of the run; arguments as those of `finish`."""
        began = time.monotonic()
        self._wait(seconds, stopped)
        path = self._path(self.run.env_steps)
        due = self.run.config.video_every is not None and not self.failed and not stopped()
        if distributed.tell(due and not (path and path.exists())):  # a resume may find it drawn
            self._begin()
        self.finish(max(began + seconds - time.monotonic(), 0.0), stopped)

    def finish(self, seconds: float, stopped: Callable[[], Any] = lambda: False) -> None:
        """Hand over the video in work, and say how many its drawing kept away.

        Waits `seconds` at most, or until `stopped()`; then a warning takes the video's place.
        """
        self._wait(seconds, stopped)
        if self.left_out:
            left = "1 video was" if self.left_out == 1 else f"{self.left_out} videos were"
            for sink in self.sinks:
                sink.message(f"{left} left out: the one before was still being drawn")
            self.left_out = 0

    def _wait(self, seconds: float, stopped: Callable[[], Any] = lambda: False) -> None:
        start = time.monotonic()
        self.deliver()
        while self._drawing and time.monotonic() - start < seconds and not stopped():
            futures.wait([self._drawing], min(seconds, 0.1))
            self.deliver()
        if self._drawing:
            self._drawing, self.failed, waited = None, True, time.monotonic() - start
            warnings.warn(f"a video is left out: not drawn within {waited:.1f} s", stacklevel=2)
