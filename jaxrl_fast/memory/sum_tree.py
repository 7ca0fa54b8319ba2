"""A sum tree in XLA: one array a level, parents summed again from their children.

Level 0 holds the leaves as rows of FANOUT siblings, float32 [nodes, FANOUT]; level k + 1 holds the
sums of level k's rows, and the last level is one row. A write into one array for all levels would
make XLA copy it; fan-out 8 was the fastest of 4 to 64 on a CPU; sums updated by differences would
drift in float32.
"""

from __future__ import annotations

import functools
import itertools
import operator

import jax
import jax.numpy as jnp

from jaxrl_fast.ops.lowering import on_gpu
from jaxrl_fast.ops.places import put, quotient, remainder, take

FANOUT = 8
NEAR = 2  # level at which `find` adds the rest of a mass: nodes of FANOUT^3 leaves
WHOLE = 1  # a level is summed whole if it has at most this many nodes for each index
WHOLE_ON_A_GPU = 1 << 14  # nodes of a level that a GPU sums whole: 0.5 MiB, also with members
TOP = 256  # most numbers of the level at which a GPU's `find` begins

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
    """Return the sum of all leaves."""
    return on_gpu(lambda tree: _running(tree)[-1], lambda tree: jnp.sum(tree[-1]), tree)


def get(tree: Tree, index: jax.Array) -> jax.Array:
    """Return the leaves at int32 [b]."""
    return take(tree[0], quotient(index, FANOUT), remainder(index, FANOUT))


def set_at(tree: Tree, index: jax.Array, values: jax.Array) -> Tree:
    """Overwrite the leaves at int32 [b] by float32 [b]; equal indices need equal values."""
    leaves = _put(tree[0], index, values)
    above = on_gpu(_sums_of_all, _sums_of_few, tree[1:], leaves, index) if len(tree) > 1 else ()
    return leaves, *above


def _put(level: jax.Array, index: jax.Array, values: jax.Array) -> jax.Array:
    return put(level, values, quotient(index, FANOUT), remainder(index, FANOUT))


def replace_blocks(tree: Tree, start: jax.Array, values: jax.Array, cleared: jax.Array) -> Tree:
    """Overwrite the leaves from `start` on by float32 [n], and n from `cleared` on by zeros.

    Both at once: XLA copies the leaves between two writes. The blocks must not overlap.
    """
    whole = tree[0].shape[0] <= WHOLE_ON_A_GPU
    return on_gpu(_blocks_of_all if whole else _blocks_of_few, _blocks_of_few,
                  tree, start, values, cleared)


def _blocks_of_few(tree: Tree, start: jax.Array, values: jax.Array, cleared: jax.Array) -> Tree:
    block = jnp.arange(values.size, dtype=jnp.int32)
    places = jnp.concatenate([start + block, cleared + block])
    return set_at(tree, places, jnp.concatenate([values, jnp.zeros_like(values)]))


def _blocks_of_all(tree: Tree, start: jax.Array, values: jax.Array, cleared: jax.Array) -> Tree:
    """Select every leaf: on a GPU one kernel with the sums above; a scatter is one by itself."""
    place = jnp.arange(tree[0].size, dtype=jnp.int32).reshape(tree[0].shape)
    within = lambda begin: (place >= begin) & (place < begin + values.size)
    new = values[jnp.clip(place - start, 0, values.size - 1)]
    leaves = jnp.where(within(start), new, jnp.where(within(cleared), 0.0, tree[0]))
    return leaves, *_sums_of_all(tree[1:], leaves, place)


def _sums_of_few(levels: Tree, below: jax.Array, index: jax.Array) -> Tree:
    """Return the levels above `below` after a write at `index` [b] of the leaves."""
    new = []
    for level in levels:
        index = quotient(index, FANOUT)
        # near the root a level has fewer nodes than indices
        if below.shape[0] <= WHOLE * index.size:
            sums = jnp.pad(below.sum(axis=1), (0, level.size - below.shape[0])).reshape(level.shape)
        else:
            sums = _put(level, index, take(below, index).sum(axis=1))
        new.append(below := sums)
    return tuple(new)


def _sums_of_all(levels: Tree, below: jax.Array, index: jax.Array) -> Tree:
    """Like `_sums_of_few`, in one kernel a level, whose sums are elementwise terms.

    The first level is a reduction, which XLA joins with the elementwise write of the leaves.
    """
    new = []
    for i, level in enumerate(levels):
        if below.shape[0] > WHOLE_ON_A_GPU:
            sums = _sums_of_few((level,), below, quotient(index, FANOUT**i))[0]
        else:
            terms = [below[:, k] for k in range(FANOUT)]
            sums = functools.reduce(operator.add, terms) if i else below.sum(axis=1)
            sums = jnp.pad(sums, (0, level.size - below.shape[0])).reshape(level.shape)
        new.append(below := sums)
    return tuple(new)


