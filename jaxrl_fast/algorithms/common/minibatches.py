"""Passes over a rollout in shuffled minibatches, as of PPO, IMPALA and PQN."""

from __future__ import annotations

from typing import ClassVar

from jaxrl_fast import tree
from jaxrl_fast.algorithms.base import Algorithm
from jaxrl_fast.errors import ConfigError
from jaxrl_fast.fields import setting
from jaxrl_fast.memory import SHUFFLES, RolloutMemory


@tree.settings
class Minibatches(Algorithm):
    """Updates on minibatches; subclasses have the fields `num_epochs` and `num_minibatches`."""

    whole_environments: ClassVar[str] = ""  # why a minibatch is of these; "": of single steps

    shuffle: str = setting("auto", choices=SHUFFLES)
    """permutations by one sort or by swap-or-not; auto: on a GPU swaps for long ones"""

    def __post_init__(self):
        super().__post_init__()
        items, of = self.steps_per_iteration, "num_envs * num_steps"
        if self.whole_environments:
            items, of = self.num_envs, f"num_envs ({self.whole_environments})"
        if items % self.num_minibatches:
            raise ConfigError("num_minibatches", self.num_minibatches,
                              f"a divisor of {of} = {items}")

    @property
    def updates(self) -> int:
        return self.num_epochs * self.num_minibatches

    def memory(self) -> RolloutMemory:
        return RolloutMemory(self.num_steps, self.num_envs, self.num_minibatches,
                             bool(self.whole_environments), self.shuffle)
