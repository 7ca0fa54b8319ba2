"""One iteration of any algorithm, a chunk of iterations, and `make_train`.

The code treats ONE run. A population is a `vmap` or a loop outside with an unbatched iteration
number, so `cond(t % k)` stays a branch and ring writes stay slices.
"""

from __future__ import annotations

import dataclasses
import functools
from typing import Any, NamedTuple

import jax
import jax.numpy as jnp
import numpy as np

from jaxrl_fast import random, tree
from jaxrl_fast.algorithms.base import Algorithm
from jaxrl_fast.algorithms.common.learning import (
    Iteration,
    LogRows,
    Metrics,
    prepare,
    scan_sum,
    scan_vector,
)
from jaxrl_fast.engine import rollout
from jaxrl_fast.engine.backend import backend_of
from jaxrl_fast.engine.config import RunConfig
from jaxrl_fast.engine.evaluate import evaluate
from jaxrl_fast.engine.grid import plan_grid
from jaxrl_fast.engine.sources import FromEnvironments, Source
from jaxrl_fast.engine.streams import evaluation_key, init_key, iteration_keys
from jaxrl_fast.envs.api import Env
from jaxrl_fast.errors import ConfigError
from jaxrl_fast.fields import type_name
from jaxrl_fast.logs import reports
from jaxrl_fast.logs.rows import FAULTS
from jaxrl_fast.memory import Filled, Memory, grouped, with_experience
from jaxrl_fast.ops import lowering
from jaxrl_fast.ops.log_rows import scan_rows
from jaxrl_fast.ops.scopes import RANDOM, SAMPLE, scope
from jaxrl_fast.types import Clock, Episodes, RunState


@dataclasses.dataclass(frozen=True)
class Run:
    """The settings of a run as one pytree."""

    env: Env  # () without environment steps
    algo: Algorithm  # bound to `env.spec`
    # iterations with warm-up, float32, for schedules; a leaf: all lengths share a program
    horizon: Any
    # groups of environments, each sampled by itself (`memory.grouped`); divides `num_envs`
    groups: int = 1
    unroll: int | None = None  # rollout steps compiled in a row; None: by the platform
    experience: Filled | None = None  # as `fraction`, see `memory.with_experience`
    fraction: float = 0.5
    source: Source = FromEnvironments()

    @property
    def updates(self) -> int:
        return self.source.updates(self.algo)

    def memory(self) -> Memory:
        own = self.algo.memory()
        return grouped(own if self.experience is None
                       else with_experience(own, self.experience, self.fraction), self.groups)


jax.tree_util.register_dataclass(
    Run, ["env", "algo", "horizon", "experience", "source"], ["groups", "unroll", "fraction"]
)


def check_types(algo: Any, env: Any) -> None:
    """Raise ConfigError unless these are an algorithm and an environment."""
    if not isinstance(algo, Algorithm):
        made = isinstance(algo, type) and issubclass(algo, Algorithm)
        raise ConfigError("algo", algo, "an algorithm, such as jf.PPO() or "
                          f'jf.preset("ppo", "CartPole-v1"){": call the class" * made}')
    for field in dataclasses.fields(algo):
        value = getattr(algo, field.name)
        if type_name(field) == "float" and np.ndim(value):
            valid = "one number; several are a sweep: jf.sweep, or jax.vmap over the settings"
            raise ConfigError(field.name, f"{np.shape(value)} numbers", valid)
    backend_of(env)
    env.check_class()


class Draws(NamedTuple):
    """All randomness of one iteration."""

    rollout: Any
    plan: Any  # [updates]
    keys: jax.Array  # [updates]


@functools.partial(jax.jit, inline=True)  # traced once for shapes and use
def init(run: Run, key: jax.Array) -> RunState:
    """Return the state before the first iteration. `key`: the run's root, folded, never split."""
    env, algo = run.env, run.algo
    env_key, agent_key = random.split(init_key(key))
    actor = rollout.init(env, algo, env_key, algo.num_envs, jnp.int32(0))
    agent = algo.init(agent_key)
    rows = jax.eval_shape(lambda: _rows(run, agent, actor, jax.random.key(0)))
    zeros = lambda dtype: jnp.zeros(algo.num_envs, dtype)
    episodes = Episodes(zeros(jnp.float32), zeros(jnp.int32))
    state = RunState(agent, actor.env, actor.obs, actor.carry, run.memory().init(rows),
                     episodes, key)
    return tree.strong(state)


