"""Learning without an environment step, from a memory that was filled before: one XLA program, like every run."""

from __future__ import annotations

import dataclasses
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np

from jaxrl_fast import random, spaces, tree
from jaxrl_fast.algorithms.base import Algorithm
from jaxrl_fast.engine.iteration import DRAW_AHEAD_ITERATIONS, Run, scan_sum
from jaxrl_fast.engine.streams import init_key
from jaxrl_fast.envs.api import Env
from jaxrl_fast.errors import ConfigError, check_int
from jaxrl_fast.memory.experience.filled import Filled, check_batch, check_windows, hold
from jaxrl_fast.memory.experience.mixed import MixedMemory, StartFrom
from jaxrl_fast.memory.grouped import Grouped, merged
from jaxrl_fast.memory.prioritized import PrioritizedMemory, converted
from jaxrl_fast.memory.ring import Ring, Row
from jaxrl_fast.memory.transitions import Transition
from jaxrl_fast.ops.stacking import start
from jaxrl_fast.types import Clock, EnvSpec


def offline_memory(algo: Algorithm, env: Env | EnvSpec, rows: Row | Transition) -> Filled:
    """Return `rows` in a memory such as `algo` uses here, as large as they need."""
    return hold(replay_of(algo.bind(getattr(env, "spec", env))), rows)


def replay_of(algo: Algorithm) -> Ring:
    memory = algo.memory()
    if not isinstance(memory, Ring):
        raise ConfigError("algo", algo.name, "an algorithm that learns from replay, such as dqn")
    return memory


def make_offline_train(algo: Algorithm, env: Env | EnvSpec, data: Filled, updates: int, log_every: int | None = None):
    """Return offline training as one pure function, `train(key, store) -> (agent, metrics)`.

    It makes `updates` updates from `data`, whose store is `data.store`.

    The store is an argument so that it is no constant of the program; `jax.vmap(train, (0, None))` is many seeds of
    one dataset. Schedules are fractions of `updates`. metrics: {name: float32 [rows]}, a row every `log_every` updates
    (default: a hundredth), with `updates`, and `max_priority` of a prioritized memory, which is NaN once an error was
    negative or not finite; the last row is rounded up to a whole one, as everywhere. Batch size and the exponents of
    priorities are the algorithm's.
    """
    spec = getattr(env, "spec", env)
    algo = algo.bind(spec)
    own = replay_of(algo)
    if own.n_step != data.memory.n_step:
        raise ConfigError("n_step", own.n_step, f"{data.memory.n_step}, as the memory of the data has it")
    if isinstance(own, PrioritizedMemory) != isinstance(data.memory, PrioritizedMemory):
        kind = type(data.memory).__name__
        valid = f"{not isinstance(own, PrioritizedMemory)}: `data` is laid out in a {kind} (see `offline_memory`)"
        raise ConfigError("prioritized", isinstance(own, PrioritizedMemory), valid)
    of_algorithm = ("batch_size", "alpha", "beta", "epsilon")  # the layout is that of the data
    settings = {name: getattr(own, name) for name in of_algorithm if hasattr(own, name)}
    memory = dataclasses.replace(data.memory, **settings)
    check_int("updates", updates)
    if log_every is not None:
        check_int("log_every", log_every)
    check_data("data", data, spec)
    check_batch("batch_size", own.batch_size, data)
    per_row = min(log_every or max(1, updates // 100), updates)
    rows = -(-updates // per_row)
    check_int("updates", rows * per_row)
    block = max(b for b in range(1, min(per_row, DRAW_AHEAD_ITERATIONS) + 1) if per_row % b == 0)
    algo, horizon = tree.as_float32(algo), float(rows * per_row)

    def clock(u: jax.Array) -> Clock:
        return Clock(u, u, (u / horizon).astype(jnp.float32))

    def draw(key: jax.Array, u: jax.Array) -> tuple:
        """Depends on (key, u) alone."""
        keys = random.keys_at(key, u, 2)
        return tree.take(memory.plan(keys[0], 1, jnp.int32(data.w), clock(u)), 0), keys[1]

    def update(carry, x):
        agent, store = carry
        (plan, key), u = x
        batch, handle = memory.fetch(store, plan)
        agent, metrics, priority = algo.update(agent, batch, key, clock(u))
        return (agent, memory.feedback(store, handle, priority)), metrics

    def train(key: jax.Array, store: Any) -> tuple[Any, dict[str, jax.Array]]:
        random.check_key("key", key)
        agent = tree.strong(algo.init(init_key(key)))
        if isinstance(memory, PrioritizedMemory):
            store = converted(data.memory, memory, store)

        def several(carry, first):
            us = first + jnp.arange(block, dtype=jnp.int32)
            return scan_sum(update, carry, (jax.vmap(lambda u: draw(key, u))(us), us))

        def row(carry, first):
            starts = first + jnp.arange(0, per_row, block, dtype=jnp.int32)
            carry, metrics = scan_sum(several, carry, starts)
            metrics = {name: m.total / m.count for name, m in metrics.items()}
            if isinstance(memory, PrioritizedMemory):
                metrics["max_priority"] = memory.watch(carry[1])
            return carry, metrics

        firsts = jnp.arange(0, rows * per_row, per_row, dtype=jnp.int32)
        (agent, _), metrics = jax.lax.scan(row, (agent, store), firsts)
        return agent, metrics | {"updates": firsts + per_row}

    return train


def replay_after(run: Run, store: Any, iterations: int) -> Filled:
    """The replay whose state after so many iterations is `store`."""
    memory, w = run.memory(), iterations
    if isinstance(memory, Grouped):
        memory = run.algo.memory()
        store = merged(memory, store)
    memory = memory.online if isinstance(memory, MixedMemory) else memory
    if isinstance(memory, StartFrom):
        memory, w = memory.memory, w + memory.start.w
    if not isinstance(memory, Ring):
        raise ConfigError("run", run.algo.name, "a run that fills a replay, of an algorithm such as dqn")
    return Filled(memory, store, w)


def check_spaces(argument: str, data: Filled, spec: EnvSpec) -> None:
    """The rows have the shapes that the environment would have given; of shuffled transitions, whole stacks are kept."""
    stack = 1 if data.memory.stack == spec.stack else spec.stack
    seen = start(spaces.zeros(spec.observation, (1,)), stack)
    for name, found, wanted in (
        ("obs", data.rows.obs, seen), ("action", data.rows.action, spaces.zeros(spec.action, (1,))),
    ):  # fmt: skip
        kind = lambda x, axes: jax.tree.map(lambda a: f"{np.dtype(a.dtype)}{list(a.shape[axes:])}", x)
        if kind(found, 2) != kind(wanted, 1):
            raise ConfigError(f"{argument}.{name}", kind(found, 2), f"{kind(wanted, 1)}, as {spec.name} has it")
    check_windows(argument, data)


def check_data(argument: str, data: Filled, spec: EnvSpec) -> None:
    """The rows are such as the environment would have given."""
    check_spaces(argument, data, spec)
    sizes = getattr(spec.action, "n", getattr(spec.action, "nvec", None))
    if sizes is not None:
        low, high = jnp.min(data.rows.action), jnp.max(data.rows.action - jnp.asarray(sizes, data.rows.action.dtype))
        if low < 0 or high >= 0:
            found = f"{low} to {jnp.max(data.rows.action)}"
            raise ConfigError(f"{argument}.action", found, f"in {spec.action}, as {spec.name} has it")
