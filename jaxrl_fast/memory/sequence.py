"""Replay of sequences for recurrent learners (R2D2, Kapturowski et al. 2019), over the ring of single frames.

Every `carry_every`-th row the policy's carry is stored, and there sequences start: they overlap, and each row is
learned from `(seq_len - burn_in) / carry_every` times as often as a sequence is drawn. A sequence goes across
episodes' ends (the learner resets its carry there), so that short episodes need no padding, and every row of the ring
is some sequence's to learn from; truncated rows where their successor is kept (`memory.successors`).

After the `seq_len` rows come `n_step` more: the targets of the last rows need what the network sees there, and for
that its carry, so the rows have to be unrolled and not just looked at.
"""

from __future__ import annotations

import dataclasses
from typing import Any, NamedTuple

import jax
import jax.numpy as jnp

from jaxrl_fast import random
from jaxrl_fast.errors import ConfigError, check_int
from jaxrl_fast.memory import sum_tree
from jaxrl_fast.memory.prioritized import Prioritized, PrioritizedMemory, check_exponents, renew, sample
from jaxrl_fast.memory.ring import Ring, Row, gather_obs, gather_successors, held, successors_of
from jaxrl_fast.tree import summary
from jaxrl_fast.types import Sequence


class Recurrent(NamedTuple):
    """What `prepare` returns for a memory of sequences."""

    row: Row  # [T, B, ...]; a NamedTuple of your own with at least the fields of `Row` will do
    carry: Any  # [T // carry_every, B, ...]: with which rows 0, carry_every, ... were acted, so after any reset

    __repr__ = summary


@dataclasses.dataclass(frozen=True)
class SequenceMemory(Ring):
    """Sequences of `seq_len` rows (and `n_step` after them), each as likely as any other.

    seq_len: rows, those of the burn-in among them.  burn_in: rows at the start that only bring the carry up to date.
    carry_every: rows from one stored carry, and start of a sequence, to the next; `num_steps` is a multiple of it.
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
            raise ConfigError("carry_every", self.carry_every, f"a divisor of num_steps = {self.num_steps}")
        learned = self.seq_len - self.burn_in
        if self.carry_every > learned:
            valid = f"at most seq_len - burn_in = {learned}, or the rows in between would never be learned from"
            raise ConfigError("carry_every", self.carry_every, valid)
        super().__post_init__()

    @property
    def batch_axes(self):
        return Sequence(1, 0, 1, 0, 1, 1, self.burn_in)

    @property
    def rows(self) -> int:
        """Rows of a sequence, with the ones for the targets of its last rows."""
        return self.seq_len + self.n_step

    @property
    def starts(self) -> int:
        return self.length // self.carry_every * self.num_envs

    @property
    def first(self) -> int:
        """Starts, from the oldest row, whose stack is not in the ring."""
        return -(-(self.stack - 1) // self.carry_every)

    @property
    def lag(self) -> int:
        """Starts from one whose sequence was just completed to the newest."""
        return -(-self.rows // self.carry_every) - 1

    @property
    def dead_blocks(self) -> int:
        return -(-(self.lag + self.first) * self.carry_every // self.num_steps)

    def init(self, rows):
        shape = (self.num_steps // self.carry_every, self.num_envs)
        for leaf in jax.tree.leaves(rows.carry):
            if leaf.shape[:2] != shape:
                raise ConfigError("carry", leaf.shape, f"leaves {[*shape, '...']}: every {self.carry_every}th row's")
        return super().init(rows)

    def plan(self, key, n, w, clock):
        """(row, env, whether any sequence is whole) [n, batch_size] each."""
        size = jnp.minimum(w, self.num_blocks) * self.num_steps
        oldest = jnp.where(w >= self.num_blocks, (w % self.num_blocks) * self.num_steps, 0)
        starts = (size - self.rows) // self.carry_every + 1 - self.first
        # modulo's bias is below (starts * num_envs) / 2^32
        draw = random.bits(key, (n, self.batch_size)) % (jnp.maximum(starts, 1) * self.num_envs).astype(jnp.uint32)
        start = self.first + (draw // jnp.uint32(self.num_envs)).astype(jnp.int32)
        row, env = (oldest + start * self.carry_every) % self.length, draw % jnp.uint32(self.num_envs)
        return row, env.astype(jnp.int32), jnp.broadcast_to(starts > 0, row.shape)

    def fetch(self, mem, x):
        row, env, whole = x
        return self.gather(mem, row, env, whole.astype(jnp.float32)), (row, env)

    def gather(self, mem: Recurrent, row: jax.Array, env: jax.Array, weight: jax.Array) -> Sequence:
        """The sequences that start at (row, env), int32 [b]; none is to be used where its `weight` is 0."""
        number = jnp.arange(self.rows, dtype=jnp.int32)[:, None]
        rows = (row + number) % self.length
        env_of = jnp.broadcast_to(env, rows.shape)
        stored = {"obs": ()} if successors_of(mem) is None else {"obs": (), "next_obs": ()}
        steps = jax.tree.map(lambda x: x[rows, env], mem.row._replace(**stored))
        steps = steps._replace(obs=gather_obs(mem.row, rows, env_of, self.stack))
        slot, cut = held(self, mem.row, rows, env_of)
        cut_obs = ()
        if successors_of(mem) is not None:
            cut_obs = gather_successors(mem.row, (rows + 1) % self.length, env_of, self.stack, slot, cut)
        use = (number >= self.burn_in) & (number < self.seq_len) & (~steps.truncated | cut) & (weight > 0)
        carry = jax.tree.map(lambda x: x[row // self.carry_every, env], mem.carry)
        return Sequence(steps, carry, use, jnp.where(use.any(axis=0), weight, 0.0), cut, cut_obs, self.burn_in)


@dataclasses.dataclass(frozen=True)
class PrioritizedSequenceMemory(SequenceMemory):
    """A sequence's chance is its priority (p + epsilon)^alpha over their sum, as `PrioritizedMemory`'s.

    `feedback` takes one p a sequence, the learner's own mixture: R2D2's is 0.9 max |error| + 0.1 mean |error| over
    the rows of `use`. The leaf of start j is j + lag, so that an `add` brings to life the block of leaves it writes.
    """

    alpha: Any = 0.9
    beta: Any = 0.6
    epsilon: Any = 1e-6
    axis: str | None = None

    def __post_init__(self):
        super().__post_init__()
        check_exponents(self.alpha, self.beta, self.epsilon)

    def init(self, rows):
        return Prioritized(super().init(rows), sum_tree.init(self.starts), jnp.float32(1.0))

    def add(self, mem, rows, w):
        store = super().add(mem.rows, rows, w)
        starts = self.num_steps // self.carry_every
        born = w * starts - self.lag + jnp.arange(starts, dtype=jnp.int32) >= self.first
        born = jnp.broadcast_to(jnp.where(born, mem.top, 0.0)[:, None], (starts, self.num_envs))
        tree = renew(self, mem.tree, born, w)
        return Prioritized(store, tree, mem.top)

    def fetch(self, mem, x):
        leaf, weight = sample(mem.tree, *x, self.axis)
        row = (leaf // self.num_envs - self.lag) * self.carry_every % self.length
        return self.gather(mem.rows, row, leaf % self.num_envs, weight), leaf

    plan, feedback, watch = PrioritizedMemory.plan, PrioritizedMemory.feedback, PrioritizedMemory.watch
