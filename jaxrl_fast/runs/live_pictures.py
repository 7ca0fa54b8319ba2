"""The newest picture in a notebook's cell, drawn within a share of the run's time."""

from __future__ import annotations

import io
import time
from collections.abc import Callable, Sequence
from concurrent import futures
from typing import Any, NamedTuple

import jax
import numpy as np

from jaxrl_fast import distributed
from jaxrl_fast.engine.backend import backend_of
from jaxrl_fast.logs.notebook import NotebookSink
from jaxrl_fast.logs.sinks import Sink
from jaxrl_fast.runs import pictures
from jaxrl_fast.runs.result import Result
from jaxrl_fast.runs.share import Share
from jaxrl_fast.runs.videos import Filming, best_member, copy_agent

STILL, EPISODE = 0.03, 0.2  # seconds that the first picture is expected to take; it compiles
STEPS, FRAMES = 200, 40  # of an episode
PATIENCE = 0.5  # seconds that the end of a run waits for the picture in work


class Picture(NamedTuple):
    """A picture for the cell; see `NotebookSink.picture`."""

    content: bytes
    kind: str
    text: str


class LivePictures:
    """Shows the newest rollout in the cell of a notebook.

    On the device it is a still of an environment in which the best member trains. Environments on
    the host and offline training show an episode of another environment, as a GIF. A thread draws
    at most every `filming.apart` seconds, and while the pictures since the first took less than
    `filming.share` of the run's time. Nothing is written. A run with videos shows those instead.

    Args:
        run_time: clock of the run's time.
        now: clock of `filming.apart`.
    """

    def __init__(
        self, run: Result, sinks: Sequence[Sink], filming: Filming,
        run_time: Callable[[], float] | None = None, now: Callable[[], float] = time.monotonic,
    ):  # fmt: skip
        wanted = run.config.pictures and run.config.video_every is None
        wanted = wanted and not distributed.several()
        self.cells = [sink for sink in sinks if isinstance(sink, NotebookSink)] if wanted else []
        self.run, self.filming, self._now = run, filming, now
        self._next = now() + filming.apart
        stills = backend_of(run.env).stills and not run.config.offline
        self._begin, expected = (self._still, STILL) if stills else (self._episode, EPISODE)
        self.share = Share(filming.share, expected, stills, run_time)
        self._drawing: futures.Future | None = None

    def __enter__(self) -> LivePictures:
        return self

    def __exit__(self, *_: Any) -> None:
        if self._drawing:
            futures.wait([self._drawing], PATIENCE)
            self._deliver()

    def look(self) -> None:
        """Show a picture that is ready, and begin the next one if it is due."""
        self._deliver()
        self.cells = [cell for cell in self.cells if cell.live]
        if self._drawing or not self.cells or self._now() < self._next:
            return
        if not self.share.allows():
            return
        self._next = self._now() + self.filming.apart
        member, text = best_member(self.run), f"{self.run.env_steps:,} steps"
        try:
            draw = self.share.timed(lambda: self._begin(member, text))
        except Exception as error:  # of the user's environment: it must not fail the run
            self._end(error)
            return
        if draw is None:
            self._end()
            return
        self._drawing = self.filming.thread(self.share.timed, draw)

    def _still(self, member: int, text: str) -> Callable[[], Picture | None] | None:
        """Return a function that draws the first environment of a member, None without pictures."""
        run = self.run
        lane = ()
        if run.population.size > 1:
            lane = (int(np.flatnonzero(run.lanes.members == member)[0]),)
        draw = backend_of(run.env).still(run.env, run.state.env, (*lane, 0))
        return draw and (lambda: _png(draw(), f"an environment in training at {text}"))

    def _episode(self, member: int, text: str) -> Callable[[], Picture | None]:
        """Return a function that plays and draws an episode of a member, in another environment."""
        config, (algo, env) = self.run.config, self.run.setup(member)
        agent = copy_agent(self.run.lanes.agent(member))

        def draw() -> Picture | None:
            film = self.filming.film(env, algo, agent, jax.random.key(config.seed),
                                     STEPS, config.host_timeout, FRAMES)
            if not film.frames:
                return None
            video = pictures.Video.of(film, env.spec.name)
            return Picture(pictures.gif(video.frames, video.fps), "gif", f"the agent at {text}")

        return draw

    def _deliver(self) -> None:
        """Show a finished picture; after a failure or an empty one no other is drawn."""
        if self._drawing is None or not self._drawing.done():
            return
        drawn, self._drawing = self._drawing, None
        if drawn.exception():
            self._end(drawn.exception())
            return
        picture = drawn.result()
        if self.share.expected:
            self.share.spent = self.share.expected = 0.0
        if picture is None:
            self._end()
        for cell in self.cells:
            cell.picture(*picture)

    def _end(self, failure: BaseException | None = None) -> None:
        for cell in self.cells if failure else ():
            cell.message(f"no live pictures of this run: {failure}")
        self.cells = []


def _png(frame: Any, text: str) -> Picture | None:
    if frame is None:
        return None
    from PIL import Image  # imported on use

    file = io.BytesIO()
    Image.fromarray(np.asarray(frame)).save(file, "PNG")
    return Picture(file.getvalue(), "png", text)