def _rows(run: Run, agent: Any, actor: rollout.Actor, key: jax.Array) -> Any:
    """Return the memory's rows of one rollout, for their shapes."""
    env, algo, zero = run.env, run.algo, jnp.int32(0)
    noise = rollout.draw(env, algo, random.split(key), algo.num_steps, algo.num_envs, zero)
    how = clock_at(run, zero), "sample", run.unroll, algo.whole_rollouts
    _, trajectory = rollout.collect(env, algo, agent, actor, noise, *how)
    return prepare(algo, agent, rollout.without_report(trajectory)[0])


@functools.partial(jax.jit, inline=True)
def draw(run: Run, root: jax.Array, t: jax.Array) -> Draws:
    """Draw iteration t from (root, t) alone, independent of chunks, log rows and members."""
    keys, updates = iteration_keys(root, t), run.updates
    with scope(RANDOM):
        noise = run.source.draw(run, (keys.env, keys.policy), t)
    with scope(SAMPLE):
        plan = run.memory().plan(keys.plan, updates, t + 1, clock_at(run, t))
    with scope(RANDOM):
        return Draws(noise, plan, random.split(keys.updates, updates))


def clock_at(run: Run, t: jax.Array, i: jax.Array | int = 0) -> Clock:
    updates, warmup = run.updates, run.source.warmup(run.algo)
    progress = jnp.minimum((t + i / updates) / run.horizon, 1.0).astype(jnp.float32)
    return Clock(t, t * updates + i, progress, jnp.int32(warmup * updates))


def iteration(run: Run, state: RunState, draws: Draws, t: jax.Array,
              learn: bool) -> tuple[RunState, Metrics]:
    """Run one iteration: the algorithm learns from one rollout. learn: static, False in warm-up."""
    after, metrics, reported = _iteration(run, state, draws, t, learn)
    if not reported:
        return after, metrics
    # the same in every row
    taken = metrics if learn else jax.eval_shape(lambda: _iteration(run, state, draws, t, True)[1])
    return after, metrics | reports.metrics(reported, reports.log_names(reported, taken))


def _iteration(run: Run, state: RunState, draws: Draws, t: jax.Array,
               learn: bool) -> tuple[RunState, Metrics, dict]:
    algo, source, memory = run.algo, run.source, run.memory()
    clock, mode = functools.partial(clock_at, run, t), "sample" if learn else "random"
    collect = lambda agent, start=None: source.collect(
        run, state, agent, draws.rollout, clock(), mode, start
    )
    begin = lambda key: source.begin(run, state, key, t)
    it = Iteration(t, learn, clock, memory, draws.plan, draws.keys, collect, begin)
    agent, mem, learned, played = algo.learn(state.agent, state.memory, it)
    state, seen = source.after(run, state, played)
    state = state._replace(agent=agent, memory=memory.retain(mem))
    info = played.report.info or {}
    return state, seen | learned, reports.statistics(info, played.over if info else None)


# Small iterations (a step, one update) draw several at a time; larger ones gain nothing by it.
DRAW_AHEAD_BYTES = 2**13
DRAW_AHEAD_ITERATIONS = 64
DRAW_ON_A_GPU_BYTES = 2**20  # of a member: a loop around draws costs more launches


def drawn_together(run: Run, count: int, learn: bool = True) -> int:
    """Return how many of `count` iterations draw together: a divisor of `count`.

    On a GPU the largest one with up to 1 MiB of draws a member; elsewhere one up to 64, or up to
    128 if those are few.
    """
    shapes = jax.eval_shape(lambda: draw(run, jax.random.key(0), jnp.int32(0)))
    on_gpu = lowering.reaches_a_gpu()
    shapes = shapes if learn or not on_gpu else shapes.rollout  # a warm-up draws nothing else
    size = sum(x.size * 4 for x in jax.tree.leaves(shapes))
    if size > DRAW_AHEAD_BYTES:
        return 1
    limit = DRAW_ON_A_GPU_BYTES // max(size, 1) if on_gpu else 2 * DRAW_AHEAD_ITERATIONS
    divisors = [b for b in range(1, min(count, limit) + 1) if count % b == 0]
    if on_gpu:
        return max(divisors, default=1)
    few = max((b for b in divisors if b <= DRAW_AHEAD_ITERATIONS), default=1)
    return few if few >= DRAW_AHEAD_ITERATIONS // 2 else max(divisors, default=1)


def iterations(run: Run, state: RunState, t0: jax.Array, count: int,
               learn: bool) -> tuple[RunState, Metrics]:
    """Run `count` (static) iterations from t0 -> (state, {name: summed metric}): a log row."""
    state, row = log_row(run, state, t0, count, learn)
    return state, row.by_name()


