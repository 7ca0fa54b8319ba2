"""Log rows: making one, and the rows of a run as curves and as a table.

A row is made once, complete, and never changed:

    measured = measure(env_steps, sums, settings)  means of members, and what is not finite
    measured = measured.without(lost)              no values for lost members
    row = measured.row(wall_seconds, rate, columns)  columns of an evaluation or a selection
    row = row.extended(columns)                    columns of a hook, or of an evaluation after it
"""

from __future__ import annotations

import math
import warnings
from collections.abc import Collection, Mapping, Sequence
from typing import Any, NamedTuple

import numpy as np

from jaxrl_fast.errors import ConfigError, expected
from jaxrl_fast.ops.aggregate import frame
from jaxrl_fast.tree import describe
from jaxrl_fast.types import Mean

FAULTS = "faults"  # among the sums: `rollout.faults`, outside of rows
UNTIMED = math.nan  # the speed of a row without a timed step
FIXED = {"env_steps": 0, "wall_seconds": 3, "steps_per_second": 3}  # {name: decimals}
# Beside an algorithm's metrics and `time_*`; a report of an environment gets another name.
RESERVED = (
    *FIXED, "episode_return", "episode_length", "eval_return", "eval_length", "eval_episodes",
    "policy_lag", "parent", "kept", "seed", "configuration",
)  # fmt: skip
SHOWN = ("episode_return", "eval_return")  # of a row's metrics, in its short form


class Row(NamedTuple):
    """One log row of a run with K members."""

    env_steps: int  # environment steps of one member since its start
    wall_seconds: float  # since the run's start
    steps_per_second: float  # of all members together
    # each [K]; NaN where a member has no value (it finished no episode)
    metrics: dict[str, np.ndarray]

    def extended(self, columns: Mapping[str, np.ndarray]) -> Row:
        """Return the row with more columns."""
        return self._replace(metrics=self.metrics | columns)

    def __repr__(self) -> str:
        named = ", ".join(f"{name}: {describe(self.metrics[name])}"
                          for name in SHOWN if name in self.metrics)
        return (f"Row(env_steps={self.env_steps:,}, {named or 'no episode'}; {len(self.metrics)} "
                "metrics)")


class Measured(NamedTuple):
    """A log row in the making: members' values."""

    env_steps: int
    metrics: dict[str, np.ndarray]
    faults: list[tuple[int, str]] = []  # (member, value that is not finite), likely cause first

    def without(self, lost: Collection[int]) -> Measured:
        if not lost:
            return self
        return self._replace(metrics={k: without(x, lost) for k, x in self.metrics.items()})

    def row(self, wall_seconds: float, rate: float, columns: Mapping[str, np.ndarray]) -> Row:
        return Row(self.env_steps, wall_seconds, rate, self.metrics | columns)


def with_columns(row: Row, columns: Any) -> Row:
    """Return a row with the columns {name: a number or [members]} that a hook returns, if any.

    A result that is no dict adds nothing. Raises ConfigError for a name that the row has or the
    library uses, and for other values.
    """
    if not isinstance(columns, Mapping):
        return row
    if not all(isinstance(name, str) and name for name in columns):
        raise expected("result of a hook", "None, or a dict of names and numbers",
                       repr(columns)[:100])
    members, found = next((len(x) for x in row.metrics.values()), 1), {}
    for name, value in columns.items():
        if name in row.metrics or name in RESERVED:
            raise ConfigError("column of a hook", name, "a name that the log rows do not have")
        try:
            found[name] = np.broadcast_to(np.asarray(value, np.float64), members).copy()
        except (TypeError, ValueError) as error:
            raise expected(f"column {name} of a hook", f"a number, or {members} numbers",
                           repr(value)[:100]) from error
    return row.extended(found)


class HookColumns:
    """Adds what hooks return to a row; wrong columns are left out, with one warning a hook."""

    def __init__(self):
        self.warned: set[int] = set()  # ids of hooks

    def extended(self, row: Row, hook: Any, result: Any) -> Row:
        try:
            return with_columns(row, result)
        except ConfigError as error:
            if id(hook) not in self.warned:
                warnings.warn(f"{error}; such columns are left out", stacklevel=2)
            self.warned.add(id(hook))
            return row


def without(values: np.ndarray, lost: Collection[int]) -> np.ndarray:
    """Return values [members] with NaN for lost members."""
    return np.where(np.isin(np.arange(len(values)), list(lost)), np.nan, values)


def measure(env_steps: int, sums: Mapping[str, Mean],
            settings: Mapping[str, np.ndarray]) -> Measured:
    """Divide sums by counts [members]; 0/0 is NaN. settings: selection's, which become columns."""
    sums = dict(sums)
    seen = sums.pop(FAULTS, Mean(np.zeros(1), np.zeros(1)))
    values, faults = {}, []
    for name, mean in sums.items():
        with np.errstate(invalid="ignore", divide="ignore"):
            values[name] = np.where(mean.count > 0, mean.total / mean.count, np.nan)
        bad = (mean.count > 0) & ~np.isfinite(values[name])
        faults += [(member, f"{name} is {values[name][member]}") for member in _where(bad)]
    # a return is not the result of a loss
    faults.sort(key=lambda fault: not fault[1].startswith("episode_return"))
    faults = [(m, "observations are not finite") for m in _where(seen.total > 0)] + faults
    faults += [(m, "actions are not finite") for m in _where(seen.count > 0)]  # may be a result
    return Measured(env_steps,
                    values | {name: chosen.copy() for name, chosen in settings.items()}, faults)


def _where(mask: np.ndarray) -> list[int]:
    return np.flatnonzero(mask).tolist()


def shown(row: Row) -> dict[str, Any]:
    """Return a row's returns in the form of `read_jsonl`, for a learning curve."""
    return {"env_steps": row.env_steps,
            **{name: row.metrics[name] for name in SHOWN if name in row.metrics}}


def read_row(entry: Mapping[str, Any]) -> Row:
    """Return the logged row of a row of `read_jsonl`; null is NaN."""
    values = lambda x: np.array([np.nan if value is None else value for value in x], float)
    metrics = {name: values(x) for name, x in entry.items() if name not in FIXED}
    fixed = (math.nan if entry[name] is None else entry[name] for name in FIXED)
    return Row(*fixed, metrics)


def rate_of(steps: float, seconds: float) -> float:
    """Return steps a second, or UNTIMED, as in the first rollout on the host."""
    return steps / seconds if steps and seconds else UNTIMED


def curve(history: Sequence[Row], members: int, metric: str) -> tuple[np.ndarray, np.ndarray]:
    """Return (env_steps [rows], values [rows, members]) of a metric, without empty rows."""
    rows = [r for r in history if np.isfinite(r.metrics.get(metric, np.nan)).any()]
    values = np.array([r.metrics[metric] for r in rows]).reshape(len(rows), members)
    return np.array([r.env_steps for r in rows], np.int64), values


def table(history: Sequence[Row], seeds: Sequence[int],
          settings: Mapping[str, Sequence[Any]]) -> Any:
    """Return a DataFrame, one row a log row and member. settings: {name: values [members]}."""
    own = lambda values, i: {name: x[i] for name, x in values.items()}
    return frame([
        {"env_steps": row.env_steps, "seed": seed, **own(settings, i),
         "wall_seconds": row.wall_seconds,
         "steps_per_second": row.steps_per_second, **own(row.metrics, i)}
        for row in history
        for i, seed in enumerate(seeds)
    ])  # fmt: skip
