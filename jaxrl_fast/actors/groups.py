"""Groups of environments on the host: each a vector, stepped as one."""

from __future__ import annotations

import functools
from typing import Any

import jax
import numpy as np

from jaxrl_fast import random, tree
from jaxrl_fast.actors import play
from jaxrl_fast.actors.handover import Rollout
from jaxrl_fast.actors.play import Seen
from jaxrl_fast.actors.watch import Watch, close
from jaxrl_fast.engine import iteration
from jaxrl_fast.engine.iteration import Run
from jaxrl_fast.engine.streams import iteration_keys
from jaxrl_fast.envs.host import checks
from jaxrl_fast.envs.host.api import HostEnv
from jaxrl_fast.logs.reports import Tally, merged
from jaxrl_fast.logs.walltime import WallTime
from jaxrl_fast.types import Trajectory

LARGE = 2**16  # bytes of observations from which sending them is a step of its own


class Stopped(Exception):
    """Raised in a thread after the run stopped waiting for it."""


def go_on(watch: Watch, clock: WallTime) -> None:
    """Wait while the environments are paused. Raises Stopped at their end."""
    if not watch.going.is_set():
        with clock.during("waiting"):
            watch.going.wait()
    if watch.stopped:
        raise Stopped


class Group:
    """A vector of environments, and the games in progress."""

    def __init__(self, env: HostEnv, run: Run, watch: Watch, num_envs: int,
                 seed: int, index: int, first: int):
        self.run, self.watch, self.index = run, watch, index
        self.first_env, self.num_envs = first, num_envs
        self.vector = watch.open(env, num_envs, seed)
        try:
            with watch.asked():
                obs = self.vector.reset()
            checks.check(env.spec, num_envs, obs, first + np.arange(num_envs))
        except BaseException:
            self.close()
            raise
        self.large = tree.nbytes(obs) >= LARGE
        self.actor = play.begin(run.algo, obs, first, run.algo.num_envs)
        self.every, self.seen = np.arange(num_envs), None
        self.score, self.length = np.zeros(num_envs), np.zeros(num_envs, np.int64)
        self.tally = Tally()

    def receive(self, returns: list[float], lengths: list[int]) -> np.ndarray:
        """Receive a step and note the games that ended -> ids of the environments that stepped."""
        found = self.vector.receive()
        ids = self.every if found.ids is None else found.ids
        checks.check_step(self.run.algo.spec, len(ids), found, self.first_env + ids)
        self.tally.add(found.info, found.over)
        real = 1 if found.real is None else found.real
        self.score[ids] += found.score * real
        self.length[ids] += real
        if found.over.any():
            over = ids[found.over]
            returns += self.score[over].tolist()
            lengths += self.length[over].tolist()
            self.score[over], self.length[over] = 0.0, 0
        self.seen = Seen.of(found)
        return ids

    def transfer(self) -> None:
        """Copy the observations to the device; the environments may overwrite theirs."""
        if self.large:
            self.seen = jax.block_until_ready(jax.device_put(self.seen, may_alias=False))

    def close(self) -> None:
        close(self.vector)


class SyncGroup(Group):
    """Environments that step together; `actor` is the agent's view of them."""

    action: Any = None  # on the device, until sent

    def begin(self, root: jax.Array, t: int) -> None:
        self.noise, self.clock = _prelude(self.run, root, np.int32(t), self.index, self.num_envs)
        self.first, self.seen, self.steps = self.actor, None, None

    def act(self, agent: Any, i: int, mode: str) -> None:
        self.actor, self.steps, self.action = play.step(
            self.run.algo, agent, self.actor, self.steps, self.seen, self.noise,
            self.clock, np.int32(i), mode
        )
        if self.vector.steps_apart:
            self.send()

    def send(self) -> None:
        """Send the actions, for environments that step in `receive` after other groups' steps."""
        if self.action is not None:
            action = play.playable(self.run.algo.spec.action, np.asarray(self.action))[0]
            self.action = None
            with self.watch.asked():
                self.vector.send(action)

    def end(self) -> Trajectory:
        last = np.int32(self.run.algo.num_steps - 1)
        self.actor, trajectory = play.end(self.run.algo, self.first,
                                          self.actor, self.steps, self.seen, last)
        return trajectory

    def play(self, root: jax.Array, agent: Any, t: int, mode: str,
             clock: WallTime, groups: list[SyncGroup]) -> Rollout:
        returns: list[float] = []
        lengths: list[int] = []

        def receive(group: SyncGroup) -> None:
            group.send()
            clock.switch("environments")
            with self.watch.asked():
                group.receive(returns, lengths)
            clock.switch("transfer")
            group.transfer()
            clock.switch("inference")

        for group in groups:
            group.begin(root, t)
        for i in range(self.run.algo.num_steps):
            for group in groups:
                if i:
                    receive(group)
                go_on(self.watch, clock)
                group.act(agent, i, mode)
        for group in groups:
            receive(group)
        reports = merged(group.tally.take() for group in groups)
        return Rollout(tuple(group.end() for group in groups), returns, lengths, reports=reports)


def rollout(groups: list[Group], root: jax.Array, agent: Any,
            t: int, warmup: int, clock: WallTime) -> Rollout:
    """Play the rollout of iteration t for the groups of a thread, whose time `clock` measures."""
    clock.switch("inference")
    agent = play.acting(groups[0].run.algo, agent)
    return groups[0].play(root, agent, t, "random" if t < warmup else "sample", clock, groups)


@functools.partial(jax.jit, static_argnames=("group", "num_envs"))
def _prelude(run: Run, root: jax.Array, t: jax.Array, group: int, num_envs: int):
    """Draw the noise of a group's rollout, and the clock; the first group's equals the device's."""
    key = iteration_keys(root, t).policy
    key = random.fold_in(key, group) if group else key
    return run.algo.draw(key, run.algo.num_steps, num_envs), iteration.clock_at(run, t)
