"""Reading the log of a run directory, with a warning about rows that are missing."""

from __future__ import annotations

import contextlib
import math
import warnings
from collections.abc import Iterable
from pathlib import Path
from typing import Any, NamedTuple

from jaxrl_fast.logs.jsonl import read_jsonl
from jaxrl_fast.runs.checkpoints.errors import DamagedError
from jaxrl_fast.runs.checkpoints.store import Checkpoints
from jaxrl_fast.runs.rundir import SEED, RunDir


def read_log(path: Path) -> list[dict[str, Any]]:
    """Return the rows of a run's metrics.jsonl; warns if it is shorter than the checkpoint."""
    rundir, found = RunDir(path), None
    if not rundir.in_turn:
        found = _saved(path)
    elif (path / "result.json").is_file():  # its log is written from those of its seeds
        ends = [saved for folder in path.glob(f"{SEED}*") if (saved := _saved(folder))]
        found = max(ends, key=lambda saved: saved.env_steps, default=None)
    # after the checkpoint: a run that goes on logs its rows first
    rows = read_jsonl(rundir.metrics) if rundir.metrics.is_file() else []
    lacks = missing_rows([row["env_steps"] for row in rows], *found) if found else 0
    if lacks:
        warnings.warn(describe_holes(rundir.metrics, lacks, *found[:2]), stacklevel=3)
    return rows


class _Logged(NamedTuple):
    """The log rows before a checkpoint; row_steps: their spacing, 0 in older versions."""

    rows: int
    env_steps: int
    row_steps: int


def _saved(path: Path) -> _Logged | None:
    """Return the log rows of a run's newest checkpoint; None without their numbers."""
    with Checkpoints(RunDir(path).checkpoints, read_only=True) as checkpoints:
        for number in checkpoints.numbers("last"):
            with contextlib.suppress(DamagedError):
                meta = checkpoints.meta("last", number)
                if "env_steps" not in meta:
                    return None
                return _Logged(meta["rows"], meta["env_steps"], meta.get("row_steps", 0))
    return None


def missing_rows(logged: Iterable[int], rows: int, env_steps: int, row_steps: int = 0) -> int:
    """Return how many of `rows` equally spaced rows, the last at `env_steps`, are not logged.

    logged: env_steps of the rows that are there; one more before them is the warm-up's.
    row_steps: their spacing if known; rows of another one, before a resume, are passed over.
    """
    there = {steps for steps in logged if steps <= env_steps}
    first = env_steps - (rows - 1) * row_steps
    if row_steps and not any((env_steps - steps) % row_steps for steps in there if steps >= first):
        return rows - sum(steps >= first for steps in there)
    spacing = math.gcd(*(env_steps - steps for steps in there))
    return max(0, rows - sum(steps > env_steps - rows * spacing for steps in there)
               if spacing else rows - len(there))


def describe_holes(file: Path, lacks: int, rows: int, env_steps: int, first: str = "") -> str:
    """Return a text about a log that lacks rows; first: where they begin."""
    return (f"{file} lacks {lacks:,} of the {rows:,} log rows before the checkpoint at "
            f"{env_steps:,} steps{first}: it was cut or damaged")
