"""What `Programs` is for a run whose environments are on the host: actors in place of the rollout, the rest compiled.

A chunk is a loop here: take a rollout from the actors, learn from it in one program (the same prepare, memory and updates
as everywhere), give the agent back. The replay is donated; the agent is not, because actors may still be playing with it.
"""

from __future__ import annotations

import time
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np

from jaxrl_fast import host_play, hosts, iterate, random, tree
from jaxrl_fast.actors import Actors, Rollout
from jaxrl_fast.envs.host import HostEnv
from jaxrl_fast.errors import ConfigError
from jaxrl_fast.grid import Grid, RunConfig
from jaxrl_fast.iterate import Run
from jaxrl_fast.plan import memory_plan
from jaxrl_fast.population import Members, Population
from jaxrl_fast.programs import Programs
from jaxrl_fast.types import Mean, RunState, Trajectory


def check_host(env: HostEnv, algo: Any, config: RunConfig) -> None:
    """ConfigError for what only environments on the device can do."""
    one = "1: the environments of this run are on the host, which trains one member; start a run for each"
    if config.members > 1:
        raise ConfigError("seeds", config.members, one)
    if config.env_devices > 1 or config.sampling_groups > 1:
        raise ConfigError("mesh", config.mesh, "none: the environments of this run are on the host")
    if hosts.several():
        raise ConfigError("distributed", True, "one process: the environments of this run are on the host")
    if algo.improves or algo.fresh_start:
        raise ConfigError("environment", env.spec.name, f"one on the device: {algo.name} needs whole rollouts in its program")
    if config.actors > algo.num_envs:
        raise ConfigError("actors", config.actors, f"at most num_envs = {algo.num_envs}")


def ahead_of(config: RunConfig, algo: Any) -> int:
    """How many rollouts the actors may be ahead: by default one where old experience is learned from anyway."""
    return config.ahead if config.ahead is not None else int(algo.off_policy)


def join(parts: tuple[Trajectory, ...]) -> Trajectory:
    """The groups' rollouts side by side."""
    if len(parts) == 1:
        return parts[0]
    along = lambda axis, *trees: jax.tree.map(lambda *x: jnp.concatenate(x, axis), *trees)
    steps = along(1, *(p.steps for p in parts))
    return Trajectory(steps, *(along(0, *ends) for ends in zip(*(p[1:] for p in parts), strict=True)))


def learn(run: Run, agent: Any, mem: Any, root: jax.Array, totals: Any, parts: Any, t: jax.Array, learns: bool):
    """One iteration's learning -> (agent, memory, metrics added to `totals`, which is None for the first)."""
    draws = iterate.draw(run, root, t)
    agent, mem, metrics = iterate.learn_from(run, agent, mem, join(parts), draws, t, learns)
    return agent, mem, metrics if totals is None else jax.tree.map(jnp.add, totals, metrics)


class HostPrograms(Programs):
    """Of one member on one device; `env` is the environment on the host, whose stand-in the members have."""

    overlaps = False

    def __init__(self, members: Members, grid: Grid, population: Population, config: RunConfig, env: HostEnv):
        super().__init__(members, grid, population, config)
        check_host(env, members.first.algo, config)
        self.env = env
        self._learn = jax.jit(learn, static_argnames="learns", donate_argnames=("mem", "totals"))
        self._seam = jax.jit(lambda run, mem, w: run.memory().seam(mem, w), donate_argnames="mem")
        self._finite = jax.jit(lambda run, agent, mem: tree.all_finite((agent, run.memory().watch(mem))))
        self.actors: Actors | None = None

    def compile(self, keys: jax.Array) -> None:
        began = time.perf_counter()
        memory_plan(self.first, self.population, self.config).check()
        traced = self._init.trace(self.run, keys)
        self._start("init", lambda: traced.lower().compile())
        self._jobs["init"].result()
        self.compile_seconds += time.perf_counter() - began

    def warmup(self, state: RunState):
        return self._iterations(state, 0, self.grid.warmup, False)

    def chunk(self, state: RunState, t0: int, rows: int):
        found = []
        for r in range(rows):
            state, totals = self._iterations(state, t0 + r * self.grid.row, self.grid.row, True)
            found.append(totals)
        metrics = jax.tree.map(lambda *x: np.stack([np.asarray(v) for v in x]), *found)
        return state, metrics, self._finite(self.run, state.agent, state.memory)

    def _iterations(self, state: RunState, t0: int, count: int, learns: bool) -> tuple[RunState, Any]:
        """`count` iterations from t0 on; their metrics are sums and counts."""
        if self.actors is None:
            config, algo = self.config, self.first.algo
            self.actors = Actors(
                self.run, self.env, state.key, self.grid.warmup, config.actors, ahead_of(config, algo),
                config.host_timeout, config.restarts,
            )  # fmt: skip
            self.actors.start(t0, state.agent)
        agent, mem, totals = state.agent, state.memory, None
        returns: list[float] = []
        lengths: list[int] = []
        seconds = {"learner_waits": 0.0, "learner_updates": 0.0}
        began = time.perf_counter()
        for t in range(t0, t0 + count):
            start = time.perf_counter()
            found: Rollout = self.actors.take(t)
            taken = time.perf_counter()
            if found.fresh and t:
                mem = self._seam(self.run, mem, np.int32(t))
            agent, mem, totals = self._learn(
                self.run, agent, mem, state.key, totals, found.parts, np.int32(t), learns=learns
            )
            jax.block_until_ready(agent)
            self.actors.give(t + 1, agent)
            seconds["learner_waits"] += taken - start
            learned = time.perf_counter() - taken
            if (learns, t == t0) not in self._compiled:  # each of these is a program, compiled when it is called
                self._compiled[learns, t == t0] = None
                self.compile_seconds += learned
            seconds["learner_updates"] += learned
            for name, value in found.seconds.items():
                seconds[f"actors_{name}"] = seconds.get(f"actors_{name}", 0.0) + value
            returns += found.returns
            lengths += found.lengths
        wall = time.perf_counter() - began
        metrics = dict(jax.device_get(totals))
        metrics["episode_return"] = Mean(np.float32(sum(returns)), np.float32(len(returns)))
        metrics["episode_length"] = Mean(np.float32(sum(lengths)), np.float32(len(lengths)))
        metrics |= {f"time_{name}": Mean(np.float32(value), np.float32(wall)) for name, value in seconds.items()}
        return state._replace(agent=agent, memory=mem), metrics

    def evaluate(self, state: RunState, rows: int) -> np.ndarray:
        key = random.fold_in(random.fold_in(state.key, 2**32 - 2), rows)
        config = self.config
        ret, _, _ = host_play.evaluate(
            self.env, self.run.algo, state.agent, key, config.eval_episodes, config.eval_mode, None
        )
        return np.asarray([ret.mean()])

    def give_up(self) -> None:
        if self.actors is not None:
            self.actors.stop()
        super().give_up()
