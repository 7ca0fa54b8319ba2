"""One iteration, for every algorithm; a chunk of them; and `make_train`, a whole run as one pure function.

All of it is written for ONE run: a population is a `vmap` or a loop outside, with the iteration number unbatched,
so that `cond(t % k)` stays a branch and ring-buffer writes stay slices.
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
from jaxrl_fast.engine import rollout
from jaxrl_fast.engine.backend import backend_of
from jaxrl_fast.engine.config import RunConfig
from jaxrl_fast.engine.evaluate import evaluate
from jaxrl_fast.engine.grid import plan_grid
from jaxrl_fast.engine.streams import evaluation_key, init_key, iteration_keys
from jaxrl_fast.envs.api import Env
from jaxrl_fast.errors import ConfigError
from jaxrl_fast.logs import reports
from jaxrl_fast.logs.rows import FAULTS
from jaxrl_fast.memory import Filled, Memory, grouped, with_experience
from jaxrl_fast.ops import sums
from jaxrl_fast.types import Clock, Episodes, Mean, RunState, Trajectory

Metrics = dict[str, Mean]


@dataclasses.dataclass(frozen=True)
class Run:
    """What is swept and what is fixed about a run, as one pytree. `algo` is bound to `env.spec`.

    horizon: iterations of the whole run, warm-up included, float32; schedules are fractions of it. A leaf, so a run
    of another length uses the same compiled program.
    groups: parts of the environments whose rows are sampled by themselves (`memory.grouped`); divides `num_envs`.
    unroll: steps of a rollout that are compiled in a row; the same numbers, another program. None: by the platform.
    experience, fraction: see `memory.with_experience`. At 1 nothing is collected.
    """

    env: Env
    algo: Algorithm
    horizon: Any
    groups: int = 1
    unroll: int | None = None
    experience: Filled | None = None
    fraction: float = 0.5

    @property
    def offline(self) -> bool:
        return self.experience is not None and self.fraction == 1

    def memory(self) -> Memory:
        own = self.algo.memory()
        return grouped(own if self.experience is None else with_experience(own, self.experience, self.fraction), self.groups)


jax.tree_util.register_dataclass(Run, ["env", "algo", "horizon", "experience"], ["groups", "unroll", "fraction"])


def check_types(algo: Any, env: Any) -> None:
    """ConfigError where one of them is something else, such as a name."""
    if not isinstance(algo, Algorithm):
        raise ConfigError("algo", algo, 'an algorithm, such as jf.PPO() or jf.preset("ppo", "CartPole-v1")')
    backend_of(env)
    if isinstance(env, Env) and jax.tree_util.all_leaves([env]):
        raise ConfigError("env", type(env).__name__, "a class with @jf.settings above it, as every subclass needs")


class Draws(NamedTuple):
    """Everything random of one iteration."""

    rollout: rollout.Noise | tuple[()]  # () where nothing is collected
    start: Any  # the key of new episodes in every environment, () where the old ones go on
    plan: Any  # [updates]
    keys: jax.Array  # [updates]


def init(run: Run, key: jax.Array) -> RunState:
    """The state before the first iteration. `key` becomes the run's root: folded with t, never split."""
    env, algo = run.env, run.algo
    env_key, agent_key = random.split(init_key(key))
    actor = rollout.init(env, algo, env_key, algo.num_envs, jnp.int32(0))
    agent = algo.init(agent_key)
    rows = jax.eval_shape(lambda: _collect(run, agent, actor, jax.random.key(0), "sample")[1])
    episodes = Episodes(jnp.zeros(algo.num_envs, jnp.float32), jnp.zeros(algo.num_envs, jnp.int32))
    state = RunState(agent, actor.env, actor.obs, actor.carry, run.memory().init(rows), episodes, key)
    return tree.strong(state)


def _collect(run: Run, agent: Any, actor: rollout.Actor, key: jax.Array, mode: str):
    """Actor and rows after one rollout; traced for its shapes only."""
    env, algo = run.env, run.algo
    zero = jnp.int32(0)
    noise = rollout.draw(env, algo, random.split(key), algo.num_steps, algo.num_envs, zero)
    clock = Clock(zero, zero, jnp.float32(0))
    actor, trajectory = rollout.collect(env, algo, agent, actor, noise, clock, mode, run.unroll)
    return actor, algo.prepare(agent, rollout.without_info(trajectory)[0])


def draw(run: Run, root: jax.Array, t: jax.Array) -> Draws:
    """Depends on (root, t) alone: not on the chunk, the log interval or the number of members."""
    env, algo = run.env, run.algo
    keys = iteration_keys(root, t, algo.fresh_start)
    return Draws(
        () if run.offline else rollout.draw(env, algo, (keys.env, keys.policy), algo.num_steps, algo.num_envs, t),
        keys.start if algo.fresh_start else (),
        run.memory().plan(keys.plan, algo.updates, t + 1, clock_at(run, t)),
        random.split(keys.updates, algo.updates),
    )


