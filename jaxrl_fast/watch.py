"""Environments on the host may hang: a watch over whoever asks them, and a function run under one."""

from __future__ import annotations

import threading
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from typing import Any

from jaxrl_fast.envs.host import HostEnv, HostError, Vector


class Watch:
    """Whether environments answer: noted by whoever asks them, looked at by whoever waits for it."""

    def __init__(self, name: str, patience: float):
        self.name, self.patience, self.stopped = name, patience, False
        self.since: float | None = None
        self.vectors: list[Vector] = []

    def open(self, env: HostEnv, *args: Any, **settings: Any) -> Vector:
        """A vector of `env`, which `end` knows of from here on."""
        with self.asked():
            vector = env.open(*args, **settings)
        self.vectors.append(vector)
        if self.stopped:  # `end` has been here already
            vector.kill()
            vector.close()
            raise HostError(f"{self.name} was given up while it opened")
        return vector

    @contextmanager
    def asked(self) -> Iterator[None]:
        self.since = time.monotonic()
        try:
            yield
        finally:
            self.since = None

    def check(self) -> None:
        since = self.since
        if since is not None and time.monotonic() - since > self.patience:
            self.stopped = True
            raise HostError(f"{self.name} has not answered for {self.patience:g} s (host_timeout)")

    def end(self, thread: threading.Thread, patience: float = 1.0) -> None:
        """Let `thread` close its environments. Where it hangs in them, what they run in is killed; else it is left behind."""
        self.stopped = True
        thread.join(patience)
        if thread.is_alive():
            for vector in self.vectors:
                vector.kill()
            thread.join(patience)


def watched(watch: Watch, f: Callable[[], Any]) -> Any:
    """f() in a thread; HostError where environments do not answer."""
    found: list[tuple[Any, BaseException | None]] = []

    def run():
        try:
            found.append((f(), None))
        except BaseException as error:  # raised where it is waited for
            found.append((None, error))

    thread = threading.Thread(target=run, name="evaluation", daemon=True)
    thread.start()
    try:
        while thread.is_alive():
            thread.join(timeout=0.5)
            watch.check()
    except BaseException:
        watch.end(thread)
        raise
    value, error = found[0]
    if error is not None:
        raise error
    return value
