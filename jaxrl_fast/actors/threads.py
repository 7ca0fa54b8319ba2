"""Actors: a thread that steps environments on the host and hands whole rollouts to the learner.

    actors = Actors(run, env, groups=2, ahead=1, ...)
    actors.start(t, agent)           iteration t is the first
    rollout = actors.take(t)         [T, B], collected by the agent of iteration t - ahead
    actors.give(t + 1, agent)        what the learner has made of it

The environments are in `groups` of which each is a vector of its own: while one steps, the device acts for another.
`ahead` says by how many iterations actors may be ahead of the learner. With 0 they wait for it, and everything is
on-policy; with 1 they collect rollout t + 1 while the learner is at rollout t. Which agent collects what is fixed, not
a matter of who is faster: a run is repeatable bit for bit in either way, as far as its environments are. (But for those
that are acted for as they come, `actors/groups_async.py`.)
"""

from __future__ import annotations

import queue
import threading
import time
import warnings
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from typing import Any

import jax

from jaxrl_fast.actors import play as host_play
from jaxrl_fast.actors.groups import Group, Rollout, Stopped, SyncGroup, go_on
from jaxrl_fast.actors.groups_async import AsyncGroup
from jaxrl_fast.actors.watch import CLOSING, Watch
from jaxrl_fast.engine.grid import sizes_of
from jaxrl_fast.engine.iteration import Run
from jaxrl_fast.engine.streams import host_seed_key
from jaxrl_fast.envs.host.api import HostEnv, HostError
from jaxrl_fast.logs.reports import merged
from jaxrl_fast.logs.walltime import WallTime


def whose(actors: Any, t: int) -> int:
    """The iteration before which the agent was made that collects rollout t, of `Actors` here or on Ray."""
    return max(t - actors.ahead, actors.first)


def open_group(env: HostEnv, run: Run, watch: Watch, num_envs: int, seed: int, index: int, first: int) -> Group:
    """The `num_envs` environments from the `first` on, the group with this `index`."""
    return (SyncGroup if env.at_once(num_envs) is None else AsyncGroup)(env, run, watch, num_envs, seed, index, first)


def play(
    run: Run, root: jax.Array, groups: list[Group], agent: Any, t: int, warmup: int, watch: Watch, clock: WallTime
) -> Rollout:
    """The rollout of iteration t: while one group's environments step, the device acts for another.

    clock: of this thread; its activities are "environments", "transfer" and "inference", or "waiting" while it is paused.
    """
    mode = "random" if t < warmup else "sample"
    returns: list[float] = []
    lengths: list[int] = []
    clock.switch("inference")
    agent = host_play.acting(run.algo, agent)
    if isinstance(groups[0], AsyncGroup):
        return groups[0].play(root, agent, t, mode, clock)

    def receive(group: Group) -> None:
        group.send()
        clock.switch("environments")
        with watch.asked():
            group.receive(returns, lengths)
        clock.switch("transfer")
        group.transfer()
        clock.switch("inference")

    for group in groups:
        group.begin(root, t)
    for i in range(run.algo.num_steps):
        for group in groups:
            if i:
                receive(group)
            go_on(watch, clock)
            group.act(agent, i, mode)
    for group in groups:
        receive(group)
    reports = merged(group.tally.take() for group in groups)
    return Rollout(tuple(group.end() for group in groups), returns, lengths, False, reports=reports)


def seed_of_group(root: jax.Array, t: int, i: int) -> int:
    """Seeds differ between groups, and again after a resume or a fault at iteration t."""
    return host_play.seed_of(host_seed_key(root, t), i)


