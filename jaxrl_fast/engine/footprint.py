"""The bytes of one member by part, and the metrics of a log row: shapes, without compiling."""

from __future__ import annotations

import functools
from typing import Any

import jax
import jax.numpy as jnp

from jaxrl_fast import random, tree
from jaxrl_fast.engine import iteration, rollout
from jaxrl_fast.engine.backend import backend_of
from jaxrl_fast.engine.config import RunConfig
from jaxrl_fast.engine.evaluate import BLOCK
from jaxrl_fast.engine.grid import ROWS, Grid
from jaxrl_fast.engine.iteration import Run
from jaxrl_fast.engine.population import Population
from jaxrl_fast.types import Clock

_AGENT = {
    "params": "parameters", "target": "target network", "opt_state": "optimizer",
    "moments": "statistics", "rewards": "reward statistics",
}  # fmt: skip


def footprint(run: Run, grid: Grid, population: Population, config: RunConfig,
              metrics: int | None = None) -> dict[str, Any]:
    """Return the bytes of one member, as fields of `MemoryPlan`. metrics: their bytes, if known."""
    row = grid.row if metrics is None else None
    key = jax.eval_shape(lambda: jax.random.key(0))
    with population.tracing():
        shapes = _shapes.eval_shape(run, key, config.most_episodes, row)
        together = max(iteration.drawn_together(run, grid.row),
                       iteration.drawn_together(run, max(grid.warmup, 1), learn=False))
    state, played, trajectory, batch, evaluation, means = shapes
    agent, size = state.agent, tree.nbytes
    parts = agent._asdict() if hasattr(agent, "_asdict") else {"agent": agent}
    sizes = {_AGENT.get(name, name.replace("_", " ")): size(x) for name, x in parts.items()}
    share = population.env  # devices that share one member's environments, rollout and replay
    sizes["replay"] = sizes.get("replay", 0) + size(state.memory) // share
    sizes["environments"] = (size(state) - size(agent) - size(state.memory)) // share
    draws = (together - 1) * size(played[0])  # `played` has those of one iteration
    work = {"rollout": (size(played) + draws) // share, "batch": size(batch) // share,
            "evaluation": size(evaluation)}
    work["metrics"] = ROWS * size(means) if metrics is None else metrics
    # where rollouts of actors do not lie in the host's memory
    here = config.actors_on == "threads" or population.devices[0].platform == "cpu"
    work["actors"] = (
        backend_of(run.env).actor_bytes(run, config, size(trajectory), size(agent)) if here else 0
    )
    leaves = size(jax.eval_shape(lambda x: x, tree.as_float32(run)))
    return {"state": sizes, "agent": size(agent), "work": work, "settings": leaves}


def metric_names(run: Run, grid: Grid, population: Population, config: RunConfig) -> list[str]:
    """Return the names of the metrics that training gives a log row."""
    key = jax.eval_shape(lambda: jax.random.key(0))
    with population.tracing():
        *_, means = _shapes.eval_shape(run, key, config.most_episodes, grid.row)
    return sorted(means)


@functools.partial(jax.jit, static_argnames=("episodes", "row"))  # one trace for equal runs
def _shapes(run: Run, key: jax.Array, episodes: int, row: int | None) -> tuple:
    """Build one iteration's state, rollout, batch and evaluation block, for their shapes."""
    env, algo, zero = run.env, run.algo, jnp.int32(0)
    memory, clock = run.memory(), Clock(zero, zero, jnp.float32(0))
    state = iteration.init(run, key)
    draws = iteration.draw(run, key, zero)
    played = run.source.collect(run, state, state.agent, draws.rollout, clock, "sample")
    trajectory, rows, batch, mem = (played.trajectory, played.report), (), (), state.memory
    if played.trajectory is not None:
        rows = algo.prepare(state.agent, played.trajectory)
        mem = memory.add(mem, rows, zero)
    if run.updates:
        batch, _ = memory.fetch(mem, tree.take(draws.plan, 0))
    # count arrays that `prepare` passes on once
    once = {id(x): x for x in jax.tree.leaves((trajectory, rows))}
    means = iteration.iterations(run, state, zero, row, True)[1] if row else ()
    players = rollout.init(env, algo, key, episodes)
    noise = rollout.draw_frozen(env, algo, random.split(key), BLOCK, players)
    # rewards, ends
    scored = jnp.zeros((BLOCK, episodes), jnp.float32), jnp.zeros((BLOCK, episodes), bool)
    return state, (draws, list(once.values())), trajectory, batch, (noise, players, scored), means