@functools.partial(jax.jit, static_argnames=("count", "learn"))  # one trace for shapes and use
def log_row(run: Run, state: RunState, t0: jax.Array, count: int,
            learn: bool) -> tuple[RunState, LogRows]:
    """Run `count` (static) iterations from t0 -> (state, summed metrics as one vector)."""
    block = drawn_together(run, count, learn)
    # members divided over devices: what lies there must not be packed with the agent
    divided = run.groups > 1
    # steps of physics are inner loops, whose operands are arrays of their own
    physics = len(jax.tree.leaves(state.env)) > 16
    apart = RunState(*[divided] * len(state))._replace(env=divided or physics)

    def one(state, x):
        draws, t = x
        return iteration(run, state, draws, t, learn)

    def several(state, first):
        ts = first + jnp.arange(block, dtype=jnp.int32)
        draws = jax.vmap(lambda t: draw(run, state.key, t))(ts)
        return scan_sum(one, state, (draws, ts), apart)

    def single(state, t):
        return iteration(run, state, draw(run, state.key, t), t, learn)

    starts = t0 + jnp.arange(0, count, block, dtype=jnp.int32)
    return scan_vector(several if block > 1 else single, state, starts, apart)


def warmup(run: Run, state: RunState) -> tuple[RunState, Metrics]:
    """Fill the replay with random actions, iterations 0 .. warmup_iterations - 1: one log row."""
    return iterations(run, state, jnp.int32(0), run.algo.warmup_iterations, learn=False)


def make_train(
    algo: Algorithm, env: Env, total_steps: int = 500_000, log_every: int | None = None,
    eval_every: int | None = None, eval_episodes: int = 128, unroll: int | None = None,
):  # fmt: skip
    """Return a whole run as one pure function, `train(key) -> (RunState, metrics)`.

    `jit` it; `vmap` it over keys. Float settings of `algo` and `env` are traced: to sweep them,
    `vmap` a function that calls `make_train`. JAX's settings stay unchanged: with
    `jax_compilation_cache_dir` set, JAX caches the compiled function.

    Args:
        total_steps: environment steps, rounded up to whole log rows.
        log_every: environment steps of a log row; default: a hundredth of the run.
        eval_every: environment steps between evaluations; default: no evaluation.
        unroll: rollout steps compiled in a row; None: 1, in programs for a GPU up to 8.

    Returns:
        train. Its metrics are {name: float32 [rows]}, one entry a log row, NaN for a row without a
        finished episode. They include `env_steps`; with `eval_every`, `eval_return` (NaN in rows
        without an evaluation); `finite`, bool: metrics, parameters, observations and actions are.
    """
    check_types(algo, env)
    env = env.on_device()  # refuses one on the host
    algo = algo.bind(env.spec)
    algo.check_env(env)
    config = RunConfig(total_steps=total_steps, log_every=log_every,
                       eval_every=eval_every or 0, eval_episodes=eval_episodes,
                       unroll=unroll)  # fmt: skip
    grid = plan_grid(algo, config)
    run = tree.as_float32(Run(env, algo, float(grid.horizon), unroll=config.unroll))

    def train(key: jax.Array) -> tuple[RunState, dict[str, jax.Array]]:
        random.check_key("key", key)
        state = init(run, key)
        if grid.warmup:
            state, _ = warmup(run, state)

        def row(state, r):
            state, found = log_row(run, state, grid.warmup + r * grid.row, grid.row, True)
            names = sorted(found.by_name())
            totals, counts = found.sums.reshape(-1, 2).T
            means = totals / counts
            values = dict(zip(names, means, strict=True))
            del values[FAULTS]
            is_faults = np.array([name == FAULTS for name in names])
            bad = jnp.where(is_faults, totals + counts != 0, ~jnp.isfinite(means) & (counts != 0))
            sound = ~jnp.any(bad) & tree.all_finite(state.agent)
            if grid.eval_rows:
                eval_key = evaluation_key(key, r + 1)
                evaluates = (r + 1) % grid.eval_rows == 0
                score = lambda: jnp.mean(
                    evaluate(run.env, run.algo, state.agent, eval_key, eval_episodes).ret
                )
                values["eval_return"] = jax.lax.cond(evaluates, score, lambda: jnp.float32(jnp.nan))
                sound &= jnp.isfinite(values["eval_return"]) | ~evaluates
            return state, values | {"finite": sound}

        state, metrics = scan_rows(row, state, grid.rows)
        steps = np.array([grid.env_steps(r + 1) for r in range(grid.rows)])
        # JAX's integers are 32 bits wide
        steps = jnp.asarray(steps, jnp.int32 if steps[-1] < 2**31 else jnp.float32)
        return state, metrics | {"env_steps": steps}

    return train
