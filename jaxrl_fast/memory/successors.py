"""The successors of truncated rows, kept beside a ring of rows.

A slot serves at most `truncation_interval` consecutive rows of an environment and follows from
their place: a write is a slice, at an index equal for all environments and members. docs/memory.md,
"The store", says what becomes of a second truncation in the interval.
"""

from __future__ import annotations

import dataclasses
from typing import Any, NamedTuple

import jax
import jax.numpy as jnp

from jaxrl_fast.ops import places
from jaxrl_fast.ops.lowering import on_cpu
from jaxrl_fast.ops.places import put_block, quotient, remainder, take, take_block

INTERVAL = 32  # without a time limit: a sixteenth of the observations' memory
LONGEST = 4096


def interval_of(max_episode_steps: int | None) -> int:
    """Return the rows that share a slot: half of the time limit, or all up to 64."""
    if max_episode_steps is None:
        return INTERVAL
    return min(max(max_episode_steps // 2, min(max_episode_steps, 64)), LONGEST)


class Successors(NamedTuple):
    """Frames after truncations and their owners; the slots S follow the rows' order."""

    obs: Any  # [S, B, ...]
    owner: jax.Array  # int32 [S, B]: the owner's place in the ring, from 1; 0: none


class Places(NamedTuple):
    """Where the successors of a block are written, int32 scalars."""

    start: jax.Array  # the block's first row
    first: jax.Array  # slot of the block's first bucket
    turn: jax.Array  # slot of a bucket
    into: jax.Array  # slot that is written: first + turn
    passed: jax.Array  # blocks of the bucket before this one


@dataclasses.dataclass(frozen=True)
class Slots:
    """The slots of a ring of `num_blocks` blocks of `num_steps` rows.

    A bucket is the rows that share a slot: whole blocks, or a part of one. A bucket of several
    blocks has two slots, used in turns by the ring's passes: while a pass overwrites a bucket,
    truncations of both passes are alive.
    """

    num_blocks: int
    num_steps: int
    interval: int

    @property
    def parts(self) -> int:
        """Return the buckets in a block; 1 if a bucket spans blocks."""
        return -(-self.num_steps // self.interval)

    @property
    def part(self) -> int:
        """Return the rows of a block in one bucket."""
        return -(-self.num_steps // self.parts)

    @property
    def blocks(self) -> int:
        """Return the blocks in a bucket; 1 if a block has several buckets."""
        return min(max(1, self.interval // self.num_steps), self.num_blocks)

    @property
    def turns(self) -> int:
        """Return the slots of a bucket."""
        # the ring then holds one truncation at a time
        alone = self.num_blocks * self.num_steps <= self.interval
        return 1 if self.blocks == 1 or alone else 2

    @property
    def count(self) -> int:
        return -(-self.num_blocks // self.blocks) * self.parts * self.turns

    def bucket_of(self, row: jax.Array) -> jax.Array:
        """Return the bucket of rows [...] of the ring; its first slot is `turns` times that."""
        bucket = quotient(row, self.num_steps * self.blocks) * self.parts
        if self.parts > 1:
            bucket += quotient(remainder(row, self.num_steps), self.part)
        return bucket

    def init(self, next_obs: Any) -> Successors:
        """Return empty slots for successors of shapes [T, B, ...]."""
        obs = jax.tree.map(lambda x: jnp.zeros((self.count, *x.shape[1:]), x.dtype), next_obs)
        num_envs = jax.tree.leaves(next_obs)[0].shape[1]
        return Successors(obs, jnp.zeros((self.count, num_envs), jnp.int32))

    def places(self, w: jax.Array) -> Places:
        """Return where block number `w` is written."""
        block = remainder(w, self.num_blocks)
        start = block * self.num_steps
        first = self.bucket_of(start) * self.turns
        turn = remainder(quotient(w, self.num_blocks), self.turns)
        found = start, first, turn, first + turn, remainder(block, self.blocks)
        return Places(*on_cpu(places.together, lambda *x: x, *found))

    def add(self, kept: Successors, next_obs: Any, truncated: jax.Array,
            w: jax.Array) -> Successors:
        """Store the successors of block `w`: next_obs [T, B, ...], truncated bool [T, B]."""
        at = self.places(w)

        any_, step = truncated, 0  # [parts, B]
        if self.num_steps > 1:
            padded = jnp.pad(truncated, [(0, self.parts * self.part - self.num_steps), (0, 0)])
            ends = padded.reshape(self.parts, self.part, -1)
            any_, last = ends.any(axis=1), self.part - 1 - jnp.argmax(ends[:, ::-1], axis=1)
            step = (last + jnp.arange(self.parts)[:, None] * self.part).astype(jnp.int32)

        slots = self.parts * self.turns
        owner = take_block(kept.owner, at.first, slots).reshape(self.parts, self.turns, -1)
        owner = jnp.where((owner > at.start) & (owner <= at.start + self.num_steps), 0, owner)
        place = jnp.broadcast_to(at.start + step + 1, any_.shape)
        before = owner
        if self.turns > 1:  # at a bucket's begin the pass before has overwritten its rows
            before = jnp.where(at.passed == 0, 0, owner)
        own = jax.lax.broadcasted_iota(jnp.int32, owner.shape, 1) == at.turn
        owner = jnp.where(own, jnp.where(any_[:, None], place[:, None], before), owner)
        owner = put_block(kept.owner, owner.reshape(slots, -1), at.first)

        def of_last(new):
            if self.num_steps == 1:
                return new
            return new[jnp.minimum(step, self.num_steps - 1),
                       jnp.arange(truncated.shape[1], dtype=jnp.int32)]

        def write(kept, new):
            old, new = take_block(kept, at.into, self.parts), of_last(new)
            here = any_.reshape(any_.shape + (1,) * (new.ndim - 2))
            return put_block(kept, jnp.where(here, new.astype(kept.dtype), old), at.into)

        return Successors(jax.tree.map(write, kept.obs, next_obs), owner)

    def find(self, kept: Successors, row: jax.Array, env: jax.Array) -> tuple[jax.Array, jax.Array]:
        """Return (slot int32, held bool) [...] of the truncated rows at (row, env), int32 [...]."""
        bucket = self.bucket_of(row)
        if self.turns == 1:
            return bucket, take(kept.owner, bucket, env) == row + 1

        def together(owner):  # a kernel less for a CPU
            pairs = owner.reshape(-1, 2, owner.shape[1])
            held = take(pairs, bucket, slice(None), env) == (row + 1)[..., None]
            return held[..., 0], held[..., 1]

        def apart(owner):  # a GPU fuses each with its reader
            return tuple(take(owner, bucket * 2 + i, env) == row + 1 for i in (0, 1))

        first, second = on_cpu(together, apart, kept.owner)
        return bucket * 2 + second, first | second
