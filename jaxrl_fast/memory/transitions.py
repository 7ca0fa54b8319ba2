"""Shuffled transitions: each row stores its successor."""

from __future__ import annotations

import dataclasses
from typing import Any, NamedTuple

import jax
import jax.numpy as jnp

from jaxrl_fast import tree
from jaxrl_fast.errors import ConfigError
from jaxrl_fast.memory.ring import Ring
from jaxrl_fast.tree import summary
from jaxrl_fast.types import Window


class Transition(NamedTuple):
    """One step with its successor; leaves [T, B, ...], whole stacks if frames are stacked."""

    obs: Any
    action: Any
    reward: jax.Array
    next_obs: Any
    terminated: jax.Array

    __repr__ = summary


@dataclasses.dataclass(frozen=True)
class TransitionMemory(Ring):
    """Uniform replay of `Transition`s: twice the memory of a ring, and one-step returns only."""

    def __post_init__(self):
        super().__post_init__()
        for name in ("n_step", "stack"):
            if getattr(self, name) != 1:
                raise ConfigError(name, getattr(self, name),
                                  "1 with stored successors: rows have no order")

    @property
    def dead_blocks(self) -> int:
        return 0  # no window crosses the write head

    def plan(self, key, n, w, clock):
        return self.draw_starts(key, n, self.written(w)[1])

    def fetch(self, mem, x):
        row, size = tree.take(mem, x), self.batch_size
        window = Window(
            obs=row.obs,
            action=row.action,
            reward=row.reward[None],
            use=jnp.ones((1, size), bool),
            steps=jnp.ones(size, jnp.int32),
            boot_obs=row.next_obs,
            boot=1.0 - row.terminated.astype(jnp.float32),
            weight=jnp.ones(size, jnp.float32),
        )
        return window, x
