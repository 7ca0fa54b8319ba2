"""`Programs` for environments on the host: actors play the rollouts, the rest is compiled.

A chunk is a loop: take a rollout from the actors, learn from it in one program (with the usual
prepare, memory and updates), give the agent back. The replay is donated; the agent is not, because
actors may still use it.
"""

from __future__ import annotations

import collections
import dataclasses
import warnings
from collections.abc import Callable
from contextlib import AbstractContextManager
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np

from jaxrl_fast import random, runtime, tree
from jaxrl_fast.actors import play
from jaxrl_fast.actors.handover import Handover, Rollout, join
from jaxrl_fast.actors.threads import Actors
from jaxrl_fast.actors.watch import Watch
from jaxrl_fast.engine import iteration
from jaxrl_fast.engine.grid import ahead_of, host_episodes
from jaxrl_fast.engine.iteration import Run
from jaxrl_fast.engine.prepared import Prepared
from jaxrl_fast.engine.programs import Chunk, Programs, Scores, largest_parameter, silent
from jaxrl_fast.engine.rollout import ACTION
from jaxrl_fast.engine.sources import FromActors
from jaxrl_fast.engine.streams import evaluation_key
from jaxrl_fast.envs.host.api import HostError
from jaxrl_fast.logs.reports import Reported
from jaxrl_fast.logs.walltime import WallTime, shares
from jaxrl_fast.types import Mean, RunState


def learn(run: Run, agent: Any, mem: Any, root: jax.Array, totals: Any, parts: Any, t: jax.Array, learns: bool):
    """Learn in one iteration -> (agent, memory, metrics added to `totals`)."""
    run = dataclasses.replace(run, source=FromActors(join(parts)))
    state = RunState(agent, (), (), (), mem, (), root)
    state, metrics = iteration.iteration(run, state, iteration.draw(run, root, t), t, learns)
    return state.agent, state.memory, jax.tree.map(jnp.add, totals or jax.tree.map(jnp.zeros_like, metrics), metrics)


def seam(run: Run, agent: Any, mem: Any, w: jax.Array):
    """Return the agent and the memory after environments began anew."""
    return run.algo.seam(agent), run.memory().seam(mem, w)


def finite(run: Run, agent: Any, mem: Any) -> jax.Array:
    return tree.all_finite((agent, run.memory().watch(mem)))


