"""What environments report beside the reward: named numbers, in the log as their mean over steps and their value at ends.

A number that is not finite counts as not reported, so an environment may report one now and then; and so does one above
1e30, whose sum may not be finite. All of it is sums and counts, as every metric is: `NAME` over the steps, `NAME_end` over
those in which an episode ended.
"""

from __future__ import annotations

import dataclasses
import re
from collections.abc import Iterable, Mapping
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np

from jaxrl_fast.logs.rows import RESERVED
from jaxrl_fast.ops import sums
from jaxrl_fast.types import Mean

END = "_end"
LARGEST = 1e30  # of a number, such that float32 holds a sum of 1e8 of them
INSIDE, NO_STRING = "\0", "\1"  # in names from the host: between a dict's name and one in it; behind a key that is no string


def log_names(names: Iterable[str], taken: Iterable[str], known: Mapping[str, str] | None = None) -> dict[str, str]:
    """What each reported name is called in the log: itself, with letters, digits, `_` and `-`, unless that is `taken`.

    A name that the log has already, or whose `NAME_end` it has, gets `env_` before it. Names that need no change come
    first. `known` names, of rows before, stay what they are.
    """
    found = dict(known or {})
    used = {*RESERVED, *taken, *(own + end for own in found.values() for end in ("", END))}
    plain = {name: re.sub(r"[^\w\-]+", "_", name.rstrip(NO_STRING)) or "_" for name in names if name not in found}
    for name in sorted(plain, key=lambda name: (plain[name] != name, name)):
        own = plain[name]
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

    small = {name: jnp.abs(x) <= LARGEST for name, x in info.items()}  # NaN is not
    return {name: (mean(x, small[name]), mean(x, small[name] & done)) for name, x in info.items()}


def metrics(found: Mapping[str, tuple[Mean, Mean]], taken: Iterable[str], known: Mapping[str, str] | None = None):
    """{name in the log: Mean}, where `taken` are the other metrics. known: as `log_names` has it."""
    names = log_names(found, taken, known)
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
    """Sum reports over environments: [names, B] -> (total, count) [names, 2]. NaN, infinite and huge values are left out."""
    known = np.abs(values) <= LARGEST
    if known.all():  # as nearly always
        return np.stack([values.sum(1), np.full(len(values), float(values.shape[1]))], 1)
    return np.stack([np.where(known, values, 0).sum(1), known.sum(1)], 1)


def merged(parts: Iterable[Mapping[str, np.ndarray]]) -> dict[str, np.ndarray]:
    """The sums of several tallies."""
    found: dict[str, np.ndarray] = {}
    for part in parts:
        for name, row in part.items():
            found[name] = found[name] + row if name in found else row
    return found


def host_metrics(found: Mapping[str, np.ndarray], taken: Iterable[str], known: Mapping[str, str] | None = None):
    """`metrics` of a tally; an end that was never reported has no metric."""
    means = {name: (Mean(*np.float32(row[:2])), Mean(*np.float32(row[2:]))) for name, row in found.items()}
    return {name: mean for name, mean in metrics(means, taken, known).items() if mean.count or not name.endswith(END)}


NEVER = Mean(np.float32(0), np.float32(0))  # a mean over nothing


@dataclasses.dataclass
class Reported:
    """Metrics of what environments on the host report. A name is the same in every row; later rows have those of earlier ones."""

    names: dict[str, str] = dataclasses.field(default_factory=dict)  # {what they report: its metric}
    seen: list[str] = dataclasses.field(default_factory=list)  # metrics so far

    def metrics(self, tallies: Iterable[Mapping[str, np.ndarray]], taken: Iterable[str]) -> dict[str, Mean]:
        """Return the metrics of some iterations; those that nothing was reported for are means over nothing."""
        found = merged(tallies)
        self.names = log_names(found, taken, self.names)
        means = host_metrics(found, taken, self.names)
        self.seen = [*dict.fromkeys([*self.seen, *means])]
        return dict.fromkeys(self.seen, NEVER) | means


def flat(info: Mapping[Any, Any], num_envs: int) -> dict[str, np.ndarray]:
    """The numbers of the `info` of a Gymnasium vector, {name: [B]}; `log_names` calls those of a dict in it `KEY_NAME`.

    Its masks are taken in: NaN where an environment does not report the number. What is no number is left out. Each
    name stands for one number: none is another's because both look alike in the log.
    """
    found: dict[str, np.ndarray] = {}
    masks = {f"_{key}" for key in info}
    masks = {key: info[key] for key in masks & info.keys() if _is_mask(info[key], num_envs)}
    for key, value in info.items():
        if key in masks:
            continue
        name, mask = key if isinstance(key, str) else f"{key}{NO_STRING}", masks.get(f"_{key}")
        if isinstance(value, dict):
            inner = {f"{name}{INSIDE}{within}": x for within, x in flat(value, num_envs).items()}
        else:
            x = _numbers(value, num_envs)
            inner = {} if x is None else {name: x}
        if mask is not None and not mask.all():
            inner = {name: np.where(mask, x, np.nan) for name, x in inner.items()}
        found |= inner
    return found


def _is_mask(value: Any, num_envs: int) -> bool:
    return isinstance(value, np.ndarray) and value.dtype == bool and value.shape == (num_envs,)


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
    except (TypeError, ValueError, OverflowError):
        return None
