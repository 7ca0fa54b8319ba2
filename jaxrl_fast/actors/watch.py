"""A watch over threads whose environments on the host may hang, and a function under one."""

from __future__ import annotations

import math
import threading
import time
import warnings
from collections.abc import Callable, Iterator
from concurrent.futures import wait
from contextlib import contextmanager
from typing import Any

from jaxrl_fast.background import aside
from jaxrl_fast.envs.host.api import HostEnv, HostError
from jaxrl_fast.envs.host.vector import Vector

ASLEEP = 3.0  # seconds between checks after which this process was stopped (Ctrl-Z) or asleep


class Limits:
    """Time limits of answers; shorter once the run was asked to stop."""

    hurry = 10.0  # seconds to answer once the run stops, or twice their longest answer

    def __init__(self, patience: float, now: Callable[[], float] = time.monotonic):
        self.patience, self.now, self.hurried = patience, now, math.inf

    def over(self, since: float, hurry: bool, longest: float = 0.0) -> float | None:
        """Return the limit if an answer due from `since` exceeds it; longest: answer so far."""
        now, limit = self.now(), self.patience
        if hurry:
            self.hurried = min(self.hurried, now)
            since, limit = max(since, self.hurried), min(limit, max(self.hurry, 2 * longest))
        return limit if now - since > limit else None


class Watch:
    """Whether environments answer: the stepping thread notes it, the waiting thread reads it."""

    closing = 10.0  # seconds for environments to close; then they are left behind

    def __init__(self, name: str, patience: float = 120.0,
                 now: Callable[[], float] = time.monotonic):
        self.name, self.limits, self.now, self.stopped = name, Limits(patience, now), now, False
        self.since: float | None = None
        self.longest = 0.0  # seconds of an answer
        self.looked = self.awake = now()
        self.vectors: list[Vector] = []
        self.going = threading.Event()  # cleared: the stepping thread waits before its next step
        self.going.set()

    def open(self, env: HostEnv, *args: Any, **settings: Any) -> Vector:
        with self.asked():
            vector = env.open(*args, **settings)
        self.vectors.append(vector)
        if self.stopped:  # `end` was called meanwhile
            vector.kill()
            self.vectors.remove(vector)
            close(vector)
            raise HostError(f"{self.name} was given up while it opened")
        return vector

    @contextmanager
    def asked(self) -> Iterator[None]:
        self.since = began = self.now()
        try:
            yield
        finally:
            self.since, self.longest = None, max(self.longest, self.now() - began)

    def check(self, hurry: bool = False) -> None:
        """Raise HostError for a late answer; call it every second. A pause resets the patience."""
        since, now = self.since, self.now()
        if now - self.looked > ASLEEP:
            self.awake = now
        self.looked = now
        limit = (
            None if since is None else self.limits.over(max(since, self.awake), hurry, self.longest)
        )
        if limit is not None:
            self.stopped = True
            raise HostError(f"{self.name} has not answered for {limit:g} s (host_timeout)")

    def end(self, thread: threading.Thread, patience: float = 1.0) -> None:
        """Let `thread` close its environments; kill or leave behind hanging ones."""
        self.stopped = True
        self.going.set()
        thread.join(patience)
        if thread.is_alive():
            for vector in self.vectors:
                vector.kill()
            thread.join(patience)


def close(vector: Vector) -> None:
    """Close a vector; a failure must not hide results or the first error."""
    try:
        vector.close()
    except (Exception, SystemExit) as error:
        warnings.warn(f"an environment could not be closed: {error!r}", stacklevel=2)


def run_watched(watch: Watch, f: Callable[[], Any],
            stopping: Callable[[], bool] = lambda: False) -> Any:
    """Run f() in a thread, which then closes its environments. Raises HostError if late."""
    future, thread = aside(f, lambda: [close(vector) for vector in watch.vectors] and None)
    asked = math.inf
    try:
        while not wait([future], 0.5).done:
            watch.check(hurry=stopping())
            asked = min(asked, watch.now()) if stopping() else asked
            if watch.now() - asked > watch.limits.hurry:
                raise HostError(f"{watch.name} was played for {watch.limits.hurry:g} s more, and "
                                "not to the end")
    except BaseException:
        watch.end(thread)
        raise
    watch.end(thread, watch.closing)
    return future.result()
