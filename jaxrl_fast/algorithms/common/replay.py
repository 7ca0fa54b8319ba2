"""The replay of off-policy algorithms, from their settings; methods of `Algorithm`."""

from __future__ import annotations

from typing import Any

import jax
import jax.numpy as jnp

from jaxrl_fast.errors import ConfigError
from jaxrl_fast.memory import PrioritizedMemory, Row, UniformMemory
from jaxrl_fast.memory.successors import interval_of
from jaxrl_fast.types import Mean, Trajectory


def check(algo: Any) -> None:
    """Raise ConfigError unless the replay of `algo` holds a window and a batch."""
    stack, block = algo.spec.stack if algo.spec else 1, algo.steps_per_iteration
    need = (-(-(algo.n_step + stack - 1) // algo.num_steps) + 1) * block
    if algo.buffer_size < need:
        raise ConfigError("buffer_size", algo.buffer_size,
                          f"at least {need}, for n_step, num_steps and num_envs")
    rows = algo.buffer_size // block * block
    if algo.batch_size > rows:
        what = f"at most {rows}: buffer_size in whole blocks of num_steps * num_envs"
        raise ConfigError("batch_size", algo.batch_size, what)


def updates(algo: Any) -> int:
    """Return the optimizer steps an iteration."""
    return algo.updates_per_iteration


def warmup_steps(algo: Any) -> int:
    """Return the environment steps before the first update, at least one window's."""
    stack = algo.spec.stack if algo.spec else 1
    return max(algo.learning_starts, (algo.n_step + stack) * algo.num_envs)


def memory(algo: Any) -> UniformMemory | PrioritizedMemory:
    """Return the replay, uniform or prioritized, in windows of `n_step` rows."""
    sizes = (algo.buffer_size, algo.num_steps, algo.num_envs, algo.batch_size,
             algo.n_step, algo.spec.stack)
    interval = algo.truncation_interval or interval_of(algo.spec.max_episode_steps)
    if not algo.prioritized:
        return UniformMemory(*sizes, truncation_interval=interval)
    exponents = (algo.priority_exponent, algo.importance_exponent, algo.priority_epsilon)
    return PrioritizedMemory(*sizes, *exponents, truncation_interval=interval)


def prepare(algo: Any, agent: Any, trajectory: Trajectory) -> Row:
    """Return a rollout's rows [T, B] for the replay."""
    steps, terminated = trajectory.steps, trajectory.steps.terminated
    if jax.tree.leaves(steps.reset_only):
        terminated |= steps.reset_only  # also truncated: only the successor of the row before
    return Row(steps.obs, steps.action, steps.reward, terminated,
               steps.truncated, next_obs=steps.next_obs)


def means(batch: Any, metrics: dict[str, jax.Array]) -> dict[str, Mean]:
    """Return the means of metrics [b] over a batch's windows; those of weight 0 do not count."""
    real = (batch.weight > 0).astype(jnp.float32)
    return {name: Mean(jnp.sum(real * x), jnp.sum(real)) for name, x in metrics.items()}
