"""Actors in a thread that steps all groups: while one steps, the device acts for another."""

from __future__ import annotations

import queue
import threading
import time
from collections.abc import Callable, Iterator
from concurrent.futures import Future, wait
from contextlib import contextmanager
from typing import Any

from jaxrl_fast.actors.groups import Group, Stopped, rollout
from jaxrl_fast.actors.groups_async import open_group
from jaxrl_fast.actors.handover import Handover, Rollout
from jaxrl_fast.actors.watch import Watch
from jaxrl_fast.logs.walltime import WallTime


class Worker:
    """A thread with its own requests, watch and clock; a hanging one is not heard any more."""

    def __init__(self, actors: Actors):
        self.actors = actors
        self.watch = Watch(actors.env.spec.name, actors.patience)
        self.clock = WallTime("waiting", actors.lapped)
        # (t, agent, Future), in the order of t; None: no more
        self.requests: queue.SimpleQueue = queue.SimpleQueue()
        self._thread = threading.Thread(target=self._work, name="actors", daemon=True)
        self._thread.start()

    def end(self, patience: float) -> None:
        self.requests.put(None)
        self.watch.end(self._thread, patience)

    def _work(self) -> None:
        groups: list[Group] = []
        try:
            while (request := self.requests.get()) is not None and self._answered(groups, *request):
                pass
        finally:
            for group in groups:
                group.close()

    def _answered(self, groups: list[Group], t: int, agent: Any, answer: Future) -> bool:
        """Play a rollout; False if it is the last."""
        try:
            if not groups:
                self.actors.open_groups(groups, t, self.watch)
            played = rollout(groups, self.actors.root, agent, t, self.actors.warmup, self.clock)
            self.clock.switch("waiting")
            answer.set_result(played)
        except Stopped:
            return False
        except BaseException as error:  # the learner raises it
            answer.set_exception(error)
            return False
        return True


class Actors(Handover):
    @property
    def worker(self) -> Worker:
        return self.workers[0]

    def start(self, t: int, agent: Any) -> None:
        self.lapped, self.places = time.perf_counter(), 1
        super().start(t, agent)

    def open(self, i: int, t: int) -> Worker:
        return Worker(self)

    def open_groups(self, groups: list[Group], t: int, watch: Watch) -> None:
        for i in range(len(self.sizes)):
            groups.append(open_group(self.env, self.run, watch, *self.place(i, t)))

    def ask(self, i: int, t: int, agent: Any) -> Future:
        answer: Future = Future()
        self.worker.requests.put((t, agent, answer))
        return answer

    def wait(self, i: int, asked: Future, stopping: Callable[[], bool]) -> Rollout:
        while not wait([asked], timeout=1.0).done:
            self.worker.watch.check(hurry=stopping())
        return asked.result()

    def leave(self, i: int) -> None:
        self.worker.end(1.0)

    def stop(self) -> None:
        for worker in self.workers:  # none if `start` was interrupted
            worker.end(worker.watch.closing)

    def lap(self) -> dict[str, float]:
        self.lapped = time.perf_counter()
        return self.worker.clock.lap()

    @contextmanager
    def paused(self) -> Iterator[None]:
        self.worker.watch.going.clear()
        try:
            yield
        finally:
            self.worker.watch.going.set()
