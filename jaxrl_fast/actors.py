"""Actors: a thread that steps environments on the host and hands whole rollouts to the learner.

    actors = Actors(run, env, groups=2, ahead=1, ...)
    actors.start(t, agent)           iteration t is the first
    rollout = actors.take(t)         [T, B], collected by the agent of iteration t - ahead
    actors.give(t + 1, agent)        what the learner has made of it

The environments are in `groups` of which each is a vector of its own: while one steps, the device acts for another.
`ahead` says by how many iterations actors may be ahead of the learner. With 0 they wait for it, and everything is
on-policy; with 1 they collect rollout t + 1 while the learner is at rollout t. Which agent collects what is fixed, not
a matter of who is faster: a run is repeatable bit for bit in either way, as far as its environments are.
"""

from __future__ import annotations

import functools
import queue
import threading
import time
import warnings
from collections.abc import Callable
from typing import Any, NamedTuple

import jax
import numpy as np

from jaxrl_fast import host_play, iterate, random, tree
from jaxrl_fast.envs.host import HostEnv, HostError
from jaxrl_fast.host_play import Seen
from jaxrl_fast.iterate import Run
from jaxrl_fast.types import Trajectory
from jaxrl_fast.watch import CLOSING, Watch, close


class Rollout(NamedTuple):
    """What the learner gets for one iteration."""

    parts: tuple[Trajectory, ...]  # one a group, on the device
    returns: list[float]  # of the games that ended, by their own reward
    lengths: list[int]
    fresh: bool  # whether the environments began anew: no window may cross to the rows before
    seconds: dict[str, float]  # of the actors' time: "environments", "transfer", "inference", "waiting"


LARGE = 2**16  # bytes of observations from which sending them is a step of its own; fewer go with the launch of the program


class Stopped(Exception):
    """Nobody waits for this thread any more."""


class Group:
    """Some of the environments: a vector, what the agent sees of it, and the games that go on."""

    def __init__(self, env: HostEnv, run: Run, watch: Watch, num_envs: int, seed: int, index: int, first: int):
        self.run, self.watch, self.index, self.first_env, self.num_envs = run, watch, index, first, num_envs
        self.vector = watch.open(env, num_envs, seed)
        try:
            with watch.asked():
                obs = self.vector.reset()
            host_play.check(env.spec, num_envs, obs, first)
        except BaseException:
            self.close()
            raise
        self.large = tree.nbytes(obs) >= LARGE
        self.actor = host_play.begin(run.algo, obs, first, run.algo.num_envs)
        self.score, self.length = np.zeros(num_envs), np.zeros(num_envs, np.int64)
        self.action: Any = None  # on the device, until it is sent

    def begin(self, root: jax.Array, t: int) -> None:
        """A new rollout."""
        self.noise, self.clock = _prelude(self.run, root, np.int32(t), self.index, self.num_envs)
        self.first, self.seen, self.steps = self.actor, None, None

    def act(self, agent: Any, i: int, mode: str) -> None:
        self.actor, self.steps, self.action = host_play.step(
            self.run.algo, agent, self.actor, self.steps, self.seen, self.noise, self.clock, np.int32(i), mode
        )
        if self.vector.steps_apart:
            self.send()

    def send(self) -> None:
        """Wait for the actions. Environments that step only in `receive` get them there, after another group's have stepped."""
        if self.action is not None:
            action, self.action = np.asarray(self.action), None
            with self.watch.asked():
                self.vector.send(action)

    def receive(self, returns: list[float], lengths: list[int]) -> None:
        found = self.vector.receive()
        host_play.check_step(self.run.algo.spec, self.num_envs, found, self.first_env)
        real = 1 if found.real is None else found.real
        self.score, self.length = self.score + found.score * real, self.length + real
        if found.over.any():
            returns += self.score[found.over].tolist()
            lengths += self.length[found.over].tolist()
            self.score[found.over], self.length[found.over] = 0.0, 0
        self.seen = Seen.of(found)

    def transfer(self) -> None:
        """What was seen, to the device: a copy, because the environments may write to theirs."""
        if self.large:
            self.seen = jax.block_until_ready(jax.device_put(self.seen, may_alias=False))

    def close(self) -> None:
        close(self.vector)

    def end(self) -> Trajectory:
        last = np.int32(self.run.algo.num_steps - 1)
        self.actor, trajectory = host_play.end(self.run.algo, self.first, self.actor, self.steps, self.seen, last)
        return trajectory


