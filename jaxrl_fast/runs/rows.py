"""What a log row holds: a row out of the sums of a chunk, and the rows of a run as curves and as a table."""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING, Any, NamedTuple

import jax
import numpy as np

from jaxrl_fast.engine.config import RunConfig
from jaxrl_fast.engine.sources import FAULTS
from jaxrl_fast.logs.sinks import Row
from jaxrl_fast.ops.aggregate import frame
from jaxrl_fast.types import Mean

if TYPE_CHECKING:
    from jaxrl_fast.runs.session import Session


class Made(NamedTuple):
    """A log row, and what in it is not finite."""

    row: Row
    faults: list[tuple[int, str]]  # (member, what is said of it), the likely cause first


def make_row(s: Session, index: int, metrics: Any, wall_seconds: float, rate: float) -> Made:
    """Make row `index` of its metrics, {name: Mean [lanes]}.

    Values are [members]; 0/0, a member without a finished episode, is NaN (null in the files).
    """
    metrics = dict(s.by_member(s.population.members(jax.device_get(metrics))))
    seen = metrics.pop(FAULTS, Mean(np.zeros(1), np.zeros(1)))
    values, faults = {}, [(m, "observations are not finite") for m in _where(seen.total > 0)]
    for name, mean in metrics.items():
        with np.errstate(invalid="ignore", divide="ignore"):
            values[name] = np.where(mean.count > 0, mean.total / mean.count, np.nan)
        bad = (mean.count > 0) & ~np.isfinite(values[name])
        faults += [(member, f"{name} is {values[name][member]}") for member in _where(bad)]
    faults += [(m, "actions are not finite") for m in _where(seen.count > 0)]  # what may come of another cause
    values |= {name: chosen.copy() for name, chosen in s.settings.items()}
    return Made(Row(s.grid.env_steps(index + 1), wall_seconds, rate, values), faults)


def _where(mask: np.ndarray) -> list[int]:
    """Members [members] of whom it is true."""
    return np.flatnonzero(mask).tolist()


def curve_of(history: Sequence[Row], config: RunConfig, metric: str) -> tuple[np.ndarray, np.ndarray]:
    """Return (env_steps [rows], values [rows, members]) of a metric: the rows in which any member has a value."""
    rows = [r for r in history if np.isfinite(r.metrics.get(metric, np.nan)).any()]
    values = np.array([r.metrics[metric] for r in rows]).reshape(len(rows), config.members)
    return np.array([r.env_steps for r in rows], np.int64), values


def frame_of(history: Sequence[Row], config: RunConfig) -> Any:
    """Return the rows as a pandas DataFrame, a row a log row and member."""
    seeds, own = config.member_seeds(), config.member_settings()
    return frame([
        {"env_steps": row.env_steps, "seed": seed, **{name: values[i] for name, values in own.items()},
         "wall_seconds": row.wall_seconds, "steps_per_second": row.steps_per_second,
         **{name: values[i] for name, values in row.metrics.items()}}
        for row in history
        for i, seed in enumerate(seeds)
    ])  # fmt: skip
