"""The truncated rows of a replay that are not learned from."""

from __future__ import annotations

from typing import Any

import jax
import numpy as np

from jaxrl_fast.memory.ring import Row
from jaxrl_fast.memory.successors import Successors

FEWEST_ENDS = 64  # truncated rows for a share of them


def dropped_truncations(mem: Any) -> float:
    """Return the share of a memory's truncated rows whose successor a later one replaced.

    Of the first member or group, 0 without truncations. Seams, and rows of a dataset, do not count.
    """
    rows = [x for x in jax.tree.leaves(mem, is_leaf=lambda x: isinstance(x, Row))
            if isinstance(x, Row) and isinstance(x.next_obs, Successors)]
    if not rows:
        return 0.0
    first = lambda x: np.asarray(x[(0,) * (x.ndim - 2)])  # [S, B]
    row, owner = rows[0], first(rows[0].next_obs.owner)
    ends = first(row.truncated) & ~first(row.terminated)
    owned = np.zeros_like(ends)
    slot, env = np.nonzero(owner)
    owned[owner[slot, env] - 1, env] = True
    owned &= ends  # an owner may be overwritten
    reach = min(2 * -(-len(ends) // len(owner)), len(ends))  # rows of a slot, at most
    later = np.cumsum(owned, axis=0, dtype=np.int32)
    later = np.concatenate([later[reach:], np.repeat(later[-1:], reach, axis=0)]) - later
    dropped = int((ends & ~owned & (later > 0)).sum())
    known = dropped + int(owned.sum())
    return dropped / known if known >= FEWEST_ENDS else 0.0
