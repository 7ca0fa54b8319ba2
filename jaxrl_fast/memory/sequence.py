"""Replay of sequences for recurrent learners (R2D2, Kapturowski et al. 2019), over the ring.

The policy's carry is stored every `carry_every` rows, and sequences start there. They overlap: a
row is learned from `(seq_len - burn_in) / carry_every` times as often as a sequence is drawn.
docs/architecture.md, "Sequences", has the reasons.
"""

from __future__ import annotations

import dataclasses
from typing import Any, NamedTuple

import jax
import jax.numpy as jnp

from jaxrl_fast.errors import ConfigError, check_int
from jaxrl_fast.memory.prioritized import Priorities, Prioritized, renew, sample
from jaxrl_fast.memory.ring import Ring, Row, gather_obs, gather_successors, held, successors_of
from jaxrl_fast.tree import summary
from jaxrl_fast.types import Sequence


class Recurrent(NamedTuple):
    """The rows and carries that `prepare` returns for a memory of sequences."""

    row: Row  # [T, B, ...]; or a NamedTuple of your own with the fields of `Row`
    carry: Any  # [T // carry_every, B, ...]: before rows 0, carry_every, ..., after any reset

    __repr__ = summary


@dataclasses.dataclass(frozen=True)
class SequenceMemory(Ring):
    """Uniform sequences of `seq_len` rows, and `n_step` after them.

    seq_len: rows, burn-in included.  burn_in: first rows, which only update the carry. carry_every:
    rows between stored carries, and between starts; divides `num_steps`.
    """

    seq_len: int = 120
    burn_in: int = 40
    carry_every: int = 40

    def __post_init__(self):
        check_int("seq_len", self.seq_len)
        check_int("burn_in", self.burn_in, 0, self.seq_len - 1)
        check_int("num_steps", self.num_steps)
        check_int("carry_every", self.carry_every)
        if self.num_steps % self.carry_every:
            raise ConfigError("carry_every", self.carry_every,
                              f"a divisor of num_steps = {self.num_steps}")
        learned = self.seq_len - self.burn_in
        if self.carry_every > learned:
            raise ConfigError("carry_every", self.carry_every,
                              f"at most seq_len - burn_in = {learned}, or the rows between would "
                              "never be learned from")
        super().__post_init__()

    @property
    def batch_axes(self):
        return Sequence(1, 0, 1, 0, 1, 1, self.burn_in)

    @property
    def rows(self) -> int:
        """Return the rows of a sequence, with those for the targets of its last rows."""
        return self.seq_len + self.n_step

    @property
    def starts(self) -> int:
        return self.length // self.carry_every * self.num_envs

    @property
    def first(self) -> int:
        """Return the number of oldest starts without their stack in the ring."""
        return -(-(self.stack - 1) // self.carry_every)

    @property
    def lag(self) -> int:
        """Return the starts between the newest complete sequence and the newest row."""
        return -(-self.rows // self.carry_every) - 1

    @property
    def dead_blocks(self) -> int:
        return -(-(self.lag + self.first) * self.carry_every // self.num_steps)

    def init(self, rows):
        shape = (self.num_steps // self.carry_every, self.num_envs)
        for leaf in jax.tree.leaves(rows.carry):
            if leaf.shape[:2] != shape:
                raise ConfigError("carry", leaf.shape,
                                  f"leaves {[*shape, '...']}: every {self.carry_every}th row's")
        return super().init(rows)

    def plan(self, key, n, w, clock):
        """Return (row, env, whether any sequence is complete), [n, batch_size] each."""
        oldest, size = self.written(w)
        starts = (size - self.rows) // self.carry_every + 1 - self.first
        start, env = self.draw_starts(key, n, starts)
        row = (oldest + (self.first + start) * self.carry_every) % self.length
        return row, env, jnp.broadcast_to(starts > 0, row.shape)

    def fetch(self, mem, x):
        row, env, whole = x
        return self.gather(mem, row, env, whole.astype(jnp.float32)), (row, env)

    def gather(self, mem: Recurrent, row: jax.Array, env: jax.Array, weight: jax.Array) -> Sequence:
        """Return the sequences at (row, env), int32 [b]; weight 0 means not to be used."""
        number = jnp.arange(self.rows, dtype=jnp.int32)[:, None]
        rows = (row + number) % self.length
        env_of = jnp.broadcast_to(env, rows.shape)
        stored = {"obs": ()} if successors_of(mem) is None else {"obs": (), "next_obs": ()}
        steps = jax.tree.map(lambda x: x[rows, env], mem.row._replace(**stored))
        steps = steps._replace(obs=gather_obs(mem.row, rows, env_of, self.stack))
        slot, cut = held(self, mem.row, rows, env_of)
        cut_obs = ()
        if successors_of(mem) is not None:
            cut_obs = gather_successors(mem.row, (rows + 1) % self.length,
                                        env_of, self.stack, slot, cut)
        use = (number >= self.burn_in) & (number < self.seq_len) & (
            ~steps.truncated | cut
        ) & (weight > 0)
        carry = jax.tree.map(lambda x: x[row // self.carry_every, env], mem.carry)
        return Sequence(steps, carry, use, jnp.where(use.any(axis=0), weight, 0.0),
                        cut, cut_obs, self.burn_in)


@dataclasses.dataclass(frozen=True)
class PrioritizedSequenceMemory(Priorities, SequenceMemory):
    """Sequences in proportion to (p + epsilon)^alpha, as `PrioritizedMemory`.

    `feedback` takes one p a sequence; R2D2's is 0.9 max |error| + 0.1 mean |error| over the rows of
    `use`. The leaf of start j is j + lag: an `add` enables the block of leaves that it writes.
    """

    alpha: Any = 0.9
    beta: Any = 0.6
    epsilon: Any = 1e-6
    axis: str | None = None

    def add(self, mem, rows, w):
        store = super().add(mem.rows, rows, w)
        starts = self.num_steps // self.carry_every
        born = w * starts - self.lag + jnp.arange(starts, dtype=jnp.int32) >= self.first
        born = jnp.broadcast_to(jnp.where(born, mem.top, 0.0)[:, None], (starts, self.num_envs))
        return Prioritized(store, renew(self, mem.tree, born, w), mem.top)

    def fetch(self, mem, x):
        leaf, weight = sample(mem.tree, *x, self.axis)
        row = (leaf // self.num_envs - self.lag) * self.carry_every % self.length
        return self.gather(mem.rows, row, leaf % self.num_envs, weight), leaf
