"""What environments report beside the reward: named numbers, in the log as their mean over steps and their value at ends.

A number that is not finite counts as not reported, so an environment may report one now and then. All of it is sums and
counts, as every metric is: `NAME` over the steps, `NAME_end` over those in which an episode ended.
"""

from __future__ import annotations

import re
from collections.abc import Iterable, Mapping
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np

from jaxrl_fast import sums
from jaxrl_fast.types import Mean

# What the log has beside what an algorithm measures; `time_` begins more of its names.
LOG = (
    "env_steps", "wall_seconds", "steps_per_second", "episode_return", "episode_length", "eval_return", "eval_length",
    "eval_episodes", "policy_lag", "parent", "kept",
)  # fmt: skip
END = "_end"


def log_names(names: Iterable[str], taken: Iterable[str]) -> dict[str, str]:
    """What each reported name is called in the log: itself, with letters, digits, `_` and `-`, unless that is `taken`.

    A name that the log has already, or whose `NAME_end` it has, gets `env_` before it.
    """
    used, found = {*LOG, *taken}, {}
    for name in sorted(names):
        own = re.sub(r"[^\w\-]+", "_", name) or "_"
        while own in used or own + END in used or own.startswith("time_"):
            own = f"env_{own}"
        used |= {own, own + END}
        found[name] = own
    return found


def statistics(info: Mapping[str, jax.Array], done: jax.Array) -> dict[str, tuple[Mean, Mean]]:
    """Means of a block [T, B]: {name: (over its steps, over its ends)}."""

    def mean(x: jax.Array, known: jax.Array) -> Mean:
        total = sums.by_eights(sums.pairwise(jnp.where(known, x.astype(jnp.float32), 0.0)))
        return Mean(total, jnp.sum(known).astype(jnp.float32))

    return {name: (mean(x, jnp.isfinite(x)), mean(x, jnp.isfinite(x) & done)) for name, x in info.items()}


def metrics(found: Mapping[str, tuple[Mean, Mean]], taken: Iterable[str]) -> dict[str, Mean]:
    """Under their names in the log, where `taken` are the other metrics."""
    names = log_names(found, taken)
    return {names[name] + end: mean for name, means in found.items() for end, mean in zip(("", END), means, strict=True)}


class Tally:
    """The same for environments on the host, one step of some of them after another."""

    def __init__(self) -> None:
        self._sums: dict[tuple[str, ...], np.ndarray] = {}  # {names reported together: [names, (total, count) x (steps, ends)]}

    def add(self, info: Mapping[str, np.ndarray], over: np.ndarray) -> None:
        """info: {name: [B]}, NaN where one does not report it; over [B]: where an episode ended."""
        if not info:
            return
        names, values = tuple(info), np.array(list(info.values()), np.float64)
        total = self._sums.setdefault(names, np.zeros((len(names), 4)))
        total[:, :2] += _total(values)
        if over.any():
            total[:, 2:] += _total(values[:, over])

    def take(self) -> dict[str, np.ndarray]:
        """{name: float64 [4]} since the last time."""
        kept, self._sums = self._sums, {}
        return merged(dict(zip(names, rows, strict=True)) for names, rows in kept.items())


def _total(values: np.ndarray) -> np.ndarray:
    """[names, B] -> (total, count) [names, 2] of the finite ones."""
    with np.errstate(invalid="ignore", over="ignore"):
        total = values.sum(1)
    if np.isfinite(total).all():  # as nearly always
        return np.stack([total, np.full(len(values), float(values.shape[1]))], 1)
    known = np.isfinite(values)
    return np.stack([np.where(known, values, 0).sum(1), known.sum(1)], 1)


def merged(parts: Iterable[Mapping[str, np.ndarray]]) -> dict[str, np.ndarray]:
    """The sums of several tallies."""
    found: dict[str, np.ndarray] = {}
    for part in parts:
        for name, row in part.items():
            found[name] = found[name] + row if name in found else row
    return found


def host_metrics(found: Mapping[str, np.ndarray], taken: Iterable[str]) -> dict[str, Mean]:
    """`metrics` of a tally; an end that was never reported has no metric."""
    means = {name: (Mean(*np.float32(row[:2])), Mean(*np.float32(row[2:]))) for name, row in found.items()}
    return {name: mean for name, mean in metrics(means, taken).items() if mean.count or not name.endswith(END)}


def flat(info: Mapping[str, Any], num_envs: int) -> dict[str, np.ndarray]:
    """The numbers of the `info` of a Gymnasium vector, {name: [B]}; those of a dict in it are `KEY_NAME`.

    Its masks are taken in: NaN where an environment does not report the number. What is no number is left out.
    """
    found: dict[str, np.ndarray] = {}
    for key, value in info.items():
        if key[:1] == "_" and key[1:] in info:
            continue
        if isinstance(value, dict):
            inner = {f"{key}_{name}": x for name, x in flat(value, num_envs).items()}
        else:
            x = _numbers(value, num_envs)
            inner = {} if x is None else {key: x}
        mask = info.get(f"_{key}")
        if inner and mask is not None and not mask.all():
            inner = {name: np.where(mask, x, np.nan) for name, x in inner.items()}
        found |= inner
    return found


def _numbers(value: Any, num_envs: int) -> np.ndarray | None:
    """A vector of real numbers; None for anything else."""
    if not isinstance(value, np.ndarray) or value.shape != (num_envs,):
        return None
    if value.dtype.kind in "biuf":
        return value
    first = next((x for x in value if x is not None), None) if value.dtype == object else None
    if not isinstance(first, (bool, int, float, np.bool_, np.number)):  # np.bool_, of which Gymnasium knows nothing
        return None
    try:
        return np.array([np.nan if x is None else float(x) for x in value])
    except (TypeError, ValueError):
        return None
