"""A sum tree in XLA: one array a level, parents always summed again from their children.

Level 0 holds the leaves as rows of FANOUT siblings, float32 [nodes, FANOUT]; level k + 1 holds the sums of level k's
rows, in rows of FANOUT again, and the last level is one row. One array a level, because a write into a heap in one
array makes XLA copy it; a fan-out above two, because a few gathers of short rows beat seventeen steps of a binary
tree (8 of 4, 8, 16, 32, 64 was the fastest on a CPU); and sums recomputed rather than updated by differences, because
a float32 tree drifts otherwise.
"""

from __future__ import annotations

import jax
import jax.numpy as jnp

FANOUT = 8
NEAR = 2  # the level at which `find` adds the rest of a mass: of nodes of FANOUT^3 leaves
WHOLE = 1  # a level is summed whole where it has at most so many nodes for each index written

Tree = tuple[jax.Array, ...]


def init(leaves: int) -> Tree:
    """A tree of at least `leaves` leaves, all zero."""
    levels, nodes = [], leaves
    while True:
        nodes = -(-nodes // FANOUT)
        levels.append(jnp.zeros((nodes, FANOUT), jnp.float32))
        if nodes == 1:
            return tuple(levels)


def build(leaves: jax.Array) -> Tree:
    """The tree over `leaves`, float32 [n]."""
    return set_at(init(leaves.size), jnp.arange(leaves.size, dtype=jnp.int32), leaves)


def total(tree: Tree) -> jax.Array:
    return jnp.sum(tree[-1])


def get(tree: Tree, index: jax.Array) -> jax.Array:
    """Leaves at int32 [b]."""
    return tree[0][index // FANOUT, index % FANOUT]


def set_at(tree: Tree, index: jax.Array, values: jax.Array) -> Tree:
    """Overwrite the leaves at int32 [b] by float32 [b]; equal indices must come with equal values."""
    levels = [tree[0].at[index // FANOUT, index % FANOUT].set(values)]
    for level in tree[1:]:
        below, index = levels[-1], index // FANOUT
        if below.shape[0] <= WHOLE * index.size:  # near the root fewer sums are wanted than indices came
            sums = jnp.pad(below.sum(axis=1), (0, level.size - below.shape[0])).reshape(level.shape)
        else:
            sums = level.at[index // FANOUT, index % FANOUT].set(below[index].sum(axis=1))
        levels.append(sums)
    return tuple(levels)


def find(tree: Tree, mass: jax.Array, rest: jax.Array | float = 0.0) -> tuple[jax.Array, jax.Array]:
    """The leaves at which the running sum of all leaves passes mass + rest, float32 [b] in [0, total).

    Returns (index int32 [b], leaf float32 [b]). `rest` is what float32 cannot hold of the sum of the two: it is added
    near the leaves, where little of `mass` is left, and reaches no further than the ends of the node there. A leaf of
    zero is never found while another is not, whatever rounding does: what lies beyond a row's sum goes to the row's
    last leaf that is not zero.
    """
    node = jnp.zeros(mass.shape, jnp.int32)
    for height, level in reversed(list(enumerate(tree))):
        if height == min(NEAR, len(tree) - 1):
            mass = jnp.maximum(mass + rest, 0.0)
        row = level[node]  # [b, FANOUT]
        child, before, weight = _choose(row, mass)
        mass = mass - before
        node = node * FANOUT + child
    return node, weight


def _choose(row: jax.Array, mass: jax.Array) -> tuple[jax.Array, jax.Array, jax.Array]:
    """Which of the siblings [b, FANOUT] `mass` falls on, the sum of those before it, and its weight."""
    upper = jnp.triu(jnp.ones((FANOUT, FANOUT), jnp.float32))
    running = jnp.matmul(row, upper, precision=jax.lax.Precision.HIGHEST)  # a product is the fastest short cumsum
    passed = running <= mass[:, None]
    place = jnp.arange(FANOUT, dtype=jnp.int32)
    last = jnp.max(jnp.where(row > 0, place, 0), axis=1)
    child = jnp.minimum(jnp.sum(passed, axis=1, dtype=jnp.int32), last)
    at = lambda x, index: jnp.sum(jnp.where(place == index[:, None], x, 0.0), axis=1)
    return child, at(running, child - 1), at(row, child)