class HostPrograms(Programs):
    """Programs of one member on one device; its environment on the host has a stand-in there.

    `stopping()`, asked between iterations and while waiting, returns the number of the signal that
    ends a call early, or None.
    """

    def __init__(self, prepared: Prepared, clock: WallTime, reported: Reported, stopping: Callable[[], int | None]):
        super().__init__(prepared, clock)
        self.env, self.reported, self.stopping = prepared.env, reported, stopping
        self._learn = jax.jit(learn, static_argnames="learns", donate_argnames=("mem", "totals"))
        self._seam = jax.jit(seam, donate_argnames="mem")
        self._finite = jax.jit(finite)
        self._largest = jax.jit(largest_parameter)
        self.actors: Handover | None = None
        self._totals: dict[bool, Any] = {}  # shapes of the metrics in warm-up and learning, traced once each
        self._taken: tuple[str, ...] | None = None  # metrics of learning, once an environment reports
        self.games: collections.deque[float] = collections.deque(maxlen=100)  # scores of the last games in training

    def compile(self, keys: jax.Array) -> None:
        """Compile `init`; the others compile at their first call."""
        self.prepared.plan.check()
        options = runtime.once_options(self.population.devices[0].platform)
        self._start("init", lambda: self._init.lower(self.run, keys).compile(options))
        self._jobs["init"].result()

    def warmup(self, state: RunState, t0: int = 0) -> Chunk:
        return self._iterations(state, t0, self.grid.warmup, False)

    def chunk(self, state: RunState, t0: int, rows: int) -> Chunk:
        """Run one row, or its rest."""
        chunk = self._iterations(state, t0, self.grid.end_of_row(t0), True)
        return chunk._replace(finite=np.asarray(self._finite(self.run, chunk.state.agent, chunk.state.memory)))

    def _playing(self, t: int, state: RunState) -> Handover:
        if self.actors is None:
            c, ahead = self.config, ahead_of(self.config, self.first.algo)
            args = self.run, self.env, state.key, self.grid.warmup, c.actors, ahead, c.host_timeout, c.restarts
            if c.actors_on == "ray":
                from jaxrl_fast.actors.ray import RayActors
            self.actors = (RayActors if c.actors_on == "ray" else Actors)(*args)
            self.actors.start(t, state.agent)
            self.clock.lap()
        return self.actors

    def paused(self) -> AbstractContextManager:
        return super().paused() if self.actors is None else self.actors.paused()

    def _is_stopping(self) -> bool:
        return self.stopping() is not None

    def _nothing(self, state: RunState, rollout: Rollout, learns: bool) -> Any:
        """Return the metrics of no iteration."""
        if learns not in self._totals:
            args = (self.run, state.agent, state.memory, state.key, {}, rollout.parts, np.int32(0))
            self._totals[learns] = self._learn.eval_shape(*args, learns=learns)[2]
        return jax.tree.map(lambda x: jnp.zeros(x.shape, x.dtype), self._totals[learns])

    def _iterations(self, state: RunState, t0: int, end: int, learns: bool) -> Chunk:
        """Run the iterations from t0 to `end`; fewer after a failure or a request to stop."""
        begins, actors = self.actors is None, self._playing(t0, state)
        agent, mem, totals = state.agent, state.memory, None
        returns, lengths, reports = [], [], []
        t, stopped, lag = t0, None, 0.0
        while t < end and (stopped := self.stopping()) is None:
            try:  # the first rollout waits for opening environments and compiling
                with self.clock.during("compile" if begins and t == t0 else "wait"):
                    found = actors.take(t, self._is_stopping)
            except HostError as error:
                stopped = error
                break
            if found.fresh and t:
                agent, mem = self._seam(self.run, agent, mem, np.int32(t))
            first = learns not in self._totals  # each is a program, compiled at its first call
            if totals is None:
                totals = self._nothing(state._replace(memory=mem), found, learns)
            with self.clock.during("compile" if first else "learn"):
                agent, mem, totals = self._learn(
                    self.run, agent, mem, state.key, totals, found.parts, np.int32(t), learns=learns
                )
                jax.block_until_ready(agent)
            actors.give(t + 1, agent)
            returns += found.returns
            self.games.extend(found.returns)
            lengths += found.lengths
            reports.append(found.reports)
            if found.reports and self._taken is None:  # warm-up has the same names
                args = (self.run, agent, mem, state.key, {}, found.parts, np.int32(t))
                self._taken = tuple(self._learn.eval_shape(*args, learns=True)[2])
            lag += self.first.algo.updates * actors.lag(t, found)
            t += 1
        metrics = dict(jax.device_get(totals or {}))
        metrics["episode_return"] = Mean(np.float32(sum(returns)), np.float32(len(returns)))
        metrics["episode_length"] = Mean(np.float32(sum(lengths)), np.float32(len(lengths)))
        metrics["policy_lag"] = Mean(np.float32(lag), np.float32(t - t0))
        metrics |= shares(self.clock.lap(), actors.lap())
        metrics |= self.reported.metrics(reports, self._taken or ())
        metrics = jax.tree.map(lambda x: np.asarray(x)[None], metrics)
        return Chunk(state._replace(agent=agent, memory=mem), metrics, None, t, stopped, int(begins and t > t0))

    def evaluate(
        self, state: RunState, rows: int, *, length: float | None = None, told: Callable[[int, int], None] = silent
    ) -> Scores:
        c, key, asked = self.config, evaluation_key(state.key, rows), self._is_stopping
        episodes = host_episodes(c, self.grid, rows, length)
        for failures in range(c.restarts + 1):
            try:
                watch = Watch(self.env.spec.name, c.host_timeout)
                args = (self.env, self.run.algo, state.agent, key, episodes, c.eval_mode)
                returns, lengths, _ = play.evaluate(*args, watch=watch, stopping=asked, told=told)
                ret = returns.mean()
                fault = 0 if np.isfinite(ret) else ACTION  # `checks` has seen the rest
                found = (ret, fault, self._largest(state.agent), lengths.mean(), episodes)
                return Scores(*(np.asarray([x]) for x in found))
            except HostError as error:
                if failures == c.restarts or asked():
                    raise
                warnings.warn(f"{error}; evaluated again", stacklevel=1)
                key = random.split(key)[0]  # `play` folds the key by step

    def give_up(self) -> None:
        if self.actors is not None:
            self.actors.stop()
        self.actors = None  # a continued run restarts its environments
        super().give_up()
