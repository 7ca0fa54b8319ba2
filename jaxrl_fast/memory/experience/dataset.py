"""Datasets as rows of a replay memory: NumPy in and out, checked against a spec.

    episodes_to_rows(episodes, spec)   -> Row [T, B]          steps in time order
    transitions_to_rows(..., spec)     -> Transition [N, 1]   steps in any order, with successors
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from typing import Any

import jax
import numpy as np

from jaxrl_fast.errors import ConfigError, check_int
from jaxrl_fast.memory.ring import Row
from jaxrl_fast.memory.transitions import Transition
from jaxrl_fast.spaces import Dict, Discrete, MultiDiscrete, Space
from jaxrl_fast.types import EnvSpec

FIELDS = ("observations", "actions", "rewards", "terminations", "truncations")


def episodes_to_rows(episodes: Iterable[Any], spec: EnvSpec, num_envs: int = 1) -> Row:
    """Return episodes as rows [T, num_envs], whole episodes one after the other in each column.

    episodes: dicts, or objects with attributes such as Minari's, with `observations` [T + 1] or
    [T], `actions`, `rewards`, `terminations` and `truncations` [T]. With T + 1 observations every
    step is learned from; with T (as in flat arrays, which may be one long episode) a truncated step
    is not: its successor is missing. Data that stops within an episode is truncated. Stacked frames
    are given as single frames.
    """
    check_int("num_envs", num_envs)
    columns: list[list[Row]] = [[] for _ in range(num_envs)]
    lengths = [0] * num_envs
    for i, episode in enumerate(episodes):
        rows = _episode(f"episodes[{i}]", episode, spec)
        shortest = lengths.index(min(lengths))
        columns[shortest].append(rows)
        lengths[shortest] += len(rows.reward)
    if not min(lengths):
        raise ConfigError("episodes", f"{sum(map(len, columns))} episodes",
                          f"at least {num_envs}, one an environment")
    joined = [jax.tree.map(lambda *x: np.concatenate(x), *column) for column in columns]
    return side_by_side(joined)


def transitions_to_rows(
    observations: Any, actions: Any, rewards: Any, next_observations: Any,
    terminations: Any, spec: EnvSpec
) -> Transition:
    """Return transitions in any order [N, ...] as rows [N, 1]; stacked frames are whole stacks.

    A truncated step is not terminated: its successor's value counts.
    """
    rewards = _numbers("rewards", rewards)
    n = len(rewards)
    rows = Transition(
        _in_space("observations", observations, spec.observation, n, spec.stack),
        _in_space("actions", actions, spec.action, n),
        rewards,
        _in_space("next_observations", next_observations, spec.observation, n, spec.stack),
        _flags("terminations", terminations, n),
    )
    return jax.tree.map(lambda x: x[:, None], rows)


def _episode(name: str, episode: Any, spec: EnvSpec) -> Row:
    """Return rows [T] or [T + 1] of one episode (or of a flat dataset)."""
    part = {field: _field(name, episode, field) for field in FIELDS}
    where = {field: f"{name}.{field}" for field in FIELDS}
    reward = _numbers(where["rewards"], part["rewards"])
    n = len(reward)
    action = _in_space(where["actions"], part["actions"], spec.action, n)
    terminated = _flags(where["terminations"], part["terminations"], n)
    truncated = _flags(where["truncations"], part["truncations"], n) & ~terminated
    final = _length(part["observations"]) == n + 1  # with the observation after the last step
    obs = _in_space(where["observations"], part["observations"],
                    spec.observation, n + final, also=n + 1)
    rows = Row(jax.tree.map(lambda x: x[:n], obs), action, reward, terminated, truncated)
    if terminated[-1]:
        return rows
    truncated[-1] = not final  # without a successor the row is not learned from
    if not final:
        return rows
    rows = extend(rows, 1)
    return rows._replace(obs=obs)


def _field(name: str, episode: Any, field: str) -> Any:
    value = episode.get(field) if isinstance(episode, Mapping) else getattr(episode, field, None)
    if value is None:
        raise ConfigError(name, f"{type(episode).__name__} without {field}",
                          f"one with {', '.join(FIELDS)}")
    return value


def _length(observations: Any) -> int:
    """Return the length of the first array in `observations`."""
    while isinstance(observations, Mapping) and observations:
        observations = next(iter(observations.values()))
    return len(observations) if hasattr(observations, "__len__") else 0


def extend(rows: Row, after: int, before: int = 0) -> Row:
    """Surround NumPy rows [T, ...] with truncated rows of zeros, which are never learned from."""
    widths = lambda x: [(before, after)] + [(0, 0)] * (x.ndim - 1)
    pad = lambda x, value=0: np.pad(x, widths(x), constant_values=value)
    return jax.tree.map(pad, rows)._replace(truncated=pad(rows.truncated, True))


def side_by_side(columns: list[Row]) -> Row:
    """Return rows [T, B] of columns [T_b], the shorter ones extended."""
    most = max(len(c.reward) for c in columns)
    return jax.tree.map(lambda *x: np.stack(x, axis=1),
                        *[extend(c, most - len(c.reward)) for c in columns])


def cut_off(rows: Row) -> Row:
    """Mark the last row (of each column) as truncated, unless it is terminated."""
    truncated = np.array(rows.truncated)
    truncated[-1] |= ~np.asarray(rows.terminated)[-1]
    return rows._replace(truncated=truncated)


def _numbers(name: str, value: Any) -> np.ndarray:
    """Return rewards, float32 [N], N at least 1."""
    array = _array(name, value)
    if array.ndim != 1 or not len(array) or array.dtype.kind not in "fiub":
        raise ConfigError(name, _describe(array), "a vector of at least one number")
    return _finite(name, array.astype(np.float32))


def _flags(name: str, value: Any, count: int) -> np.ndarray:
    array = _array(name, value)
    if array.shape != (count,) or array.dtype.kind not in "fiub" or not np.isin(
        array, (0, 1)
    ).all():
        raise ConfigError(name, _describe(array), f"{count} flags (bool, or 0 and 1), one a reward")
    return array.astype(bool)


def _in_space(name: str, value: Any, space: Space, count: int,
              stack: int = 1, also: int | None = None) -> Any:
    """Return `value` as arrays [count, ...] in the space; `also`: another valid count."""
    if isinstance(space, Dict):
        names = [n for n, _ in space.items]
        if not isinstance(value, Mapping) or set(value) != set(names):
            found = sorted(value) if isinstance(value, Mapping) else type(value).__name__
            raise ConfigError(name, found, f"a dict with the entries {', '.join(names)}")
        return {n: _in_space(f"{name}.{n}", value[n], child, count, stack, also)
                for n, child in space.items}
    array, dtype = _array(name, value), np.dtype(space.dtype)
    shape = space.shape if stack == 1 else (*space.shape[:-1], space.shape[-1] * stack)
    if array.shape != (count, *shape):
        either = f" or {(also, *shape)}" if also not in (None, count) else ""
        raise ConfigError(name, _describe(array),
                          f"of shape {(count, *shape)}{either}: one a reward, of the space {space}")
    exact = array.dtype.kind in "iub" and dtype.kind in "iub"  # any integers will do if they fit
    if array.dtype.kind not in "fiub" or not (exact
                                              or np.can_cast(array.dtype, dtype, "same_kind")):
        raise ConfigError(name, _describe(array),
                          f"of dtype {dtype}, as the environment's space has it")
    out = array.astype(dtype)
    if exact and not np.array_equal(out, array):
        raise ConfigError(name, f"values from {array.min()} to {array.max()}",
                          f"values that {dtype} can hold")
    if isinstance(space, (Discrete, MultiDiscrete)):
        above = out >= np.asarray(space.n if isinstance(space, Discrete) else space.nvec)
        if (out < 0).any() or above.any():
            raise ConfigError(name, f"values from {out.min()} to {out.max()}",
                              f"values of {space}, counted from 0")
    return _finite(name, out)


def _array(name: str, value: Any) -> np.ndarray:
    try:
        return np.asarray(value)
    except ValueError as error:  # a list of lists of unequal lengths
        raise ConfigError(name, type(value).__name__, f"an array of numbers: {error}") from error


def _finite(name: str, array: np.ndarray) -> np.ndarray:
    if array.dtype.kind == "f" and not np.isfinite(array).all():
        first = tuple(int(i) for i in np.argwhere(~np.isfinite(array))[0])
        raise ConfigError(f"{name}{list(first)}", float(array[first]), "a finite number")
    return array


def _describe(array: np.ndarray) -> str:
    return f"{array.dtype} array of shape {array.shape}"
