"""How actors hand rollouts to the learner: what a rollout carries, who waits for whom, and what is done where one fails.

    actors = Actors(run, env, groups=2, ahead=1, ...)    a thread (`threads`); `RayActors` (`ray`): a process a group
    actors.start(t, agent)           iteration t is the first
    rollout = actors.take(t)         [T, B], collected by the agent of iteration t - ahead
    actors.give(t + 1, agent)        what the learner has made of it

`ahead` says by how many iterations actors may be ahead of the learner. With 0 they wait for it, and everything is
on-policy; with 1 they collect rollout t + 1 while the learner is at rollout t. A rollout is asked for as soon as its agent
is there. Which agent collects what is fixed, not a matter of who is faster: a run is repeatable bit for bit in either way,
as far as its environments are. (But for those that are acted for as they come, `actors/groups_async.py`.)

A worker that fails or hangs is begun anew, alone, `restarts` times: it plays again what was asked of it.
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
    """What the learner gets for one iteration."""

    parts: tuple[Trajectory, ...]  # one a group, on the device
    returns: list[float]  # of the games that ended, by their own reward
    lengths: list[int]
    fresh: bool = False  # whether environments began anew: no window may cross to the rows before
    lag: float = 0.0  # iterations by which its rows were acted earlier than in its own, on average
    reports: dict[str, np.ndarray] = {}  # what the environments reported beside the reward, as `reports.Tally.take`
    seconds: dict[str, float] = {}  # by activity, of a process of Ray's since its last rollout


def join(parts: Sequence[Trajectory]) -> Trajectory:
    """The groups' rollouts side by side."""
    if len(parts) == 1:
        return parts[0]
    along = lambda axis, *trees: jax.tree.map(lambda *x: jnp.concatenate(x, axis), *trees)
    steps = along(1, *(p.steps for p in parts))
    return Trajectory(steps, *(along(0, *ends) for ends in zip(*(p[1:] for p in parts), strict=True)))


def _together(rollouts: Sequence[Rollout], sizes: Sequence[int]) -> Rollout:
    """The rollouts of all workers as one; sizes: environments of each."""
    if len(rollouts) == 1:
        return rollouts[0]
    every = lambda name: [x for rollout in rollouts for x in getattr(rollout, name)]
    lag = sum(rollout.lag * size for rollout, size in zip(rollouts, sizes, strict=True)) / sum(sizes)
    spent = {name: sum(r.seconds.get(name, 0.0) for r in rollouts) / len(rollouts) for name in every("seconds")}
    reports = merged(rollout.reports for rollout in rollouts)
    return Rollout(tuple(every("parts")), every("returns"), every("lengths"), False, lag, reports, spent)


class Handover(abc.ABC):
    """See the module's text. A subclass says what a worker is, how it is asked, waited for and left."""

    def __init__(
        self, run: Run, env: HostEnv, root: jax.Array, warmup: int, groups: int = 1, ahead: int = 0,
        patience: float = 120.0, restarts: int = 0,
    ):  # fmt: skip
        """Make actors that have not begun.

        Args:
            run: what is trained, with the stand-in of `env` on the device.
            root: the member's key.
            warmup: iterations of random actions.
            groups: vectors into which the environments are divided.
            patience: seconds a step may take.
        """
        self.run, self.env, self.root, self.warmup = run, env, root, warmup
        self.ahead, self.patience, self.restarts, self.failures = ahead, patience, restarts, 0
        self.sizes = sizes_of(run.algo.num_envs, groups)
        self.workers: list[Any] = []

    # What a kind of actors says --------------------------------------------------------------------------------------

    def places(self) -> int:
        """How many workers there are: one for each group."""
        return len(self.sizes)

    @abc.abstractmethod
    def open(self, i: int, t: int) -> Any:
        """Return worker i, which begins at iteration t."""

    @abc.abstractmethod
    def ask(self, i: int, t: int, agent: Any) -> Any:
        """Let worker i play the rollout of iteration t; returns what `wait` takes."""

    @abc.abstractmethod
    def wait(self, i: int, asked: Any, stopping: Callable[[], bool]) -> Rollout:
        """Wait for what worker i was asked for, less long where the run is `stopping`. Raises HostError."""

    @abc.abstractmethod
    def leave(self, i: int) -> None:
        """Let go of worker i, which failed."""

    @abc.abstractmethod
    def stop(self) -> None:
        """Close the environments; what hangs in them is killed or left behind."""

    @abc.abstractmethod
    def lap(self) -> dict[str, float]:
        """Seconds since the last lap: of "environments", "transfer", "inference", and "waiting" for the learner."""

    def paused(self) -> contextlib.AbstractContextManager:
        """No environment of this process is stepped meanwhile, so that nothing is collected in time that counts otherwise."""
        return contextlib.nullcontext()

    def sent(self, agent: Any) -> Any:
        """What of an agent goes to the workers."""
        return agent

    def may_begin_anew(self, i: int) -> bool:
        """Whether it is worth while to open worker i again."""
        return True

    # Rollouts and agents ---------------------------------------------------------------------------------------------

    def start(self, t: int, agent: Any) -> None:
        """Open the environments; iteration t is the first."""
        self.first, self.asked, self.agents, self.fresh = t, t, {}, True
        self.answers: list[dict[int, Any]] = [{} for _ in range(self.places())]
        for i in range(self.places()):
            self.workers.append(self.open(i, t))
        self.give(t, agent)

    def give(self, t: int, agent: Any) -> None:
        """The agent as it is before iteration t learns: the rollouts that are to be its own are asked for.

        Its arrays must not be donated.
        """
        kept = {when: old for when, old in self.agents.items() if when >= t - self.ahead - 1}
        self.agents = kept | {t: self.sent(agent)}
        while self.asked - self.ahead <= max(t, self.first):
            for i in range(len(self.workers)):
                self._ask(i, self.asked)
            self.asked += 1

    def take(self, t: int, stopping: Callable[[], bool] = lambda: False) -> Rollout:
        """The rollout of iteration t; waits for it, less long where the run is `stopping`.

        HostError where environments failed once too often, or do not answer.
        """
        found = _together([self._part(i, t, stopping) for i in range(len(self.workers))], self.sizes)
        fresh, self.fresh = self.fresh, False
        return found._replace(fresh=fresh)

    def lag(self, t: int, rollout: Rollout) -> float:
        """Iterations of learning between the agents that acted in the rollout of iteration t and the one that learns from it."""
        learns, acted, before = (max(when, self.warmup) for when in (t, self._whose(t), self._whose(t - 1)))
        return learns - acted + rollout.lag * (acted - before)

    def place(self, i: int, t: int) -> tuple[int, int, int, int]:
        """(environments, seed, index, first environment) of group i; seeds differ again after a fault at iteration t."""
        seed = seed_of(host_seed_key(self.root, t), self.failures * len(self.sizes) + i)
        return self.sizes[i], seed, i, sum(self.sizes[:i])

    def _whose(self, t: int) -> int:
        """The iteration before which the agent was made that collects rollout t."""
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
                warnings.warn(f"{error}; begun anew, {self.failures} of {self.restarts} times", stacklevel=1)
                self._begin_anew(i, t)

    def _begin_anew(self, i: int, t: int) -> None:
        self.leave(i)
        self.workers[i], self.fresh, self.answers[i] = self.open(i, t), True, {}
        for when in range(t, self.asked):
            self._ask(i, when)
