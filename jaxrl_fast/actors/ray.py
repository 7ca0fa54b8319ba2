"""Actors as Ray processes, on this machine or on many (`--actors-on ray`, extra [ray]).

Each has its own environments and inference, on a CPU. RAY_ADDRESS names the cluster; otherwise one
starts on this machine and ends with the run.
"""

from __future__ import annotations

import contextlib
import dataclasses
import logging
import os
import signal
import threading
import time
import warnings
from collections.abc import Callable, Iterator, Sequence
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np

from jaxrl_fast import imports, spaces, tree
from jaxrl_fast.actors import play
from jaxrl_fast.actors.groups import rollout
from jaxrl_fast.actors.groups_async import open_group
from jaxrl_fast.actors.handover import Handover, Rollout
from jaxrl_fast.actors.watch import Limits, Watch
from jaxrl_fast.engine.iteration import Run
from jaxrl_fast.envs.host.api import HostEnv, HostError
from jaxrl_fast.errors import ConfigError, brief
from jaxrl_fast.logs.walltime import WallTime

START = 300.0  # seconds at least for a new process to import everything and open its environments


class Actor:
    """An actor in a Ray process: some environments, and the agent that it is sent."""

    def __init__(
        self, modules: Sequence[str], env: HostEnv, run: Run, like: Any,
        root: tuple[Any, str], warmup: int, place: tuple
    ):
        for module in modules:
            imports.import_user_module(module)
        data, kind = root
        self.root, self.warmup = jax.random.wrap_key_data(data, impl=kind), warmup
        self.agent = jax.tree.map(lambda x: jnp.zeros(x.shape, x.dtype), like)
        self.watch = Watch(env.spec.name, 0.0)
        self.group = open_group(env, run, self.watch, *place)
        self.clock = WallTime("waiting")

    def rollout(self, t: int, read: list[Any]) -> Rollout:
        """Play the rollout of iteration t. read: the agent's leaves for acting, None for others."""
        self.clock.switch("transfer")
        leaves, structure = jax.tree.flatten(self.agent)
        leaves = [kept if new is None else jax.device_put(new)
                  for kept, new in zip(leaves, read, strict=True)]
        agent = jax.tree.unflatten(structure, leaves)
        played = rollout([self.group], self.root, agent, t, self.warmup, self.clock)
        self.clock.switch("transfer")
        parts = jax.tree.map(np.asarray, played.parts)
        self.clock.switch("waiting")
        return played._replace(parts=parts, seconds=self.clock.lap())

    def silent(self) -> tuple[float, float]:
        """Return the seconds without an answer of the environments, and their longest answer."""
        since = self.watch.since
        return 0.0 if since is None else time.monotonic() - since, self.watch.longest

    def pid(self) -> int:
        return os.getpid()

    def close(self) -> None:
        self.group.close()


