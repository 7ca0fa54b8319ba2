"""The streams of a run's root key, each with its number.

The root key is folded with a stream's number and never split; a stream's keys are split and never
kept. Results so depend neither on chunk sizes nor on interruptions.

| stream | number | feeds |
|---|---|---|
| iteration t | t, from 0 to 2^31 - 1 | one iteration: see `IterationKeys` |
| init | 2^32 - 1 | the first episodes and the agent |
| evaluation | 2^32 - 2, then the log row | episodes of an evaluation |
| host seeds | 2^32 - 3, then t | seeds of environments on the host |

`random.keys_at` numbers iterations apart from `random.fold_in`. Actors and evaluations on the host
fold a stream's key further: by group, and by step.
"""

from __future__ import annotations

from typing import NamedTuple

import jax

from jaxrl_fast import random

INIT, EVALUATION, HOST_SEEDS = 2**32 - 1, 2**32 - 2, 2**32 - 3


class IterationKeys(NamedTuple):
    """The keys of one iteration."""

    env: jax.Array  # transitions and resets
    policy: jax.Array  # exploration; on the host, the first group's
    plan: jax.Array  # rows to learn from
    updates: jax.Array  # draws of the updates


def iteration_keys(root: jax.Array, t: jax.Array) -> IterationKeys:
    keys = random.keys_at(root, t, 4)
    return IterationKeys(keys[0], keys[1], keys[2], keys[3])


def init_key(root: jax.Array) -> jax.Array:
    return random.fold_in(root, INIT)


def evaluation_key(root: jax.Array, rows: jax.Array | int) -> jax.Array:
    """Return the key of the evaluation after `rows` log rows."""
    return random.fold_in(random.fold_in(root, EVALUATION), rows)


def host_seed_key(root: jax.Array, t: int) -> jax.Array:
    """Return the key of seeds for environments on the host opened before iteration t."""
    return random.fold_in(random.fold_in(root, HOST_SEEDS), t)
