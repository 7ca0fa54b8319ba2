"""A sum tree in XLA: one array a level, parents summed again from their children.

Level 0 holds the leaves as rows of FANOUT siblings, float32 [nodes, FANOUT]; level k + 1 holds the
sums of level k's rows, and the last level is one row. A write into one array for all levels would
make XLA copy it; fan-out 8 was the fastest of 4 to 64 on a CPU; sums updated by differences would
drift in float32.
"""

from __future__ import annotations

import jax
import jax.numpy as jnp

FANOUT = 8
NEAR = 2  # level at which `find` adds the rest of a mass: nodes of FANOUT^3 leaves
WHOLE = 1  # a level is summed whole if it has at most this many nodes for each index

Tree = tuple[jax.Array, ...]


def init(leaves: int) -> Tree:
    """Return a tree of at least `leaves` zero leaves."""
    levels, nodes = [], leaves
    while True:
        nodes = -(-nodes // FANOUT)
        levels.append(jnp.zeros((nodes, FANOUT), jnp.float32))
        if nodes == 1:
            return tuple(levels)


def build(leaves: jax.Array) -> Tree:
    """Return the tree over `leaves`, float32 [n]."""
    return set_at(init(leaves.size), jnp.arange(leaves.size, dtype=jnp.int32), leaves)


def total(tree: Tree) -> jax.Array:
    return jnp.sum(tree[-1])


def get(tree: Tree, index: jax.Array) -> jax.Array:
    """Return the leaves at int32 [b]."""
    return tree[0][index // FANOUT, index % FANOUT]


def set_at(tree: Tree, index: jax.Array, values: jax.Array) -> Tree:
    """Overwrite the leaves at int32 [b] by float32 [b]; equal indices need equal values."""
    levels = [tree[0].at[index // FANOUT, index % FANOUT].set(values)]
    for level in tree[1:]:
        below, index = levels[-1], index // FANOUT
        if below.shape[0] <= WHOLE * index.size:  # near the root a level has fewer nodes than indices
            sums = jnp.pad(below.sum(axis=1), (0, level.size - below.shape[0])).reshape(level.shape)
        else:
            sums = level.at[index // FANOUT, index % FANOUT].set(below[index].sum(axis=1))
        levels.append(sums)
    return tuple(levels)


def find(tree: Tree, mass: jax.Array, rest: jax.Array | float = 0.0) -> tuple[jax.Array, jax.Array]:
    """Return (index int32 [b], leaf) where the running sum passes mass + rest in [0, total).

    `rest` is the part of the sum that float32 cannot hold: it is added near the leaves and stays
    within the node there. A zero leaf is never found beside another, whatever rounding does: a mass
    beyond a row's sum goes to the row's last leaf that is not zero.
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
    """Return the sibling [b, FANOUT] that `mass` falls on, the sum before it, and its weight."""
    upper = jnp.triu(jnp.ones((FANOUT, FANOUT), jnp.float32))
    running = jnp.matmul(row, upper, precision=jax.lax.Precision.HIGHEST)  # a product is the fastest short cumsum
    passed = running <= mass[:, None]
    place = jnp.arange(FANOUT, dtype=jnp.int32)
    last = jnp.max(jnp.where(row > 0, place, 0), axis=1)
    child = jnp.minimum(jnp.sum(passed, axis=1, dtype=jnp.int32), last)
    at = lambda x, index: jnp.sum(jnp.where(place == index[:, None], x, 0.0), axis=1)
    return child, at(running, child - 1), at(row, child)
