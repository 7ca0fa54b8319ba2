"""The on-policy memory: one rollout, handed out as epochs x minibatches of a fresh permutation each epoch."""

from __future__ import annotations

import dataclasses

import jax
import jax.numpy as jnp

from jaxrl_fast import random, tree
from jaxrl_fast.memory.api import Memory
from jaxrl_fast.ops.lowering import on_gpu

SORTED = 1 << 16  # items up to which a GPU sorts too: a longer sort is dozens of passes over all of them
MOST_BITS = 20  # of an index that shares a uint32 with random bits: with less than 12 of these ties would show


def permutations(key: jax.Array, count: int, n: int) -> jax.Array:
    """Return `count` independent permutations of 0 .. n-1, int32 [count, n].

    By one sort on a CPU and for up to `SORTED` items, by `swap_or_not` in programs for a GPU.
    """
    if n <= SORTED:
        return sorted_permutations(key, count, n)
    by_sort = lambda key: sorted_permutations(key, count, n)
    return on_gpu(lambda key: swap_or_not(key, count, n), by_sort, key)


def sorted_permutations(key: jax.Array, count: int, n: int) -> jax.Array:
    """`permutations` by one sort, of random high bits and the index in the low bits of one uint32.

    A third of the time of `jax.random.permutation`, which is used where the index takes more than `MOST_BITS`.
    """
    bits = max(n - 1, 1).bit_length()
    if bits > MOST_BITS:
        keys = jax.random.split(key, count)
        return jax.vmap(lambda k: jax.random.permutation(k, n))(keys).astype(jnp.int32)
    low = jnp.uint32((1 << bits) - 1)
    packed = (random.bits(key, (count, n)) & ~low) | jnp.arange(n, dtype=jnp.uint32)
    return (jax.lax.sort(packed, dimension=1, is_stable=False) & low).astype(jnp.int32)


def swap_or_not(key: jax.Array, count: int, n: int) -> jax.Array:
    """`permutations` without a sort: each index finds its own place, in one kernel.

    Hoang, Morris and Rogaway 2012, "An enciphering scheme based on a card shuffle": in each round x and its partner K - x (mod
    n) swap if a hash of the larger says so. The hash is MurmurHash3's finalizer with a random word a round.
    """
    rounds = 2 * max(n - 1, 1).bit_length() + 8
    words = random.bits(key, (2, rounds, count, 1))
    size = jnp.uint32(n)
    x = jnp.broadcast_to(jnp.arange(n, dtype=jnp.uint32), (count, n))
    for partner, word in zip(words[0] % size, words[1], strict=True):
        other = jnp.where(x <= partner, partner - x, partner + (size - x))
        swap = finalize(jnp.maximum(x, other) ^ word) >> 31
        x = jnp.where(swap == 1, other, x)
    return x.astype(jnp.int32)


def finalize(x: jax.Array) -> jax.Array:
    """MurmurHash3's 32-bit finalizer (Appleby 2011): every bit of a uint32 changes each bit of the result half the time."""
    x = (x ^ (x >> 16)) * jnp.uint32(0x85EBCA6B)
    x = (x ^ (x >> 13)) * jnp.uint32(0xC2B2AE35)
    return x ^ (x >> 16)


@dataclasses.dataclass(frozen=True)
class RolloutMemory(Memory):
    """Rows [T, B] become T * B rows in a shuffled order; `by_env` shuffles whole environments, keeping time.

    Every row is handed out exactly once an epoch. Batches are [rows / minibatches, ...], or [T, B / minibatches, ...]
    with `by_env` (for recurrent policies, V-trace and recomputed advantages). One minibatch is the rollout as it lies: its
    order is of no use.
    """

    num_steps: int
    num_envs: int
    num_minibatches: int
    by_env: bool = False

    @property
    def batch_axes(self):
        return 1 if self.by_env else 0

    def init(self, rows):
        return ()

    def add(self, mem, rows, w):
        return rows if self.by_env else tree.merge_axes(rows)

    def plan(self, key, n, w, clock):
        items = self.num_envs if self.by_env else self.num_steps * self.num_envs
        epochs = -(-n // self.num_minibatches)
        order = permutations(key, epochs, items)
        return order.reshape(epochs * self.num_minibatches, items // self.num_minibatches)[:n]

    def fetch(self, mem, x):
        if self.num_minibatches == 1:
            return mem, ()
        if self.by_env:
            return jax.tree.map(lambda leaf: leaf[:, x], mem), ()
        return tree.take(mem, x), ()

    def retain(self, mem):
        return ()