def clock_at(run: Run, t: jax.Array, i: jax.Array | int = 0) -> Clock:
    updates, warmup = run.algo.updates, 0 if run.offline else run.algo.warmup_iterations
    progress = jnp.minimum((t + i / updates) / run.horizon, 1.0).astype(jnp.float32)
    return Clock(t, t * updates + i, progress, jnp.int32(warmup * updates))


def iteration(run: Run, state: RunState, draws: Draws, t: jax.Array, learn: bool) -> tuple[RunState, Metrics]:
    """collect -> observe -> prepare -> memory.add -> updates x (fetch -> update -> feedback) -> finish.

    An algorithm that improves its agent by whole rollouts calls `collect` itself, and there are no updates.
    """
    after, metrics, reported = _iteration(run, state, draws, t, learn)
    if not reported:
        return after, metrics
    taken = metrics if learn else jax.eval_shape(lambda: _iteration(run, state, draws, t, True)[1])  # the same in every row
    return after, metrics | reports.metrics(reported, taken)


def _iteration(run: Run, state: RunState, draws: Draws, t: jax.Array, learn: bool) -> tuple[RunState, Metrics, dict]:
    """`iteration`, and what the environments reported."""
    env, algo = run.env, run.algo
    agent, episodes = state.agent, state.episodes
    if run.offline:
        agent, mem, metrics = learn_from(run, agent, state.memory, None, draws, t, learn)
        none = Mean(jnp.float32(0), jnp.float32(0))
        return state._replace(agent=agent, memory=mem), metrics | {"episode_return": none, "episode_length": none}, {}
    start = rollout.Actor(state.env, state.obs, state.carry)
    if algo.fresh_start:
        start = rollout.init(env, algo, draws.start, algo.num_envs, t, state.env)
        episodes = jax.tree.map(jnp.zeros_like, episodes)
    clock, mode = clock_at(run, t), "sample" if learn else "random"

    def play(agent):
        watch = algo.improves  # whose observations are not kept
        return rollout.collect(env, algo, agent, start, draws.rollout, clock, mode, run.unroll, watch)

    if learn and algo.improves:
        agent, updated, (actor, trajectory) = algo.improve(agent, play, draws.keys[0], clock)
    else:
        (actor, trajectory), updated = play(agent), {}
    trajectory, info = rollout.without_info(trajectory)
    episodes, metrics = rollout.episode_statistics(episodes, trajectory.steps.reward, trajectory.steps.done)
    reported = reports.statistics(info, trajectory.steps.done)
    agent, mem, learned = learn_from(run, agent, state.memory, trajectory, draws, t, learn)
    state = RunState(agent, actor.env, actor.obs, actor.carry, mem, episodes, state.key)
    return state, metrics | updated | learned, reported


def learn_from(run: Run, agent: Any, mem: Any, trajectory: Trajectory | None, draws: Draws, t: jax.Array, learn: bool):
    """observe -> prepare -> memory.add -> updates x (fetch -> update -> feedback) -> finish: (agent, memory, metrics)."""
    algo, memory, rows = run.algo, run.memory(), None
    if trajectory is not None:
        agent = algo.observe(agent, trajectory)
        rows = algo.prepare(agent, trajectory)
        mem = memory.add(mem, rows, t)

    def one(carry, x):
        agent, mem = carry
        (plan, key), i = x
        batch, handle = memory.fetch(mem, plan)
        agent, metrics, priority = algo.update(agent, batch, key, clock_at(run, t, i))
        return (agent, memory.feedback(mem, handle, priority)), metrics

    metrics, seen = {}, {} if trajectory is None else {FAULTS: rollout.faults(run.env.spec.action, trajectory)}
    if learn and not algo.improves:
        xs = ((draws.plan, draws.keys), jnp.arange(algo.updates, dtype=jnp.int32))
        if algo.updates == 1:
            (agent, mem), metrics = one((agent, mem), tree.take(xs, 0))
        else:
            (agent, mem), metrics = scan_sum(one, (agent, mem), xs)
    agent = agent if rows is None else algo.finish(agent, rows)  # of warm-up too: the first batches are drawn from it
    return agent, memory.retain(mem), metrics | seen


def scan_sum(f, carry: Any, xs: Any) -> tuple[Any, Metrics]:
    """`lax.scan` of f(carry, x) -> (carry, metrics) that adds the metrics up.

    They leave the loop as one vector: a dozen scalars would be a dozen arrays to write in every step.
    """
    structure = None

    def body(carry, x):
        nonlocal structure
        carry, metrics = f(carry, x)
        leaves, structure = jax.tree.flatten(metrics)
        return carry, jnp.stack(leaves)

    carry, rows = jax.lax.scan(body, carry, xs)
    return carry, jax.tree.unflatten(structure, list(sums.pairwise(rows)))


