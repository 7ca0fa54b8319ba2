"""Offline training from a filled memory: one XLA program, without environment steps."""

from __future__ import annotations

import dataclasses
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np

from jaxrl_fast import random, spaces, tree
from jaxrl_fast.algorithms.base import Algorithm
from jaxrl_fast.engine.iteration import Run, iterations
from jaxrl_fast.engine.sources import NO_EPISODES, FromDataset
from jaxrl_fast.engine.streams import init_key
from jaxrl_fast.envs.api import Env
from jaxrl_fast.errors import ConfigError, check_int
from jaxrl_fast.memory.experience.filled import Filled, check_batch, check_windows, hold
from jaxrl_fast.memory.experience.mixed import MixedMemory, StartFrom
from jaxrl_fast.memory.grouped import Grouped, merged
from jaxrl_fast.memory.prioritized import PrioritizedMemory
from jaxrl_fast.memory.ring import Ring, Row
from jaxrl_fast.memory.transitions import Transition
from jaxrl_fast.ops.stacking import start
from jaxrl_fast.types import EnvSpec, RunState


def offline_memory(algo: Algorithm, env: Env | EnvSpec, rows: Row | Transition) -> Filled:
    """Return `rows` in a memory of `algo`'s kind and of their size."""
    return hold(replay_of(algo.bind(getattr(env, "spec", env))), rows)


def replay_of(algo: Algorithm) -> Ring:
    memory = algo.memory()
    if not isinstance(memory, Ring):
        raise ConfigError("algo", algo.name, "an algorithm that learns from replay, such as dqn")
    return memory


def make_offline_train(algo: Algorithm, env: Env | EnvSpec, data: Filled,
                       updates: int, log_every: int | None = None):
    """Return offline training as one pure function, `train(key, store) -> (agent, metrics)`.

    It makes `updates` updates from `data`; `store` is `data.store`, an argument so that it is no
    constant of the program. `jax.vmap(train, (0, None))` trains many seeds on one dataset.
    Schedules are fractions of `updates`.

    A log row covers `log_every` updates (default: a hundredth); the last one is rounded up to a
    whole row. metrics: {name: float32 [rows]} with `updates`, and for a prioritized memory
    `max_priority`, NaN after an error that was negative or not finite.
    """
    if not isinstance(data, Filled):
        raise ConfigError("data", data, "a memory of offline_memory, jf.experience or open_memory")
    spec = getattr(env, "spec", env)
    algo = algo.bind(spec)
    own = replay_of(algo)
    if own.n_step != data.memory.n_step:
        raise ConfigError("n_step", own.n_step,
                          f"{data.memory.n_step}, as the memory of the data has it")
    prioritized = isinstance(own, PrioritizedMemory)
    if prioritized != isinstance(data.memory, PrioritizedMemory):
        raise ConfigError("prioritized", prioritized,
                          f"{not prioritized}: `data` is laid out in a "
                          f"{type(data.memory).__name__} (see `offline_memory`)")
    check_int("updates", updates)
    if log_every is not None:
        check_int("log_every", log_every)
    check_data("data", data, spec)
    check_batch("batch_size", own.batch_size, data)
    per_row = min(log_every or max(1, updates // 100), updates)
    rows = -(-updates // per_row)
    check_int("updates", rows * per_row)
    algo, horizon = tree.as_float32(algo), jnp.float32(rows * per_row)

    def train(key: jax.Array, store: Any) -> tuple[Any, dict[str, jax.Array]]:
        random.check_key("key", key)
        given = dataclasses.replace(data, store=store)
        run = Run((), algo, horizon, experience=given, fraction=1,
                  source=FromDataset(per_iteration=1))
        agent = tree.strong(algo.init(init_key(key)))
        state = RunState(agent, (), (), (), run.memory().init(None), (), key)

        def row(state, first):
            state, metrics = iterations(run, state, first, per_row, True)
            means = {name: m.total / m.count for name, m in metrics.items()
                     if name not in NO_EPISODES}
            if prioritized:
                means["max_priority"] = run.memory().watch(state.memory)
            return state, means

        firsts = jnp.arange(0, rows * per_row, per_row, dtype=jnp.int32)
        state, metrics = jax.lax.scan(row, state, firsts)
        return state.agent, metrics | {"updates": firsts + per_row}

    return train


def replay_after(run: Run, store: Any, iterations: int) -> Filled:
    """Return the replay with state `store` after `iterations` iterations."""
    memory, w = run.memory(), iterations
    if isinstance(memory, Grouped):
        memory = run.algo.memory()
        store = merged(memory, store)
    memory = memory.online if isinstance(memory, MixedMemory) else memory
    if isinstance(memory, StartFrom):
        memory, w = memory.memory, w + memory.start.w
    if not isinstance(memory, Ring):
        raise ConfigError("run", run.algo.name,
                          "a run that fills a replay, of an algorithm such as dqn")
    return Filled(memory, store, w)


def check_spaces(argument: str, data: Filled, spec: EnvSpec) -> None:
    """Raise ConfigError for rows not of the environment's shapes; transitions hold stacks."""
    stack = 1 if data.memory.stack == spec.stack else spec.stack
    seen = start(spaces.zeros(spec.observation, (1,)), stack)
    for name, found, wanted in (
        ("obs", data.rows.obs, seen), ("action", data.rows.action, spaces.zeros(spec.action, (1,))),
    ):  # fmt: skip
        kind = lambda x, axes: jax.tree.map(
            lambda a: f"{np.dtype(a.dtype)}{list(a.shape[axes:])}", x
        )
        if kind(found, 2) != kind(wanted, 1):
            raise ConfigError(f"{argument}.{name}", kind(found, 2),
                              f"{kind(wanted, 1)}, as {spec.name} has it")
    check_windows(argument, data)


def check_data(argument: str, data: Filled, spec: EnvSpec) -> None:
    """Raise ConfigError for rows that the environment cannot have produced."""
    check_spaces(argument, data, spec)
    sizes = getattr(spec.action, "n", getattr(spec.action, "nvec", None))
    if sizes is not None:
        low = jnp.min(data.rows.action)
        high = jnp.max(data.rows.action - jnp.asarray(sizes, data.rows.action.dtype))
        if low < 0 or high >= 0:
            found = f"{low} to {jnp.max(data.rows.action)}"
            raise ConfigError(f"{argument}.action", found,
                              f"in {spec.action}, as {spec.name} has it")
