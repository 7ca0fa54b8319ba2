"""Environments' reports: named numbers, logged as means over steps and over episodes' ends.

A number that is not finite or above 1e30 counts as not reported. Reports are sums and counts, as
every metric: `NAME` over the steps, `NAME_end` over the steps that end an episode.
"""

from __future__ import annotations

import dataclasses
import re
from collections.abc import Iterable, Mapping
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np

from jaxrl_fast.logs.info_names import NO_STRING, of_key, within
from jaxrl_fast.logs.rows import RESERVED
from jaxrl_fast.ops import sums
from jaxrl_fast.types import Mean

END = "_end"
LARGEST = 1e30  # float32 holds a sum of 1e8 of them


def log_names(names: Iterable[str], taken: Iterable[str],
              known: Mapping[str, str] | None = None) -> dict[str, str]:
    """Return {reported name: name in the log}, of letters, digits, `_`, `-`, and not `taken`.

    A name that the log already has gets the prefix `env_`. `known` names, of earlier rows, stay.
    """
    found = dict(known or {})
    used = {*RESERVED, *taken, *(own + end for own in found.values() for end in ("", END))}
    plain = {name: re.sub(r"[^\w\-]+", "_", name.rstrip(NO_STRING)) or "_"
             for name in names if name not in found}
    for name in sorted(plain, key=lambda name: (plain[name] != name, name)):
        own = plain[name]
        while own in used or own + END in used or own.startswith("time_"):
            own = f"env_{own}"
        used |= {own, own + END}
        found[name] = own
    return found


def statistics(info: Mapping[str, jax.Array], done: jax.Array) -> dict[str, tuple[Mean, Mean]]:
    """Return the means of a block [T, B]: {name: (over its steps, over its ends)}."""

    def mean(x: jax.Array, known: jax.Array) -> Mean:
        total = sums.by_eights(sums.pairwise(jnp.where(known, x.astype(jnp.float32), 0.0)))
        return Mean(total, jnp.sum(known).astype(jnp.float32))

    small = {name: jnp.abs(x) <= LARGEST for name, x in info.items()}  # False for NaN
    return {name: (mean(x, small[name]), mean(x, small[name] & done)) for name, x in info.items()}


def metrics(found: Mapping[str, tuple[Mean, Mean]], names: Mapping[str, str]) -> dict[str, Mean]:
    """Return {name in the log: Mean}; names: see `log_names`."""
    return {names[name] + end: mean for name, means in found.items()
            for end, mean in zip(("", END), means, strict=True)}


class Tally:
    """The sums of host environments' reports, added step by step."""

    def __init__(self) -> None:
        # {names reported together: [names, (total, count) x (steps, ends)]}
        self._sums: dict[tuple[str, ...], np.ndarray] = {}

    def add(self, info: Mapping[str, np.ndarray], over: np.ndarray) -> None:
        """Add a step: info {name: [B]}, NaN if not reported; over bool [B]: an episode ended."""
        if not info:
            return
        names, values = tuple(info), np.array(list(info.values()), np.float64)
        total = self._sums.setdefault(names, np.zeros((len(names), 4)))
        total[:, :2] += _total(values)
        if over.any():
            total[:, 2:] += _total(values[:, over])

    def take(self) -> dict[str, np.ndarray]:
        """Return {name: float64 [4]} since the last call."""
        kept, self._sums = self._sums, {}
        return merged(dict(zip(names, rows, strict=True)) for names, rows in kept.items())


def _total(values: np.ndarray) -> np.ndarray:
    """Sum reports [names, B] over environments -> (total, count) [names, 2], valid numbers only."""
    known = np.abs(values) <= LARGEST
    if known.all():  # nearly always
        return np.stack([values.sum(1), np.full(len(values), float(values.shape[1]))], 1)
    return np.stack([np.where(known, values, 0).sum(1), known.sum(1)], 1)


def merged(parts: Iterable[Mapping[str, np.ndarray]]) -> dict[str, np.ndarray]:
    """Return the sums of several tallies."""
    found: dict[str, np.ndarray] = {}
    for part in parts:
        for name, row in part.items():
            found[name] = found[name] + row if name in found else row
    return found


NEVER = Mean(np.float32(0), np.float32(0))  # a mean over nothing


@dataclasses.dataclass
class Reported:
    """Metrics of host environments' reports. A name stays the same, and later rows keep it."""

    # {report: its metric}
    names: dict[str, str] = dataclasses.field(default_factory=dict)
    seen: list[str] = dataclasses.field(default_factory=list)  # metrics so far

    def metrics(self, tallies: Iterable[Mapping[str, np.ndarray]],
                taken: Iterable[str]) -> dict[str, Mean]:
        """Return the metrics of some iterations; metrics without reports are means over nothing."""
        found = merged(tallies)
        self.names = log_names(found, taken, self.names)
        means = {name: (Mean(*np.float32(row[:2])), Mean(*np.float32(row[2:])))
                 for name, row in found.items()}
        means = {name: x for name, x in metrics(means, self.names).items() if x.count
                 or not name.endswith(END)}
        self.seen = [*dict.fromkeys([*self.seen, *means])]
        return dict.fromkeys(self.seen, NEVER) | means


def flat(info: Mapping[Any, Any], num_envs: int) -> dict[str, np.ndarray]:
    """Return the numbers of a Gymnasium vector's `info`, {name: [B]}; masked ones are NaN.

    `log_names` calls the numbers of a nested dict `KEY_NAME`. Two numbers never share a name.
    """
    found: dict[str, np.ndarray] = {}
    is_mask = lambda x: isinstance(x, np.ndarray) and x.dtype == bool and x.shape == (num_envs,)
    masks = {key: info[key] for key in {f"_{key}" for key in info} & info.keys()
             if is_mask(info[key])}
    for key, value in info.items():
        if key in masks:
            continue
        name, mask = of_key(key), masks.get(f"_{key}")
        if isinstance(value, dict):
            inner = {within(name, one): x for one, x in flat(value, num_envs).items()}
        else:
            x = _numbers(value, num_envs)
            inner = {} if x is None else {name: x}
        if mask is not None and not mask.all():
            inner = {name: np.where(mask, x, np.nan) for name, x in inner.items()}
        found |= inner
    return found


def _numbers(value: Any, num_envs: int) -> np.ndarray | None:
    if not isinstance(value, np.ndarray) or value.shape != (num_envs,):
        return None
    if value.dtype.kind in "biuf":
        return value
    first = next((x for x in value if x is not None), None) if value.dtype == object else None
    # Gymnasium does not know np.bool_
    if not isinstance(first, (bool, int, float, np.bool_, np.number)):
        return None
    try:
        return np.array([np.nan if x is None else float(x) for x in value])
    except (TypeError, ValueError, OverflowError):
        return None