# Randomness is drawn ahead for several iterations at once where one iteration takes few bytes of it (a step and one
# update): one batched draw instead of dozens of small ones. Larger rollouts gain nothing and would only lose memory.
DRAW_AHEAD_BYTES = 2**13
DRAW_AHEAD_ITERATIONS = 64


@functools.partial(jax.jit, static_argnames=("count", "learn"))  # so that asking for its shapes traces it only once
def iterations(run: Run, state: RunState, t0: jax.Array, count: int, learn: bool) -> tuple[RunState, Metrics]:
    """`count` (static) iterations from t0 -> (state, metrics summed over them). A log row."""
    shapes = jax.eval_shape(lambda: draw(run, jax.random.key(0), jnp.int32(0)))
    size = sum(x.size * 4 for x in jax.tree.leaves(shapes))
    most = min(count, DRAW_AHEAD_ITERATIONS) if size <= DRAW_AHEAD_BYTES else 1
    block = max(b for b in range(1, most + 1) if count % b == 0)

    def one(state, x):
        draws, t = x
        return iteration(run, state, draws, t, learn)

    def several(state, first):
        ts = first + jnp.arange(block, dtype=jnp.int32)
        draws = jax.vmap(lambda t: draw(run, state.key, t))(ts)
        return scan_sum(one, state, (draws, ts))

    def single(state, t):
        return iteration(run, state, draw(run, state.key, t), t, learn)

    starts = t0 + jnp.arange(0, count, block, dtype=jnp.int32)
    return scan_sum(several if block > 1 else single, state, starts)


def warmup(run: Run, state: RunState) -> tuple[RunState, Metrics]:
    """Fill the replay with random actions: iterations 0 .. warmup_iterations - 1, one log row."""
    return iterations(run, state, jnp.int32(0), run.algo.warmup_iterations, learn=False)


def make_train(algo: Algorithm, env: Env, total_steps: int = 500_000, log_every: int | None = None,
               eval_every: int | None = None, eval_episodes: int = 128, unroll: int | None = None):  # fmt: skip
    """Return a whole run as one pure function, `train(key) -> (RunState, metrics)`.

    `jit` it; `vmap` it over keys.

    total_steps, log_every, eval_every: environment steps, rounded up to whole log rows (default: a hundredth of the
    run a row; no evaluation). metrics: {name: float32 [rows]}, one entry a log row, NaN where no episode ended;
    `env_steps` is among them, `eval_return` where `eval_every` is given (NaN in rows without an evaluation), and `finite`,
    bool: whether metrics, parameters, and all that the policy saw and did were.
    unroll: steps of a rollout that are compiled in a row; None: 1, in programs for a GPU up to 8.
    Float settings of `algo` and `env` are traced: put `make_train` inside a function of them and `vmap` that to sweep.
    No setting of JAX is changed: with `jax_compilation_cache_dir` set, JAX keeps what it compiles of this function.
    """
    check_types(algo, env)
    algo = algo.bind(env.spec)
    algo.check_env(env)
    config = RunConfig(total_steps=total_steps, log_every=log_every, eval_every=eval_every or 0, eval_episodes=eval_episodes,
                       unroll=unroll)  # fmt: skip
    grid = plan_grid(algo, config)
    run = tree.as_float32(Run(env, algo, float(grid.horizon), unroll=config.unroll))

    def train(key: jax.Array) -> tuple[RunState, dict[str, jax.Array]]:
        random.check_key("key", key)
        state = init(run, key)
        if grid.warmup:
            state, _ = warmup(run, state)

        def row(state, r):
            state, metrics = iterations(run, state, grid.warmup + r * grid.row, grid.row, True)
            faults = metrics.pop(FAULTS)
            values = {name: m.total / m.count for name, m in metrics.items()}
            shown = [jnp.isfinite(values[name]) | (m.count == 0) for name, m in metrics.items()]
            sound = jnp.all(jnp.stack(shown)) & (faults.total + faults.count == 0) & tree.all_finite(state.agent)
            if grid.eval_rows:
                eval_key = evaluation_key(key, r + 1)
                evaluates = (r + 1) % grid.eval_rows == 0
                values["eval_return"] = jax.lax.cond(
                    evaluates,
                    lambda: jnp.mean(evaluate(run.env, run.algo, state.agent, eval_key, eval_episodes).ret),
                    lambda: jnp.float32(jnp.nan),
                )
                sound &= jnp.isfinite(values["eval_return"]) | ~evaluates
            return state, values | {"finite": sound}

        state, metrics = jax.lax.scan(row, state, jnp.arange(grid.rows, dtype=jnp.int32))
        steps = np.array([grid.env_steps(r + 1) for r in range(grid.rows)])
        fits = steps[-1] < 2**31  # JAX's integers are 32 bits wide
        return state, metrics | {"env_steps": jnp.asarray(steps, jnp.int32 if fits else jnp.float32)}

    return train
