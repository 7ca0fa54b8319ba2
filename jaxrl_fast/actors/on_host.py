"""The backend of environments on the host: actors step them, programs hold a stand-in.

A chunk is a loop: take a rollout from the actors, learn from it in one program, give the agent
back. The replay is donated; the agent is not, because actors may still use it.
"""

from __future__ import annotations

import collections
import dataclasses
import importlib.util
import warnings
from collections.abc import Callable, Sequence
from contextlib import AbstractContextManager, nullcontext
from typing import Any, ClassVar

import jax
import jax.numpy as jnp
import numpy as np

from jaxrl_fast import distributed, random, runtime, tree
from jaxrl_fast.actors import play
from jaxrl_fast.actors.handover import Handover, Rollout, join
from jaxrl_fast.actors.threads import Actors
from jaxrl_fast.actors.watch import Watch
from jaxrl_fast.algorithms.base import Algorithm
from jaxrl_fast.engine import iteration
from jaxrl_fast.engine.backend import Film
from jaxrl_fast.engine.chunks import Chunk, finite
from jaxrl_fast.engine.config import RunConfig
from jaxrl_fast.engine.evaluate import Evaluation
from jaxrl_fast.engine.grid import ahead_of, host_episodes, ring_rows, sizes_of
from jaxrl_fast.engine.iteration import Run
from jaxrl_fast.engine.prepared import Prepared
from jaxrl_fast.engine.programs import Context, Programs, Scores, largest_parameter
from jaxrl_fast.engine.rollout import ACTION
from jaxrl_fast.engine.sources import FromActors
from jaxrl_fast.engine.streams import evaluation_key
from jaxrl_fast.envs.host.api import HostEnv, HostError, StandIn
from jaxrl_fast.errors import ConfigError, MissingExtraError
from jaxrl_fast.logs.rows import Measured, Row
from jaxrl_fast.logs.walltime import shares
from jaxrl_fast.types import Mean, RunState


