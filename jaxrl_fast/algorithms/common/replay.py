"""What every algorithm that learns from replay shares: how much is kept, and how it is sampled."""

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
    """Sizes of the replay; uniform, or by priority, in windows of `n_step` rows."""

    num_envs: int = setting(8, "environments stepped together")
    num_steps: int = setting(1, "steps of each environment between updates")
    updates_per_iteration: int = setting(1, "optimizer steps after every num_envs * num_steps environment steps")
    batch_size: int = setting(128, "windows in a batch")
    buffer_size: int = setting(100_000, "transitions kept", low=2)
    learning_starts: int = setting(10_000, "environment steps of random actions before the first update", low=0)
    n_step: int = setting(1, "length of the return before the bootstrap")
    prioritized: bool = setting(False, "sample windows by their error (Schaul et al. 2016)")
    priority_exponent: float = setting(0.6, "alpha: 0 samples uniformly", low=0, high=1)
    importance_exponent: float = setting(0.4, "beta at first; 1 at the horizon", low=0, high=1)
    priority_epsilon: float = setting(1e-6, "added to every error", low=0, open_low=True)
    truncation_interval: int = setting(
        0, "steps in which an environment is truncated at most once, whose successor is kept; 0: by its time limit", low=0
    )

    def __post_init__(self):
        super().__post_init__()
        stack, block = self.spec.stack if self.spec else 1, self.steps_per_iteration
        need = (-(-(self.n_step + stack - 1) // self.num_steps) + 1) * block
        if self.buffer_size < need:
            raise ConfigError("buffer_size", self.buffer_size, f"at least {need}, for n_step, num_steps and num_envs")
        rows = self.buffer_size // block * block
        if self.batch_size > rows:
            what = f"at most {rows}: buffer_size in whole blocks of num_steps * num_envs"
            raise ConfigError("batch_size", self.batch_size, what)

    @property
    def updates(self) -> int:
        return self.updates_per_iteration

    @property
    def warmup_steps(self) -> int:
        """At least as many as one window needs."""
        stack = self.spec.stack if self.spec else 1
        return max(self.learning_starts, (self.n_step + stack) * self.num_envs)

    def memory(self) -> UniformMemory | PrioritizedMemory:
        sizes = (self.buffer_size, self.num_steps, self.num_envs, self.batch_size, self.n_step, self.spec.stack)
        interval = self.truncation_interval or interval_of(self.spec.max_episode_steps)
        if not self.prioritized:
            return UniformMemory(*sizes, truncation_interval=interval)
        exponents = (self.priority_exponent, self.importance_exponent, self.priority_epsilon)
        return PrioritizedMemory(*sizes, *exponents, truncation_interval=interval)

    def prepare(self, agent, trajectory):
        steps, terminated = trajectory.steps, trajectory.steps.terminated
        if jax.tree.leaves(steps.reset_only):
            terminated |= steps.reset_only  # and truncated: only the successor of the row before
        return Row(steps.obs, steps.action, steps.reward, terminated, steps.truncated, next_obs=steps.next_obs)
