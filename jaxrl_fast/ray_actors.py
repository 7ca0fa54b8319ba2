"""Actors as processes of their own, on this machine or on many: those of Ray (`--actors-on ray`, extra [ray]).

What `actors.Actors` does in one thread, each of these does in a process with a copy of the policy: its own environments,
its own inference on its own CPU. Rollouts and agents travel through Ray's object store. The interface is that of
`Actors`, and so is who collects what: rollout t is of the agent of iteration t - ahead, whoever is faster.

An actor that dies or hangs is begun anew (`restarts`), alone: it plays the rollouts again that were asked of it.
A cluster is found where Ray looks for it (RAY_ADDRESS); without one it is started on this machine and ends with the run.
"""

from __future__ import annotations

import contextlib
import logging
import math
import os
import warnings
from typing import Any

import jax
import numpy as np

from jaxrl_fast import host_play, random
from jaxrl_fast.actors import Group, Rollout, play
from jaxrl_fast.envs.host import HostEnv, HostError
from jaxrl_fast.iterate import Run


class Actor:
    """Lives in a process of Ray's: some of the environments, and whatever agent it is handed."""

    def __init__(self, env: HostEnv, run: Run, root: Any, warmup: int, size: int, seed: int, index: int, first: int):
        self.run, self.root, self.warmup = run, jax.random.wrap_key_data(root), warmup
        self.group, self.watch = Group(env, run, size, seed, index, first), host_play.Watch(env.spec.name, math.inf)

    def rollout(self, t: int, agent: Any) -> Rollout:
        played = play(self.run, self.root, [self.group], agent, t, self.warmup, self.watch)
        return played._replace(parts=jax.tree.map(np.asarray, played.parts))

    def pid(self) -> int:
        return os.getpid()

    def close(self) -> None:
        self.group.close()


class RayActors:
    """See the module's text; the arguments are those of `Actors`, `groups` is how many processes."""

    def __init__(
        self, run: Run, env: HostEnv, root: jax.Array, warmup: int, groups: int = 1, ahead: int = 0,
        patience: float = 120.0, restarts: int = 0,
    ):  # fmt: skip
        self.run, self.env, self.root, self.warmup = jax.tree.map(np.asarray, run), env, root, warmup
        self.ahead, self.patience, self.restarts, self.failures = ahead, patience, restarts, 0
        self.sizes = [len(part) for part in np.array_split(np.arange(run.algo.num_envs), groups)]

    def start(self, t: int, agent: Any) -> None:
        import ray

        self.own = not ray.is_initialized()
        if self.own:
            given = {} if os.environ.get("RAY_ADDRESS") else {"num_cpus": max(len(self.sizes), os.cpu_count() or 1)}
            with warnings.catch_warnings():
                warnings.simplefilter("ignore")
                ray.init(include_dashboard=False, log_to_driver=False, logging_level=logging.ERROR, **given)
        self.first, self.asked, self.agents, self.fresh = t, t, {}, True
        self.actors = [self._create(i, t) for i in range(len(self.sizes))]
        self.parts: list[dict[int, Any]] = [{} for _ in self.sizes]
        self.give(t, agent)

    def _create(self, i: int, t: int) -> Any:
        import ray

        root = random.fold_in(random.fold_in(self.root, 2**32 - 3), t)
        seed = host_play.seed_of(root, self.failures * len(self.sizes) + i)
        variables = {"JAX_PLATFORMS": "cpu", "XLA_FLAGS": os.environ.get("XLA_FLAGS", "")}
        made = ray.remote(num_cpus=1, max_restarts=0, runtime_env={"env_vars": variables})(Actor)
        key = np.asarray(jax.random.key_data(self.root))
        return made.remote(self.env, self.run, key, self.warmup, self.sizes[i], seed, i, sum(self.sizes[:i]))

    def give(self, t: int, agent: Any) -> None:
        """The agent as it is before iteration t learns: the rollouts that are to be its own are asked for."""
        import ray

        ref = ray.put(jax.tree.map(np.asarray, agent))
        self.agents = {when: kept for when, kept in self.agents.items() if when >= t - self.ahead - 1} | {t: ref}
        while self.asked - self.ahead <= max(t, self.first):
            for i, actor in enumerate(self.actors):
                self.parts[i][self.asked] = actor.rollout.remote(self.asked, self.agents[self._whose(self.asked)])
            self.asked += 1

    def _whose(self, t: int) -> int:
        return max(t - self.ahead, self.first)

    def take(self, t: int) -> Rollout:
        """The rollout of iteration t, all actors' parts; HostError where one failed once too often."""
        parts = [self._part(i, t) for i in range(len(self.sizes))]
        returns, lengths = ([x for part in parts for x in getattr(part, name)] for name in ("returns", "lengths"))
        seconds = {name: sum(part.seconds[name] for part in parts) / len(parts) for name in parts[0].seconds}
        fresh, self.fresh = self.fresh, False
        trajectories = jax.device_put(tuple(part.parts[0] for part in parts))
        return Rollout(trajectories, returns, lengths, fresh, seconds | {"waiting": 0.0})

    def _part(self, i: int, t: int) -> Rollout:
        import ray

        while True:
            try:
                return ray.get(self.parts[i].pop(t), timeout=self.patience)
            except ray.exceptions.GetTimeoutError:
                error = HostError(f"actor {i} of {self.env.spec.name} has not answered for {self.patience:g} s (host_timeout)")
            except ray.exceptions.RayTaskError as failed:
                error = failed.cause if isinstance(failed.cause, HostError) else HostError(f"actor {i} failed: {failed.cause!r}")
            except ray.exceptions.RayError as died:
                error = HostError(f"actor {i} of {self.env.spec.name} died: {type(died).__name__}")
            self.failures += 1
            if self.failures > self.restarts:
                raise error
            warnings.warn(f"{error}; begun anew, {self.failures} of {self.restarts} times", stacklevel=1)
            self._begin_anew(i, t)

    def _begin_anew(self, i: int, t: int) -> None:
        import ray

        with contextlib.suppress(Exception):
            ray.kill(self.actors[i])
        self.actors[i], self.fresh = self._create(i, t), True
        asked = range(t, self.asked)
        self.parts[i] = {when: self.actors[i].rollout.remote(when, self.agents[self._whose(when)]) for when in asked}

    def stop(self) -> None:
        import ray

        with contextlib.suppress(Exception):
            ray.wait([actor.close.remote() for actor in self.actors], num_returns=len(self.actors), timeout=5.0)
        for actor in self.actors:
            with contextlib.suppress(Exception):
                ray.kill(actor)
        if self.own:
            ray.shutdown()