class RayActors(Handover):
    """A Ray process for each group. See `Handover` and the module's text."""

    def __init__(self, *args: Any, **settings: Any):
        super().__init__(*args, **settings)
        # the learner's
        self.run = jax.tree.map(np.asarray, dataclasses.replace(self.run, experience=None))
        self.limits, self.first_limits = Limits(self.patience), Limits(max(self.patience, START))
        self.own, self._seconds = False, {}  # own: the cluster is ours

    def start(self, t: int, agent: Any) -> None:
        import ray

        if not ray.is_initialized():
            self.own = True
            _begin_cluster(len(self.sizes))
        cpus = int(ray.cluster_resources().get("CPU", 0))
        if cpus < len(self.sizes):
            raise ConfigError("actors", len(self.sizes),
                              f"at most {cpus}: the Ray cluster has no more CPUs")
        self.like, self.read = jax.eval_shape(lambda: agent), read_in_acting(self.run, agent)
        # this process; any before it
        self.answered, self.began = [False] * len(self.sizes), [False] * len(self.sizes)
        super().start(t, agent)

    def open(self, i: int, t: int) -> Any:
        import ray

        self.answered[i] = False
        # one CPU, one thread
        variables = {"JAX_PLATFORMS": "cpu", "XLA_FLAGS": os.environ.get("XLA_FLAGS", ""),
                     "NPROC": "1"}
        kind = ray.remote(num_cpus=1, max_restarts=0, concurrency_groups={"watch": 1},
                          runtime_env={"env_vars": variables})
        root = np.asarray(jax.random.key_data(self.root)), str(jax.random.key_impl(self.root))
        about = self.env, self.run, self.like, root, self.warmup, self.place(i, t)
        return kind(Actor).remote(tuple(imports.named), *about)

    def sent(self, agent: Any) -> Any:
        import ray

        return ray.put([np.asarray(x) if read else None
                        for x, read in zip(jax.tree.leaves(agent), self.read, strict=True)])

    def ask(self, i: int, t: int, agent: Any) -> Any:
        return self.workers[i].rollout.remote(t, agent)

    def take(self, t: int, stopping: Callable[[], bool] = lambda: False) -> Rollout:
        found = super().take(t, stopping)
        for name, spent in found.seconds.items():
            self._seconds[name] = self._seconds.get(name, 0.0) + spent
        return found._replace(parts=jax.device_put(found.parts))

    def lap(self) -> dict[str, float]:
        found, self._seconds = self._seconds, {}
        return found

    def wait(self, i: int, asked: Any, stopping: Callable[[], bool]) -> Rollout:
        import ray

        who = f"actor {i} of {self.env.spec.name}"
        try:
            while not ray.wait([asked], timeout=1.0)[0]:
                since = time.monotonic()
                answer = self.workers[i].silent.options(concurrency_group="watch").remote()
                while not ray.wait([answer], timeout=1.0)[0]:
                    limits = self.limits if self.answered[i] else self.first_limits
                    limit = limits.over(since, stopping())
                    if limit is not None:
                        raise HostError(f"{who} has not answered for {limit:g} s (host_timeout)")
                silent, longest = ray.get(answer)
                limit = self.limits.over(time.monotonic() - silent, stopping(), longest)
                if limit is not None:
                    raise HostError(f"{self.env.spec.name} has not answered actor {i} for "
                                    f"{limit:g} s (host_timeout)")
                self.answered[i] = self.began[i] = True
            found = ray.get(asked)
        except ray.exceptions.RayTaskError as error:
            cause = error.cause
            if not isinstance(error.cause, HostError):
                cause = HostError(f"{who} failed: {brief(error, -1)}")
            raise cause from error
        except ray.exceptions.RayError as error:
            raise HostError(f"{who} died: {brief(error, -1)}") from error
        self.answered[i] = self.began[i] = True
        return found

    def may_begin_anew(self, i: int) -> bool:
        return self.began[i]  # if none ever started, none will

    def leave(self, i: int) -> None:
        import ray

        with contextlib.suppress(Exception):
            ray.kill(self.workers[i])

    def stop(self) -> None:
        if not (self.workers or self.own):
            return
        import ray

        with contextlib.suppress(Exception):
            ray.wait([worker.close.remote() for worker in self.workers],
                     num_returns=len(self.workers), timeout=5.0)
        for i in range(len(self.workers)):
            self.leave(i)
        self.workers = []
        if self.own:
            self.own = False
            ray.shutdown()


def read_in_acting(run: Run, agent: Any) -> list[bool]:
    """Return which leaves of the agent acting reads; the optimizer's state need not travel."""
    algo = run.algo

    def act(agent):
        actor = play.begin(algo, spaces.zeros(algo.spec.observation, (algo.num_envs,)))
        noise = tree.take(algo.draw(jax.random.key(0), 1, algo.num_envs), 0)
        acting = algo.acting(agent)
        clock = play.start_clock()
        return [algo.act(acting, actor.carry, actor.obs, noise, clock, mode)
                for mode in ("random", "sample")]

    return tree.used_inputs(jax.make_jaxpr(act)(agent).jaxpr)


def _begin_cluster(actors: int) -> None:
    import ray

    address = os.environ.get("RAY_ADDRESS")
    given = ({"address": address} if address
             else {"address": "local", "num_cpus": max(actors, os.cpu_count() or 1)})
    with warnings.catch_warnings(), _own_signals():
        warnings.simplefilter("ignore")
        try:
            ray.init(include_dashboard=False if not address else None, log_to_driver=False,
                     logging_level=logging.ERROR, **given)
        except (ConnectionError, RuntimeError, ValueError) as error:
            if address:
                valid = f"the address of a Ray cluster that runs: {brief(error, -1)}"
                raise ConfigError("RAY_ADDRESS", address, valid) from error
            raise


@contextlib.contextmanager
def _own_signals() -> Iterator[None]:
    """Keep our SIGTERM handler, which saves; Ray would replace it."""
    if threading.current_thread() is not threading.main_thread():
        yield
        return
    kept = signal.getsignal(signal.SIGTERM)
    try:
        yield
    finally:
        signal.signal(signal.SIGTERM, kept)
