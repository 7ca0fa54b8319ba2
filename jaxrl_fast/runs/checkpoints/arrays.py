"""Convert a state's arrays for orbax, and compare them with a checkpoint's."""

from __future__ import annotations

from typing import Any

import jax
import numpy as np

from jaxrl_fast import random


def check_arrays(form: Any, written: Any) -> None:
    """Raise ValueError for an array that is missing, or has another shape or dtype, in either."""
    wanted, there = ({jax.tree_util.keystr(path, simple=True, separator="/"): x
                      for path, x in jax.tree.leaves_with_path(tree)} for tree in (form, written))
    shown = lambda x: f"{x.dtype}{list(x.shape)}" if x is not None else "missing"
    for name in dict.fromkeys([*wanted, *there]):
        want, got = wanted.get(name), there.get(name)
        if got is not None and random.is_typed(want):
            continue  # written as the words of the keys
        if shown(want) != shown(got):
            raise ValueError(f"{name} is {shown(got)} in the checkpoint and {shown(want)} by "
                             "config.json")


def without_empty(state: Any) -> Any:
    """Replace arrays without elements by None: orbax refuses them, and MJX's data has several."""
    return jax.tree.map(lambda x: x if x.size else None, state)


def with_empty(state: Any, like: Any) -> Any:
    """Return a state of `without_empty`'s form with the empty arrays of `like`."""
    leaves, structure = jax.tree.flatten(like)
    kept = iter(jax.tree.leaves(state))
    empty = lambda x: jax.device_put(np.zeros(x.shape, x.dtype), x.sharding)
    return structure.unflatten([next(kept) if x.size else empty(x) for x in leaves])


def abstract(state: Any, sharding: Any) -> Any:
    """Return shapes and dtypes of `state` with a sharding, for `restore`."""
    return jax.tree.map(lambda x: jax.ShapeDtypeStruct(x.shape, x.dtype, sharding=sharding), state)
