"""The on-policy memory: one rollout in epochs x minibatches, shuffled anew each epoch."""

from __future__ import annotations

import dataclasses

import jax
import jax.numpy as jnp

from jaxrl_fast import random, tree
from jaxrl_fast.memory.api import Memory
from jaxrl_fast.ops.lowering import on_gpu

SORTED = 1 << 16  # items up to which a GPU sorts too: a longer sort takes dozens of passes
# rounds of `swap_or_not` in one kernel: all 44 of 2^18 items in one take three seconds to compile
ROUNDS = 22
SHUFFLES = ("auto", "sort", "swap")
# bits of an index that shares a uint32 with random bits; less than 12 of these would show ties
MOST_BITS = 20


def permutations(key: jax.Array, count: int, n: int, shuffle: str = "auto") -> jax.Array:
    """Return `count` independent permutations of 0 .. n-1, int32 [count, n].

    By one sort or by `swap_or_not`; "auto" swaps on a GPU from more than `SORTED` items on.
    """
    sort, swap = (lambda key, f=f: f(key, count, n) for f in (sorted_permutations, swap_or_not))
    if shuffle == "auto":
        return sort(key) if n <= SORTED else on_gpu(swap, sort, key)
    return {"sort": sort, "swap": swap}[shuffle](key)


def sorted_permutations(key: jax.Array, count: int, n: int) -> jax.Array:
    """Return `permutations` by one sort of uint32s: random high bits, the index in the low bits."""
    bits = max(n - 1, 1).bit_length()
    if bits > MOST_BITS:
        keys = jax.random.split(key, count)
        return jax.vmap(lambda k: jax.random.permutation(k, n))(keys).astype(jnp.int32)
    low = jnp.uint32((1 << bits) - 1)
    index = jnp.arange(n, dtype=jnp.uint32)
    packed = random.from_bits(key, (count, n), lambda bits: (bits & ~low) | index)
    return (jax.lax.sort(packed, dimension=1, is_stable=False) & low).astype(jnp.int32)


def swap_or_not(key: jax.Array, count: int, n: int) -> jax.Array:
    """Return `permutations` without a sort: each index finds its own place.

    Hoang, Morris and Rogaway 2012, "An enciphering scheme based on a card shuffle": in each round x
    and its partner K - x (mod n) swap if a hash of the larger says so. The hash is MurmurHash3's
    finalizer with a random word a round.
    """
    rounds = 2 * max(n - 1, 1).bit_length() + 8
    words = random.bits(key, (2, rounds, count, 1))
    size = jnp.uint32(n)

    def swapped(x: jax.Array, words: tuple) -> tuple[jax.Array, tuple]:
        partner, word = words
        other = jnp.where(x <= partner, partner - x, partner + (size - x))
        swap = finalize(jnp.maximum(x, other) ^ word) >> 31
        return jnp.where(swap == 1, other, x), ()

    x = jnp.broadcast_to(jnp.arange(n, dtype=jnp.uint32), (count, n))
    x, _ = jax.lax.scan(swapped, x, (words[0] % size, words[1]), unroll=ROUNDS)
    return x.astype(jnp.int32)


def finalize(x: jax.Array) -> jax.Array:
    """Return MurmurHash3's 32-bit finalizer (Appleby 2011) of uint32s."""
    x = (x ^ (x >> 16)) * jnp.uint32(0x85EBCA6B)
    x = (x ^ (x >> 13)) * jnp.uint32(0xC2B2AE35)
    return x ^ (x >> 16)


@dataclasses.dataclass(frozen=True)
class RolloutMemory(Memory):
    """Hand out rows [T, B] once an epoch: T * B shuffled rows, or environments with `by_env`.

    Batches are [rows / minibatches, ...], or [T, B / minibatches, ...] with `by_env` (for recurrent
    policies, V-trace and recomputed advantages). One minibatch is the rollout as it lies.
    """

    num_steps: int
    num_envs: int
    num_minibatches: int
    by_env: bool = False
    shuffle: str = "auto"  # one of `SHUFFLES`

    @property
    def items(self) -> int:
        """Return the number of items that an epoch permutes."""
        return self.num_envs if self.by_env else self.num_steps * self.num_envs

    @property
    def batch_axes(self):
        return 1 if self.by_env else 0

    def init(self, rows):
        return ()

    def add(self, mem, rows, w):
        return rows if self.by_env else tree.merge_axes(rows)

    def plan(self, key, n, w, clock):
        epochs = -(-n // self.num_minibatches)
        order = permutations(key, epochs, self.items, self.shuffle)
        return order.reshape(epochs * self.num_minibatches, self.items // self.num_minibatches)[:n]

    def fetch(self, mem, x):
        if self.num_minibatches == 1:
            return mem, ()
        if self.by_env:
            return jax.tree.map(lambda leaf: leaf[:, x], mem), ()
        return tree.take(mem, x), ()

    def retain(self, mem):
        return ()
