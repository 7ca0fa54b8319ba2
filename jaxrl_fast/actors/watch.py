"""Environments on the host may hang: a watch over the thread that steps them, and a function run under one."""

from __future__ import annotations

import math
import threading
import time
import warnings
from collections.abc import Callable, Iterator
from concurrent.futures import wait
from contextlib import contextmanager
from typing import Any

from jaxrl_fast.envs.host.api import HostEnv, HostError, Vector
from jaxrl_fast.envs.host.aside import aside

ASLEEP = 3.0  # seconds between two looks from which on this process was stopped (Ctrl-Z), or its machine asleep
CLOSING = 10.0  # seconds in which environments must close; then they are left behind
HURRY = 10.0  # seconds in which they must answer from where the run is asked to stop, or twice what they ever took


class Limits:
    """How long one may wait for environments: less from where the run was first seen to be asked to stop."""

    def __init__(self, patience: float):
        self.patience, self.hurried = patience, math.inf

    def over(self, since: float, hurry: bool, longest: float = 0.0) -> float | None:
        """The limit, where who was asked at `since` and never took more than `longest` has not answered within it."""
        now, limit = time.monotonic(), self.patience
        if hurry:
            self.hurried = min(self.hurried, now)
            since, limit = max(since, self.hurried), min(limit, max(HURRY, 2 * longest))
        return limit if now - since > limit else None


class Watch:
    """Whether environments answer: noted by the thread that steps them, read by the thread that waits for it."""

    def __init__(self, name: str, patience: float):
        self.name, self.limits, self.stopped = name, Limits(patience), False
        self.since: float | None = None
        self.longest = 0.0  # seconds that an answer took
        self.looked = self.awake = time.monotonic()
        self.vectors: list[Vector] = []
        self.going = threading.Event()  # cleared: the thread that steps the environments waits before the next step
        self.going.set()

    def open(self, env: HostEnv, *args: Any, **settings: Any) -> Vector:
        """A vector of `env`, which `end` knows of from here on."""
        with self.asked():
            vector = env.open(*args, **settings)
        self.vectors.append(vector)
        if self.stopped:  # `end` has been here already
            vector.kill()
            self.vectors.remove(vector)
            close(vector)
            raise HostError(f"{self.name} was given up while it opened")
        return vector

    @contextmanager
    def asked(self) -> Iterator[None]:
        self.since = began = time.monotonic()
        try:
            yield
        finally:
            self.since, self.longest = None, max(self.longest, time.monotonic() - began)

    def check(self, hurry: bool = False) -> None:
        """To be called every second or so: patience begins anew after a pause, in which environments were stopped too."""
        since, now = self.since, time.monotonic()
        if now - self.looked > ASLEEP:
            self.awake = now
        self.looked = now
        limit = None if since is None else self.limits.over(max(since, self.awake), hurry, self.longest)
        if limit is not None:
            self.stopped = True
            raise HostError(f"{self.name} has not answered for {limit:g} s (host_timeout)")

    def end(self, thread: threading.Thread, patience: float = 1.0) -> None:
        """Let `thread` close its environments. Where it hangs in them, what they run in is killed; else it is left behind."""
        self.stopped = True
        self.going.set()
        thread.join(patience)
        if thread.is_alive():
            for vector in self.vectors:
                vector.kill()
            thread.join(patience)


def close(vector: Vector) -> None:
    """What goes wrong here must not hide what was played, or what ended it."""
    try:
        vector.close()
    except (Exception, SystemExit) as error:
        warnings.warn(f"an environment could not be closed: {error!r}", stacklevel=2)


def watched(watch: Watch, f: Callable[[], Any], stopping: Callable[[], bool] = lambda: False) -> Any:
    """f() in a thread, which then closes what was opened.

    HostError where environments do not answer, or where `f` goes on for long after the run is asked to stop.
    """
    future, thread = aside(f, lambda: [close(vector) for vector in watch.vectors] and None)
    asked = math.inf
    try:
        while not wait([future], 0.5).done:
            watch.check(hurry=stopping())
            asked = min(asked, time.monotonic()) if stopping() else asked
            if time.monotonic() - asked > HURRY:
                raise HostError(f"{watch.name} was played for {HURRY:g} s more, and not to the end")
    except BaseException:
        watch.end(thread)
        raise
    watch.end(thread, CLOSING)
    return future.result()
