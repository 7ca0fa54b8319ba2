"""Checks of the actions that enter an environment."""

from __future__ import annotations

from typing import Any

import jax
import jax.numpy as jnp
import numpy as np

from jaxrl_fast.envs.checks import of_space
from jaxrl_fast.envs.own_spaces import own_of
from jaxrl_fast.errors import ConfigError
from jaxrl_fast.spaces import Box, Dict
from jaxrl_fast.types import EnvSpec, PyTree


def action(spec: EnvSpec, value: PyTree) -> tuple[PyTree, int]:
    """Return (action [B, ...] in the space's form, within a Box's bounds and in its dtype; B)."""
    leaves = jax.tree.leaves(value)
    num_envs = jnp.shape(leaves[0])[0] if leaves and jnp.shape(leaves[0]) else 1
    field, space, given = f"{spec.name}: action", spec.action, value
    value = of_space(field, space, given, num_envs, dtypes=False)
    _check_chosen(field, space, given)
    if not isinstance(space, Box) or (jnp.issubdtype(space.dtype, jnp.floating)
                                      and not np.isfinite(space.bounds()).any()):
        return value, num_envs
    return own_of(space).decode(value), num_envs


def check_size(spec: EnvSpec, num_envs: int, state: PyTree) -> None:
    """Raise ConfigError for actions of another number of environments than the state's."""
    sizes = {jnp.shape(x)[:1] for x in jax.tree.leaves(state)}
    if len(sizes) == 1 and sizes != {(num_envs,)} and sizes != {()}:
        ((size,),) = sizes
        raise ConfigError(f"{spec.name}: action", f"{num_envs} actions",
                          f"one for each of the {size} environments of the state")


def _check_chosen(field: str, space: Any, value: Any) -> None:
    """Raise ConfigError for an action that is no integer, or none of the space's.

    Values on the device are not read: that would wait for them.
    """
    if isinstance(space, Dict):
        for name, child in space.items:
            _check_chosen(f"{field}[{name!r}]", child, value[name])
    if isinstance(space, (Dict, Box)):
        return
    kind, most = jnp.result_type(value), np.asarray(getattr(space, "nvec", None) or space.n)
    if not (jnp.issubdtype(kind, jnp.integer) or jnp.issubdtype(kind, jnp.bool_)):
        raise ConfigError(field, f"{kind}{list(jnp.shape(value))}",
                          f"integers from 0 to {most.max() - 1}")
    if not isinstance(value, jax.Array):
        x = np.asarray(value, np.int64)
        bad = np.argwhere((x < 0) | (x >= most))
        if len(bad):
            at = tuple(bad[0])
            where = f"{list(map(int, at))}" if most.ndim else ""  # [environment, entry]
            raise ConfigError(f"{field}{where}", int(x[at]),
                              f"from 0 to {np.broadcast_to(most, x.shape)[at] - 1}")
