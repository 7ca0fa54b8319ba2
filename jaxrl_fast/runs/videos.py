"""Videos of the agent in training, drawn on a thread while the program runs."""

from __future__ import annotations

import time
import warnings
from collections.abc import Callable, Sequence
from concurrent import futures
from typing import Any, NamedTuple

import jax
import numpy as np

from jaxrl_fast import distributed, tree
from jaxrl_fast.background import aside
from jaxrl_fast.engine.config import RunConfig
from jaxrl_fast.logs.sinks import Clip, Sink
from jaxrl_fast.runs import pictures
from jaxrl_fast.runs.result import Result

FOLDER = "videos"
MOST = 150  # pictures of a video: drawing is what costs


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
    # of pictures in a notebook's cell
    share: float = 0.01  # of the run's time: CPU time on a CPU, by the clock beside an accelerator
    apart: float = 3.0  # seconds between two, at least


FILMING = Filming()


def best_member(run: Result) -> int:
    """Return the best member of the last evaluation that is still trained, or the first one."""
    found = (row.metrics["eval_return"] for row in reversed(run.history)
             if "eval_return" in row.metrics)
    scores = np.nan_to_num(next(found, np.zeros(run.config.members)), nan=-np.inf)
    return max(run.live or run.lanes.members.tolist(), key=lambda i: scores[i])


def copied(agent: Any) -> Any:
    """Copy an agent to the first device: the next chunk takes the state."""
    return jax.device_put(jax.jit(tree.copy)(agent), jax.local_devices()[0])


class Videos:
    """Films an episode of the best member at evaluations and every `video_every` steps.

    A video that is due while the one before is still being drawn is left out. The sinks get a video
    on the main thread, as they do rows. The end of a run waits for the video in work, up to a
    limit. rows: the log rows to stop at.
    """

    def __init__(self, run: Result, sinks: Sequence[Sink], filming: Filming):
        self.run, self.sinks, self.filming = run, sinks, filming
        grid, every = run.grid, run.config.video_every
        apart = -(-every // (grid.row * grid.steps)) if every else 0
        self.rows = set(range(apart, grid.rows + 1, apart)) if apart else set()
        self.left_out, self.failed = 0, False
        self._drawing: futures.Future | None = None

    def __enter__(self) -> Videos:
        return self

    def __exit__(self, *_: Any) -> None:
        self.finish(self.filming.patience)

    def at_row(self, evaluated: bool) -> None:
        """Begin a video if one is due at this row; no chunk may be running."""
        if self.run.config.video_every is None or not (evaluated or self.run.rows in self.rows):
            return
        self.deliver()
        if not distributed.tell(self._free()):
            return
        member = best_member(self.run)
        agent = self.run.lanes.agent(member)  # by all processes
        if distributed.is_first():
            self._drawing = self.filming.thread(self._draw, self.run.env_steps,
                                                *self.run.setup(member), copied(agent))

    def _free(self) -> bool:
        """Return whether the thread can draw; counts the videos that it could not."""
        self.left_out += self._drawing is not None
        return self._drawing is None and not self.failed

    def _draw(self, env_steps: int, algo: Any, env: Any, agent: Any) -> Clip:
        config = self.run.config
        film = self.filming.film(env, algo, agent, jax.random.key(config.seed),
                                 500, config.host_timeout, MOST)
        video = pictures.Video.of(film, env.spec.name)
        height, width, _ = video.frames[0].shape
        mp4 = pictures.mp4(video.frames, video.fps) if config.video_format == "mp4" else None
        clip = Clip(env_steps, pictures.gif(video.frames, video.fps), (width, height), mp4=mp4)
        if not self.run.out:
            return clip
        path = self.run.out.path / FOLDER / f"{env_steps:012d}.{clip.format}"
        return clip._replace(path=pictures.written(path, clip.content))

    def deliver(self) -> None:
        """Hand a finished video to the sinks."""
        if self._drawing is None or not self._drawing.done():
            return
        drawn, self._drawing = self._drawing, None
        failure = drawn.exception()
        try:
            for sink in () if failure else self.sinks:
                sink.video(drawn.result())
        except Exception as error:
            failure = error
        if failure:
            self.failed = True
            warnings.warn(f"no more videos of this run: {failure}", stacklevel=2)

    def finish(self, seconds: float, stopped: Callable[[], Any] = lambda: False) -> None:
        """Hand over the video in work, and say what was left out.

        Waits for it up to `seconds`, or until `stopped()`; then a warning takes its place.
        """
        start = time.monotonic()
        self.deliver()
        while self._drawing and time.monotonic() - start < seconds and not stopped():
            futures.wait([self._drawing], min(seconds, 0.1))
            self.deliver()
        if self._drawing:
            self._drawing, waited = None, time.monotonic() - start
            warnings.warn(f"the last video is left out: not drawn within {waited:.1f} s",
                          stacklevel=2)
        if self.left_out:
            for sink in self.sinks:
                sink.message(f"{self.left_out} videos were left out: the one before was still "
                             "being drawn")
            self.left_out = 0