@functools.partial(jax.jit, static_argnames=("group", "num_envs"))
def _prelude(run: Run, root: jax.Array, t: jax.Array, group: int, num_envs: int):
    """What is random of a group's rollout, and the clock. Of the only group it is what a device environment would get."""
    key = random.keys_at(root, t, 4)[1]
    key = random.fold_in(key, group) if group else key
    return run.algo.draw(key, run.algo.num_steps, num_envs), iterate.clock_at(run, t)


def whose(actors: Any, t: int) -> int:
    """The iteration before which the agent was made that collects rollout t, of `Actors` here or on Ray."""
    return max(t - actors.ahead, actors.first)


def play(run: Run, root: jax.Array, groups: list[Group], agent: Any, t: int, warmup: int, watch: Watch) -> Rollout:
    """The rollout of iteration t: while one group's environments step, the device acts for another."""
    mode = "random" if t < warmup else "sample"
    returns: list[float] = []
    lengths: list[int] = []
    seconds = {"environments": 0.0, "transfer": 0.0, "inference": 0.0}
    agent = host_play.acting(run.algo, agent)

    def receive(group: Group) -> None:
        start = time.perf_counter()
        group.send()
        sent = time.perf_counter()
        with watch.asked():
            group.receive(returns, lengths)
        received = time.perf_counter()
        group.transfer()
        seconds["inference"] += sent - start
        seconds["environments"] += received - sent
        seconds["transfer"] += time.perf_counter() - received

    for group in groups:
        group.begin(root, t)
    for i in range(run.algo.num_steps):
        for group in groups:
            if i:
                receive(group)
            if watch.stopped:
                raise Stopped
            start = time.perf_counter()
            group.act(agent, i, mode)
            seconds["inference"] += time.perf_counter() - start
    for group in groups:
        receive(group)
    return Rollout(tuple(group.end() for group in groups), returns, lengths, False, seconds)


def sizes_of(num_envs: int, groups: int) -> list[int]:
    """How many environments each of the groups has."""
    return [len(part) for part in np.array_split(np.arange(num_envs), groups)]


def seed_of_group(root: jax.Array, t: int, i: int) -> int:
    """Seeds differ between groups, and again after a resume or a fault at iteration t."""
    return host_play.seed_of(random.fold_in(random.fold_in(root, 2**32 - 3), t), i)


class Actors:
    """See the module's text. run: with the stand-in of `env` on the device; patience: seconds a step may take."""

    def __init__(
        self, run: Run, env: HostEnv, root: jax.Array, warmup: int, groups: int = 1, ahead: int = 0,
        patience: float = 120.0, restarts: int = 0,
    ):  # fmt: skip
        self.run, self.env, self.root, self.warmup = run, env, root, warmup
        self.ahead, self.patience, self.restarts, self.failures = ahead, patience, restarts, 0
        self.sizes = sizes_of(run.algo.num_envs, groups)
        self._agents: dict[int, Any] = {}  # by the iteration whose rollout they are to collect without lag
        self._ready = threading.Condition()

    def start(self, t: int, agent: Any) -> None:
        self.first = t
        self.give(t, agent)
        self._begin(t)

    def _begin(self, t: int) -> None:
        """A thread of its own queue and watch: of one that hangs nothing is heard any more."""
        self._rollouts: queue.Queue = queue.Queue()
        self._watch = Watch(self.env.spec.name, self.patience)
        args = (t, self.failures, self._watch, self._rollouts)
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

    def _abandon(self, patience: float) -> None:
        with self._ready:
            self._watch.stopped = True
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

    def _work(self, t: int, failures: int, watch: Watch, rollouts: queue.Queue) -> None:
        groups: list[Group] = []
        fresh = True
        try:
            self._open(groups, t, failures, watch)
            while True:
                began = time.perf_counter()
                agent = self._agent(t, watch)
                waited = time.perf_counter() - began
                played = play(self.run, self.root, groups, agent, t, self.warmup, watch)
                played.seconds["waiting"] = waited
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
            groups.append(Group(self.env, self.run, watch, size, seed, i, sum(self.sizes[:i])))