def find(tree: Tree, mass: jax.Array, rest: jax.Array | float = 0.0) -> tuple[jax.Array, jax.Array]:
    """Return (index int32 [b], leaf) where the running sum passes mass + rest in [0, total).

    `rest` is the part of the sum that float32 cannot hold: it is added near the leaves and stays
    within the node there. A zero leaf is never found beside another, whatever rounding does: a mass
    beyond a row's sum goes to the row's last leaf that is not zero.
    """
    return on_gpu(_descend_from_many, _descend, tree, mass, jnp.broadcast_to(rest, mass.shape))


def _top(tree: Tree) -> int:
    """Return the lowest level of at most `TOP` numbers."""
    return next(height for height, level in enumerate(tree) if level.size <= TOP)


def _running(tree: Tree) -> jax.Array:
    """Return the running sums of the level `_top`, float32 [n], as one reduction."""
    flat = tree[_top(tree)].ravel()
    place = jnp.arange(flat.size, dtype=jnp.int32)
    return jnp.sum(jnp.where(place <= place[:, None], flat, 0.0), axis=1)


def _descend_from_many(tree: Tree, mass: jax.Array, rest: jax.Array) -> tuple[jax.Array, jax.Array]:
    """Like `_descend`, in few kernels of a GPU: one reduction chooses among all nodes of `_top`.

    Two levels below are one kernel, if the rest is added in the second. A place among `TOP` nodes
    is right to some 2^-24 of the sum, so the rest only matters in trees of more levels.
    """
    top, running = _top(tree), _running(tree)
    near = NEAR if top > NEAR else 0
    mass = mass + rest if top == 0 else mass
    each = jnp.broadcast_to(mass[:, None], (mass.size, running.size))
    passed = (running <= each) & (running < running[-1])
    left = jnp.where(passed, each - running, each)  # least: behind the last node that is passed
    joined = lambda x, y: (x[0] + y[0], jnp.minimum(x[1], y[1]))
    first = jnp.int32(0), jnp.float32(jnp.inf)
    node, mass = jax.lax.reduce((passed.astype(jnp.int32), left), first, joined, (1,))
    weight = tree[top].ravel()[node]
    for height in reversed(range(top)):
        if height == near:
            mass = jnp.maximum(mass + rest, 0.0)
        flat = tree[height].ravel()
        row = [flat[node * FANOUT + k] for k in range(FANOUT)]
        child, before, weight = _choose_by_terms(row, mass)
        mass = mass - before
        node = node * FANOUT + child
    return node, weight


def _descend(tree: Tree, mass: jax.Array, rest: jax.Array) -> tuple[jax.Array, jax.Array]:
    node = jnp.zeros(mass.shape, jnp.int32)
    for height, level in reversed(list(enumerate(tree))):
        if height == min(NEAR, len(tree) - 1):
            mass = jnp.maximum(mass + rest, 0.0)
        child, before, weight = _choose_by_product(level, node, mass)
        mass = mass - before
        node = node * FANOUT + child
    return node, weight


def _choose_by_product(level: jax.Array, node: jax.Array,
                       mass: jax.Array) -> tuple[jax.Array, jax.Array, jax.Array]:
    """Return the child [b] of `node` that `mass` falls on, the sum before it, and its weight."""
    row = take(level, node)  # [b, FANOUT]
    upper = jnp.triu(jnp.ones((FANOUT, FANOUT), jnp.float32))
    # a product is the fastest short cumsum
    running = jnp.matmul(row, upper, precision=jax.lax.Precision.HIGHEST)
    passed = running <= mass[:, None]
    place = jnp.arange(FANOUT, dtype=jnp.int32)
    last = jnp.max(jnp.where(row > 0, place, 0), axis=1)
    child = jnp.minimum(jnp.sum(passed, axis=1, dtype=jnp.int32), last)
    at = lambda x, index: jnp.sum(jnp.where(place == index[:, None], x, 0.0), axis=1)
    return child, at(running, child - 1), at(row, child)


def _choose_by_terms(row: list[jax.Array],
                     mass: jax.Array) -> tuple[jax.Array, jax.Array, jax.Array]:
    """Like `_choose_by_product` of a row's numbers [b], elementwise: a GPU fuses two levels."""
    running = list(itertools.accumulate(row))
    child = sum((x <= mass).astype(jnp.int32) for x in running)
    last = functools.reduce(jnp.maximum, [jnp.where(x > 0, k, 0) for k, x in enumerate(row)])
    child = jnp.minimum(child, last)
    at = lambda xs, index: sum(jnp.where(index == k, x, 0.0) for k, x in enumerate(xs))
    return child, at(running, child - 1), at(row, child)
