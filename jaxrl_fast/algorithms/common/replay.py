"""The replay of off-policy algorithms: its settings, and the memory that they describe."""

from __future__ import annotations

import jax

from jaxrl_fast import tree
from jaxrl_fast.algorithms.base import Algorithm
from jaxrl_fast.errors import ConfigError
from jaxrl_fast.fields import setting
from jaxrl_fast.memory import PrioritizedMemory, Row, UniformMemory
from jaxrl_fast.memory.successors import interval_of


@tree.settings
class Replay(Algorithm):
    """An algorithm that learns from windows of a replay, uniform or prioritized.

    Subclasses have the fields `updates_per_iteration`, `batch_size`, `buffer_size` and
    `learning_starts`.
    """

    n_step: int = setting(1)
    """length of the return before the bootstrap"""
    prioritized: bool = setting(False)
    """sample windows by their error (Schaul et al. 2016)"""
    priority_exponent: float = setting(0.6, low=0, high=1)
    """alpha; 0 samples uniformly"""
    importance_exponent: float = setting(0.4, low=0, high=1)
    """first beta; it rises to 1 at the horizon"""
    priority_epsilon: float = setting(1e-6, low=0, open_low=True)
    """added to every error"""
    truncation_interval: int = setting(0, low=0)
    """rows of an environment that share a slot for a truncated successor; 0: by its time limit"""

    def __post_init__(self):
        super().__post_init__()
        stack, block = self.spec.stack if self.spec else 1, self.steps_per_iteration
        need = (-(-(self.n_step + stack - 1) // self.num_steps) + 1) * block
        if self.buffer_size < need:
            raise ConfigError("buffer_size", self.buffer_size,
                              f"at least {need}, for n_step, num_steps and num_envs")
        rows = self.buffer_size // block * block
        if self.batch_size > rows:
            what = f"at most {rows}: buffer_size in whole blocks of num_steps * num_envs"
            raise ConfigError("batch_size", self.batch_size, what)

    @property
    def updates(self) -> int:
        return self.updates_per_iteration

    @property
    def warmup_steps(self) -> int:
        """Return the environment steps before the first update, at least one window's."""
        stack = self.spec.stack if self.spec else 1
        return max(self.learning_starts, (self.n_step + stack) * self.num_envs)

    def memory(self) -> UniformMemory | PrioritizedMemory:
        sizes = (self.buffer_size, self.num_steps, self.num_envs, self.batch_size,
                 self.n_step, self.spec.stack)
        interval = self.truncation_interval or interval_of(self.spec.max_episode_steps)
        if not self.prioritized:
            return UniformMemory(*sizes, truncation_interval=interval)
        exponents = (self.priority_exponent, self.importance_exponent, self.priority_epsilon)
        return PrioritizedMemory(*sizes, *exponents, truncation_interval=interval)

    def prepare(self, agent, trajectory) -> Row:
        steps, terminated = trajectory.steps, trajectory.steps.terminated
        if jax.tree.leaves(steps.reset_only):
            terminated |= steps.reset_only  # also truncated: only the successor of the row before
        return Row(steps.obs, steps.action, steps.reward, terminated,
                   steps.truncated, next_obs=steps.next_obs)