class OnHost:
    one_program = stills = False  # the actors' threads step the environments

    def check(self, env: HostEnv, algo: Algorithm, config: RunConfig) -> None:
        if config.env_devices > 1 or config.sampling_groups > 1:
            raise ConfigError("mesh", config.mesh,
                              "None: the environments of this run are on the host")
        if distributed.several():
            raise ConfigError("distributed", True,
                              "False: the environments of this run are on the host, in one process")
        if algo.whole_rollouts:
            raise ConfigError("environment", env.spec.name,
                              f"one on the device: {algo.name} needs whole rollouts in its program")
        if config.offline:
            raise ConfigError("experience_fraction", 1,
                              "below 1: environments on the host need training steps")
        if config.ahead and not algo.takes_older_rollouts:
            valid = f"0: {algo.name} learns from its own rollouts; impala corrects for older ones"
            raise ConfigError("ahead", config.ahead, valid)
        if config.actors_on == "ray" and importlib.util.find_spec("ray") is None:
            raise MissingExtraError("actors_on = 'ray'", "ray")
        if config.actors > algo.num_envs:
            raise ConfigError("actors", config.actors, f"at most num_envs = {algo.num_envs}")
        _check_at_once(env, algo, config)

    def placed(self, env: HostEnv, algo: Algorithm, config: RunConfig) -> StandIn:
        return StandIn(env.spec, in_any_order=env.at_once(algo.num_envs) is not None)

    def actor_bytes(self, run, config: RunConfig, rollout: int, agent: int) -> int:
        """Return the bytes of rollouts (finished, running, in the ring) and of agents for them."""
        ahead, steps = ahead_of(config, run.algo), run.algo.num_steps
        ring = ring_rows(steps) // steps if run.env.in_any_order else 0
        return (ahead + 1 + ring) * rollout + (ahead + 3) * agent

    def programs(self, prepared, context) -> HostPrograms:
        return HostPrograms(prepared, context)

    def evaluate(self, env: HostEnv, algo, agent, key, episodes,
                 mode, config: RunConfig) -> Evaluation:
        watch = Watch(env.spec.name, config.host_timeout)
        return Evaluation(*play.evaluate(env, algo, agent, key, episodes, mode, watch=watch))

    def film(self, env: HostEnv, algo, agent, key, max_steps, patience, most=None) -> Film:
        frames = play.frames(env, tree.as_float32(algo), agent, key, max_steps, patience)
        return Film(frames and frames[:: -(-len(frames) // most) if most else 1])


def _check_at_once(env: HostEnv, algo: Algorithm, config: RunConfig) -> None:
    """Raise ConfigError for asynchronous environments that do not fit the actors."""
    sizes = sizes_of(algo.num_envs, config.actors)
    at_once = next((found for size in (algo.num_envs, *sizes)
                    if (found := env.at_once(size)) is not None), None)
    if at_once is None:
        return
    if config.actors_on == "threads" and config.actors > 1:
        raise ConfigError("actors", config.actors,
                          "1 with env.batch_size: environments already step while the policy runs")
    if not algo.takes_older_rollouts:
        raise ConfigError("env.batch_size", at_once,
                          f"0: {algo.name} learns from its own rollouts, none begun earlier")
    for size in sizes:
        each = f"the {size} environments of an actor" if config.actors > 1 else f"num_envs = {size}"
        if size % at_once or size == at_once < algo.num_envs:
            raise ConfigError("env.batch_size", at_once,
                              f"a divisor of {each} and less, or 0 for all at once")


def learn(run: Run, agent: Any, mem: Any, root: jax.Array, totals: Any,
          parts: Any, t: jax.Array, learns: bool):
    """Learn in one iteration -> (agent, memory, metrics added to `totals`)."""
    run = dataclasses.replace(run, source=FromActors(join(parts)))
    state = RunState(agent, (), (), (), mem, (), root)
    state, metrics = iteration.iteration(run, state, iteration.draw(run, root, t), t, learns)
    before = totals or jax.tree.map(jnp.zeros_like, metrics)
    return state.agent, state.memory, jax.tree.map(jnp.add, before, metrics)


def _learner(donate: bool, options: dict[str, Any] | None) -> Any:
    donated = ("mem", "totals") if donate else ()
    return jax.jit(learn, static_argnames="learns", donate_argnames=donated,
                   compiler_options=options)


def seam(run: Run, agent: Any, mem: Any, w: jax.Array):
    """Return the agent and the memory after environments began anew."""
    return run.algo.seam(agent), run.memory().seam(mem, w)


def _ray_actors(*args: Any) -> Handover:
    from jaxrl_fast.actors.ray import RayActors

    return RayActors(*args)


class HostPrograms(Programs):
    """Programs of one member, with a stand-in for its environment; signals end a call early."""

    kinds: ClassVar[dict[str, Callable[..., Handover]]] = {"threads": Actors, "ray": _ray_actors}

    def __init__(self, prepared: Prepared, context: Context):
        super().__init__(prepared, context)
        self.env, self.stopping = prepared.env, context.stopping
        self._is_stopping = lambda: context.stopping() is not None
        loops = runtime.loop_options(self.population.platform, self.config.parallel_loops)
        self._learn = _learner(self.config.donate, loops)
        self._seam = jax.jit(seam, donate_argnames="mem" if self.config.donate else ())
        self._finite = jax.jit(finite)
        self._largest = jax.jit(largest_parameter)
        self.actors: Handover | None = None
        # shapes of the metrics in warm-up and learning, traced once each
        self._totals: dict[bool, Any] = {}
        # metrics of learning, once an environment reports
        self._taken: tuple[str, ...] | None = None
        # scores of the last games in training
        self.games: collections.deque[float] = collections.deque(maxlen=100)

    def compile(self, keys: jax.Array) -> None:
        """Compile `init`; the others compile at their first call."""
        self.prepared.plan.check()
        self._start("init", self._init, self.run, keys,
                    options=runtime.once_options(self.population.platform))
        self._jobs["init"].result()

    def recompile_for_trace(self, state: RunState) -> None:
        """Compile the learner anew at its next call if a profiler sees its instructions only so."""
        if options := runtime.traced_options(self.population.platform):
            self._learn = _learner(self.config.donate, options)

    def chunk(self, state: RunState, t0: int, rows: int) -> Chunk:
        if t0 < self.grid.warmup:
            return self._iterations(state, t0, self.grid.warmup, False)
        end = self.grid.warmup + (self.grid.whole_rows(t0) + 1) * self.grid.row
        first = True not in self._totals
        chunk = self._iterations(state, t0, end, True)
        with self.clock.during("compile" if first else "learn"):
            finite = np.asarray(self._finite(self.run, chunk.state.agent, chunk.state.memory))
        return chunk._replace(finite=finite)

    def _playing(self, t: int, state: RunState) -> Handover:
        if self.actors is None:
            c, ahead = self.config, ahead_of(self.config, self.first.algo)
            args = (
                self.run, self.env, state.key, self.grid.warmup, c.actors, ahead, c.host_timeout,
                c.restarts
            )
            self.actors = self.kinds[c.actors_on](*args)
            self.actors.start(t, state.agent)
            self.clock.lap()
        return self.actors

    def paused(self) -> AbstractContextManager:
        return super().paused() if self.actors is None else self.actors.paused()

    def _measured(self, state: RunState, rollout: Rollout, learns: bool) -> dict[str, Any]:
        args = (self.run, state.agent, state.memory, state.key, {}, rollout.parts, np.int32(0))
        return self._learn.eval_shape(*args, learns=learns)[2]

    def _iterations(self, state: RunState, t0: int, end: int, learns: bool) -> Chunk:
        begins, actors = self.actors is None, self._playing(t0, state)
        agent, mem, totals, place = state.agent, state.memory, None, state.key.sharding
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
            # no rollout is free because its environments stepped while the learner compiled
            with (self.paused() if first else nullcontext(),
                  self.clock.during("compile" if first else "learn")):
                if first:
                    self._totals[learns] = self._measured(state._replace(memory=mem), found, learns)
                if totals is None:
                    # where the program puts its results, else its second call compiles again
                    zeros = lambda x: np.zeros(x.shape, x.dtype)
                    totals = jax.device_put(jax.tree.map(zeros, self._totals[learns]), place)
                args = self.run, agent, mem, state.key, totals, found.parts, np.int32(t)
                agent, mem, totals = self._learn(*args, learns=learns)
                jax.block_until_ready(agent)
            actors.give(t + 1, agent)
            returns += found.returns
            self.games.extend(found.returns)
            lengths += found.lengths
            reports.append(found.reports)
            if found.reports and self._taken is None:  # warm-up has the same names
                learned = state._replace(agent=agent, memory=mem)
                self._taken = tuple(self._measured(learned, found, True))
            lag += self.first.algo.updates * actors.lag(t, found)
            t += 1
        metrics = dict(jax.device_get(totals or {}))
        metrics["episode_return"] = Mean(np.float32(sum(returns)), np.float32(len(returns)))
        metrics["episode_length"] = Mean(np.float32(sum(lengths)), np.float32(len(lengths)))
        metrics["policy_lag"] = Mean(np.float32(lag), np.float32(t - t0))
        metrics |= shares(self.clock.lap(), actors.lap())
        metrics |= self.context.reported.metrics(reports, self._taken or ())
        metrics = jax.tree.map(lambda x: np.asarray(x)[None], metrics)
        return Chunk(state._replace(agent=agent, memory=mem), metrics,
                     None, t, stopped, int(begins and t > t0))

    def evaluate(self, state: RunState, rows: int, told: Callable[[int, int], None],
                 last: bool) -> Scores | None:
        c, key, asked = self.config, evaluation_key(state.key, rows), self._is_stopping
        log = [*self.context.history, *self.context.latest]
        since = next((row.env_steps for row in reversed(log) if "eval_return" in row.metrics), 0)
        episodes = host_episodes(c, self.grid, rows, mean_length(log), since, last)
        if not episodes:
            return told(0, 0)
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


def mean_length(history: Sequence[Row | Measured]) -> float | None:
    """Return the mean episode length, in training or evaluation, of the last rows with one."""
    found = []
    for name in ("episode_length", "eval_length"):
        known = (row.metrics.get(name, np.full(1, np.nan)) for row in reversed(history))
        found.append(next((float(np.nanmean(x)) for x in known if np.isfinite(x).any()), 0.0))
    return max(found) or None
