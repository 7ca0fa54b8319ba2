"""Checks of values from host environments: shapes and dtypes of the spec, finite numbers."""

from __future__ import annotations

import functools
from typing import Any

import jax
import numpy as np

from jaxrl_fast.envs.host.api import HostError
from jaxrl_fast.envs.host.vector import HostStep
from jaxrl_fast.spaces import zeros
from jaxrl_fast.types import EnvSpec


@functools.lru_cache(maxsize=64)
def _expected_shapes(spec: EnvSpec, num_envs: int) -> Any:
    return jax.eval_shape(lambda: zeros(spec.observation, (num_envs,)))


def check(spec: EnvSpec, num_envs: int, obs: Any, ids: np.ndarray | None = None) -> None:
    """Raise HostError for observations of other shapes or dtypes, or not finite."""
    wanted = _expected_shapes(spec, num_envs)
    if jax.tree.structure(wanted) != jax.tree.structure(obs):
        raise HostError(f"{spec.name} returned observations of another structure: "
                        f"{jax.tree.structure(obs)}")
    for (path, want), x in zip(jax.tree.leaves_with_path(wanted),
                               jax.tree.leaves(obs), strict=True):
        _check_array(spec, "observations" + jax.tree_util.keystr(path),
                     x, want.shape, want.dtype, ids)


def check_step(spec: EnvSpec, num_envs: int, found: HostStep,
               ids: np.ndarray | None = None) -> None:
    """Raise HostError like `check`, for all values of a step."""
    check(spec, num_envs, found.obs, ids)
    if found.next_obs is not found.obs:
        check(spec, num_envs, found.next_obs, ids)
    for name, dtype in (("reward", "float32"), ("score", "float32"),
                        ("terminated", "bool"), ("truncated", "bool")):
        what = f"{name}s" if dtype == "float32" else f"`{name}`"
        _check_array(spec, what, getattr(found, name), (num_envs,), np.dtype(dtype), ids)


def _check_array(spec: EnvSpec, name: str, x: np.ndarray, shape: tuple[int, ...],
                 dtype: Any, ids: Any) -> None:
    if x.shape != shape or x.dtype != dtype:
        raise HostError(f"{spec.name} returned {name} {x.dtype}{list(x.shape)} instead of "
                        f"{dtype}{list(shape)}")
    if x.dtype.kind == "f" and not np.isfinite(x).all():
        bad = int(np.argmin(np.isfinite(x).reshape(len(x), -1).all(1)))
        bad = bad if ids is None else int(ids[bad])
        raise HostError(f"{spec.name} returned {name} that are not finite as {dtype}, in "
                        f"environment {bad}")
