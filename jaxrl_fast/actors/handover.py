"""The handover of rollouts from actors to the learner: content, order, and failures.

    actors = Actors(run, env, groups=2, ahead=1, ...)    a thread (`threads`)
    actors.start(t, agent)           iteration t is the first
    rollout = actors.take(t)         [T, B], collected by the agent of iteration t - ahead
    actors.give(t + 1, agent)        the agent after learning from it

The agent of a rollout is fixed, independent of timing. A worker that fails or hangs restarts,
`restarts` times, and repeats its rollouts.
"""

from __future__ import annotations

import abc
import contextlib
import warnings
from collections.abc import Callable, Sequence
from typing import Any, NamedTuple

import jax
import jax.numpy as jnp
import numpy as np

from jaxrl_fast.actors.play import seed_of
from jaxrl_fast.engine.grid import sizes_of
from jaxrl_fast.engine.iteration import Run
from jaxrl_fast.engine.streams import host_seed_key
from jaxrl_fast.envs.host.api import HostEnv, HostError
from jaxrl_fast.logs.reports import merged
from jaxrl_fast.types import Trajectory


class Rollout(NamedTuple):
    """The data of one iteration for the learner."""

    parts: tuple[Trajectory, ...]  # one a group, on the device
    returns: list[float]  # of ended games, by their own reward
    lengths: list[int]
    fresh: bool = False  # environments restarted: no window may cross to earlier rows
    lag: float = 0.0  # mean iterations by which its rows were acted early
    reports: dict[str, np.ndarray] = {}  # of the environments, as in `reports.Tally.take`
    seconds: dict[str, float] = {}  # by activity, of a Ray process since its last rollout


def join(parts: Sequence[Trajectory]) -> Trajectory:
    if len(parts) == 1:
        return parts[0]
    along = lambda axis, *trees: jax.tree.map(lambda *x: jnp.concatenate(x, axis), *trees)
    steps = along(1, *(p.steps for p in parts))
    return Trajectory(
        steps, *(along(0, *ends) for ends in zip(*(p[1:] for p in parts), strict=True))
    )


def _together(rollouts: Sequence[Rollout], sizes: Sequence[int]) -> Rollout:
    """Join the workers' rollouts; sizes: environments of each."""
    if len(rollouts) == 1:
        return rollouts[0]
    every = lambda name: [x for rollout in rollouts for x in getattr(rollout, name)]
    lags = (rollout.lag * size for rollout, size in zip(rollouts, sizes, strict=True))
    spent = {name: sum(r.seconds.get(name, 0.0) for r in rollouts) / len(rollouts)
             for name in every("seconds")}
    reports = merged(rollout.reports for rollout in rollouts)
    return Rollout(tuple(every("parts")), every("returns"), every("lengths"),
                   False, sum(lags) / sum(sizes), reports, spent)


class Handover(abc.ABC):
    """Base class of actors (see the module's text); a subclass defines its workers."""

    def __init__(
        self, run: Run, env: HostEnv, root: jax.Array, warmup: int, groups: int = 1, ahead: int = 0,
        patience: float = 120.0, restarts: int = 0,
    ):  # fmt: skip
        """run: with the stand-in of `env`. root: the member's key. patience: seconds of a step."""
        self.run, self.env, self.root, self.warmup = run, env, root, warmup
        self.ahead, self.patience, self.restarts, self.failures = ahead, patience, restarts, 0
        self.sizes = sizes_of(run.algo.num_envs, groups)
        self.places = groups  # workers, one for each group
        self.workers: list[Any] = []

    @abc.abstractmethod
    def open(self, i: int, t: int) -> Any:
        """Return worker i, starting at iteration t."""

    @abc.abstractmethod
    def ask(self, i: int, t: int, agent: Any) -> Any:
        """Let worker i play the rollout of iteration t; returns the argument of `wait`."""

    @abc.abstractmethod
    def wait(self, i: int, asked: Any, stopping: Callable[[], bool]) -> Rollout:
        """Wait for worker i's answer, shorter if the run is `stopping`. Raises HostError."""

    @abc.abstractmethod
    def leave(self, i: int) -> None:
        """Release the failed worker i."""

    @abc.abstractmethod
    def stop(self) -> None:
        """Close the environments; kill or leave behind hanging ones."""

    @abc.abstractmethod
    def lap(self) -> dict[str, float]:
        """Return seconds since the last lap: "environments", "transfer", "inference", "waiting"."""

    def paused(self) -> contextlib.AbstractContextManager:
        """Return a context in which no environment of this process steps."""
        return contextlib.nullcontext()

    def sent(self, agent: Any) -> Any:
        return agent

    def may_begin_anew(self, i: int) -> bool:
        return True

    def start(self, t: int, agent: Any) -> None:
        """Open the environments; iteration t is the first."""
        self.first, self.asked, self.agents, self.fresh = t, t, {}, True
        self.answers: list[dict[int, Any]] = [{} for _ in range(self.places)]
        for i in range(self.places):
            self.workers.append(self.open(i, t))
        self.give(t, agent)

    def give(self, t: int, agent: Any) -> None:
        """Take the agent before iteration t learns, never donated, and request its rollouts."""
        kept = {when: old for when, old in self.agents.items() if when >= t - self.ahead - 1}
        self.agents = kept | {t: self.sent(agent)}
        while self.asked - self.ahead <= max(t, self.first):
            for i in range(len(self.workers)):
                self._ask(i, self.asked)
            self.asked += 1

    def take(self, t: int, stopping: Callable[[], bool] = lambda: False) -> Rollout:
        """Wait for the rollout of iteration t. Raises HostError for no answer or many failures."""
        found = _together([self._part(i, t, stopping) for i in range(len(self.workers))],
                          self.sizes)
        fresh, self.fresh = self.fresh, False
        return found._replace(fresh=fresh)

    def lag(self, t: int, rollout: Rollout) -> float:
        """Return the iterations of learning between the acting agents and the learning one."""
        learns, acted, before = (max(when, self.warmup)
                                 for when in (t, self._whose(t), self._whose(t - 1)))
        return learns - acted + rollout.lag * (acted - before)

    def place(self, i: int, t: int) -> tuple[int, int, int, int]:
        """Return (environments, seed, index, first environment) of group i; failures reseed it."""
        seed = seed_of(host_seed_key(self.root, t), self.failures * len(self.sizes) + i)
        return self.sizes[i], seed, i, sum(self.sizes[:i])

    def _whose(self, t: int) -> int:
        """Return the iteration whose agent collects rollout t."""
        return max(t - self.ahead, self.first)

    def _ask(self, i: int, t: int) -> None:
        self.answers[i][t] = self.ask(i, t, self.agents[self._whose(t)])

    def _part(self, i: int, t: int, stopping: Callable[[], bool]) -> Rollout:
        while True:
            try:
                return self.wait(i, self.answers[i].pop(t), stopping)
            except HostError as error:
                self.failures += 1
                if self.failures > self.restarts or stopping() or not self.may_begin_anew(i):
                    raise
                warnings.warn(f"{error}; restarted, {self.failures} of {self.restarts} times",
                              stacklevel=1)
                self._begin_anew(i, t)

    def _begin_anew(self, i: int, t: int) -> None:
        self.leave(i)
        self.workers[i], self.fresh, self.answers[i] = self.open(i, t), True, {}
        for when in range(t, self.asked):
            self._ask(i, when)