class Actors:
    """See the module's text. run: with the stand-in of `env` on the device; patience: seconds a step may take."""

    def __init__(
        self, run: Run, env: HostEnv, root: jax.Array, warmup: int, groups: int = 1, ahead: int = 0,
        patience: float = 120.0, restarts: int = 0,
    ):  # fmt: skip
        self.run, self.env, self.root, self.warmup = run, env, root, warmup
        self.ahead, self.patience, self.restarts, self.failures = ahead, patience, restarts, 0
        self.sizes = sizes_of(run.algo.num_envs, groups)
        self._watch, self.clock, self._lapped = Watch(env.spec.name, patience), WallTime("waiting"), time.perf_counter()
        self._agents: dict[int, Any] = {}  # by the iteration whose rollout they are to collect without lag
        self._ready = threading.Condition()

    def start(self, t: int, agent: Any) -> None:
        self.first, self._lapped = t, time.perf_counter()
        self.give(t, agent)
        self._begin(t)

    def _begin(self, t: int) -> None:
        """A thread of its own queue and watch: of one that hangs nothing is heard any more."""
        self._rollouts: queue.Queue = queue.Queue()
        self._watch = Watch(self.env.spec.name, self.patience)
        self.clock = WallTime("waiting", self._lapped)
        args = (t, self.failures, self._watch, self.clock, self._rollouts)
        self._thread = threading.Thread(target=self._work, args=args, name="actors", daemon=True)
        self._thread.start()

    def give(self, t: int, agent: Any) -> None:
        """The agent as it is before iteration t learns. Its arrays must not be donated."""
        with self._ready:
            self._agents = {when: a for when, a in self._agents.items() if when >= t - self.ahead - 1}
            self._agents[t] = agent
            self._ready.notify_all()

    def take(self, t: int, stopping: Callable[[], bool] = lambda: False) -> Rollout:
        """The rollout of iteration t; waits for it, less long where the run is `stopping`.

        HostError where the environments failed, or do not answer.
        """
        while True:
            try:
                found = self._next(stopping)
                if isinstance(found, BaseException):
                    raise found
                return found
            except HostError as error:
                self.failures += 1
                if self.failures > self.restarts or stopping():
                    raise
                warnings.warn(f"{error}; begun anew, {self.failures} of {self.restarts} times", stacklevel=1)
                self._abandon(1.0)
                self._begin(t)

    def _next(self, stopping: Callable[[], bool]) -> Any:
        while True:
            try:
                return self._rollouts.get(timeout=1.0)
            except queue.Empty:
                self._watch.check(hurry=stopping())

    def lap(self) -> dict[str, float]:
        """Seconds since the last lap: of "environments", "transfer", "inference", and "waiting" for the learner."""
        self._lapped = time.perf_counter()
        return self.clock.lap()

    @contextmanager
    def paused(self) -> Iterator[None]:
        """No environment is stepped meanwhile, so that nothing is collected in time that counts as something else."""
        self._watch.going.clear()
        try:
            yield
        finally:
            self._watch.going.set()

    def _abandon(self, patience: float) -> None:
        with self._ready:
            self._watch.stopped = True
            self._watch.going.set()
            self._ready.notify_all()
        self._watch.end(self._thread, patience)

    def stop(self) -> None:
        """Close the environments; a thread that hangs in one that cannot be killed is left behind."""
        self._abandon(CLOSING)

    def _agent(self, t: int, watch: Watch) -> Any:
        when = whose(self, t)
        with self._ready:
            while when not in self._agents and not watch.stopped:
                self._ready.wait()
            if watch.stopped:
                raise Stopped
            return self._agents[when]

    def _work(self, t: int, failures: int, watch: Watch, clock: WallTime, rollouts: queue.Queue) -> None:
        groups: list[Group] = []
        fresh = True
        try:
            self._open(groups, t, failures, watch)
            while True:
                agent = self._agent(t, watch)
                played = play(self.run, self.root, groups, agent, t, self.warmup, watch, clock)
                clock.switch("waiting")
                rollouts.put(played._replace(fresh=fresh))
                t, fresh = t + 1, False
        except Stopped:
            pass
        except BaseException as error:  # the learner raises it
            rollouts.put(error)
        finally:
            for group in groups:
                group.close()

    def _open(self, groups: list[Group], t: int, failures: int, watch: Watch) -> None:
        for i, size in enumerate(self.sizes):
            seed = seed_of_group(self.root, t, failures * len(self.sizes) + i)
            groups.append(open_group(self.env, self.run, watch, size, seed, i, sum(self.sizes[:i])))
