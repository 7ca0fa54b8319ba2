"""Actors in a thread of this process, which steps all groups of environments: while one steps, the device acts for another."""

from __future__ import annotations

import queue
import threading
import time
from collections.abc import Callable, Iterator
from concurrent.futures import Future, wait
from contextlib import contextmanager
from typing import Any

from jaxrl_fast.actors.groups import Group, Stopped
from jaxrl_fast.actors.handover import Handover, Rollout
from jaxrl_fast.actors.rollouts import open_group, play
from jaxrl_fast.actors.watch import CLOSING, Watch
from jaxrl_fast.logs.walltime import WallTime


class Worker:
    """A thread with its own requests, watch and clock: nothing is heard any more of one that hangs.

    Args:
        opened: opens its groups of environments under a watch, into a list.
        play: plays (groups, t, agent, watch, clock) -> Rollout.
        since: where its clock begins.
    """

    def __init__(self, name: str, patience: float, since: float, opened: Callable[..., None], play: Callable[..., Rollout]):
        self.watch, self.clock = Watch(name, patience), WallTime("waiting", since)
        self.requests: queue.SimpleQueue = queue.SimpleQueue()  # (t, agent, Future), in the order of t; None: no more
        self._opened, self._play = opened, play
        self._thread = threading.Thread(target=self._work, name="actors", daemon=True)
        self._thread.start()

    def end(self, patience: float) -> None:
        self.watch.stopped = True
        self.watch.going.set()
        self.requests.put(None)
        self.watch.end(self._thread, patience)

    def _work(self) -> None:
        groups: list[Group] = []
        try:
            while (request := self.requests.get()) is not None and not self.watch.stopped:
                if not self._answered(groups, *request):
                    break
        finally:
            for group in groups:
                group.close()

    def _answered(self, groups: list[Group], t: int, agent: Any, answer: Future) -> bool:
        """Play a rollout; False where it is the last."""
        try:
            if not groups:
                self._opened(groups, t, self.watch)
            rollout = self._play(groups, t, agent, self.watch, self.clock)
            self.clock.switch("waiting")
            answer.set_result(rollout)
            return True
        except Stopped:
            return False
        except BaseException as error:  # the learner raises it
            answer.set_exception(error)
            return False


class Actors(Handover):
    """One worker for all groups. See `Handover`."""

    lapped: float | None = None

    def places(self) -> int:
        return 1

    @property
    def worker(self) -> Worker:
        return self.workers[0]

    def start(self, t: int, agent: Any) -> None:
        self.lapped = time.perf_counter()
        super().start(t, agent)

    def open(self, i: int, t: int) -> Worker:
        return Worker(self.env.spec.name, self.patience, self.lapped, self._open_groups, self._play)

    def _open_groups(self, groups: list[Group], t: int, watch: Watch) -> None:
        for i, size in enumerate(self.sizes):
            groups.append(open_group(self.env, self.run, watch, size, self.seed(t, i), i, sum(self.sizes[:i])))

    def _play(self, groups: list[Group], t: int, agent: Any, watch: Watch, clock: WallTime) -> Rollout:
        return play(self.run, self.root, groups, agent, t, self.warmup, watch, clock)

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
        """Close the environments; a thread that hangs in one that cannot be killed is left behind."""
        self.worker.end(CLOSING)

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
