"""A checkpoint's data beside its arrays: progress, members of lanes, scores of best agents."""

from __future__ import annotations

import dataclasses
import math
from collections.abc import Mapping
from typing import Any, NamedTuple

import jax
import numpy as np

from jaxrl_fast.engine.grid import Grid
from jaxrl_fast.files import forms
from jaxrl_fast.logs.reports import Reported
from jaxrl_fast.types import Mean

_WHO = {"lanes": [int], "settings": {"*": [forms.NUMBER]}, "lost": forms.LOST,
        "settings_of_config?": {"*": forms.ANY}}  # fmt: skip
_REACHED = [(type(None), {"env_steps": int, "eval_return": forms.NUMBER})]
FORMS = {  # per kind; older versions lack keys with a question mark
    "last": {"rows": int, "wall_seconds": forms.NUMBER, "reached": _REACHED,
             "train_seconds": forms.NUMBER,
             "train_steps": int, "env_steps?": int, "row_steps?": int, "iterations?": int,
             "part?": {"*": list},
             "seconds?": {"*": forms.NUMBER},
             "names?": {"*": str}, "reports?": [str], **_WHO},
    "best": {"best_rows": int, "best_score": forms.NUMBER,
             "best_scores?": (forms.SCORES, type(None)), **_WHO},
}  # fmt: skip


@dataclasses.dataclass
class Progress:
    """The progress of a run: in the metadata of `last`, and where a resume continues."""

    rows: int = 0  # finished log rows
    iterations: int = 0  # finished ones, with warm-up and a partial row
    # sums of iterations after the last row
    part: dict[str, Mean] = dataclasses.field(default_factory=dict)
    # seconds of earlier processes by activity
    seconds: dict[str, float] = dataclasses.field(default_factory=dict)
    train_seconds: float = 0.0  # of training, without the start of host environments
    train_steps: int = 0  # environment steps of all members in `train_seconds`
    # per member, where it reached the target return
    reached: list[Any] = dataclasses.field(default_factory=list)
    # metrics of host environments' reports
    reported: Reported = dataclasses.field(default_factory=Reported)

    def with_part(self, metrics: Mapping[str, Mean]) -> dict[str, Mean]:
        """Return a chunk's sums [rows], with the earlier part of its first row."""
        add = lambda name, mean: jax.tree.map(np.add, metrics.get(name, Mean(0, 0)), mean)
        return {**metrics, **{name: add(name, mean) for name, mean in self.part.items()}}

    def metadata(self) -> dict[str, Any]:
        return {
            "rows": self.rows, "iterations": self.iterations, "part": self.part,
            "reached": self.reached,
            "train_seconds": self.train_seconds, "train_steps": self.train_steps,
            "names": self.reported.names, "reports": self.reported.seen,
        }  # fmt: skip


@dataclasses.dataclass
class Best:
    """The agents of the best evaluation so far; `best`'s metadata holds all but the agents."""

    score: float = -math.inf  # mean over the members
    scores: np.ndarray | None = None  # of every member
    rows: int = -1
    agent: Any = None  # [lanes] on the device, until saved
    who: dict[str, Any] = dataclasses.field(default_factory=dict)  # `Lanes.who` at that time

    def metadata(self) -> dict[str, Any]:
        return {"best_rows": self.rows, "best_score": self.score, "best_scores": self.scores,
                **self.who}


class Saved(NamedTuple):
    """The content of a checkpoint `last`: the start of a resume."""

    number: int
    progress: Progress
    members: np.ndarray  # of each lane
    lost: dict[int, dict[str, Any]]
    settings: dict[str, np.ndarray]  # [members]
    env_steps: int | None  # of a member at the last row; None from an older version


def parse_metadata(number: int, meta: Mapping[str, Any], grid: Grid) -> Saved:
    """Read the metadata of `last`. grid: the run's; a new end moves neither rows nor warm-up."""
    rows = int(meta["rows"])
    progress = Progress(
        rows, int(meta.get("iterations", grid.warmup + rows * grid.row)),
        {name: Mean(*np.float32(mean)) for name, mean in meta.get("part", {}).items()},
        {name: float(x) for name, x in meta.get("seconds",
                                                {"train": meta["wall_seconds"]}).items()},
        float(meta["train_seconds"]), int(meta["train_steps"]), list(meta["reached"]),
        Reported(dict(meta.get("names", {})), list(meta.get("reports", ()))),
    )  # fmt: skip
    lost = {int(x["member"]): {k: x[k] for k in ("env_steps", "reason")} for x in meta["lost"]}
    settings = {name: np.asarray(values, np.float32) for name, values in meta["settings"].items()}
    return Saved(number, progress, np.asarray(meta["lanes"], np.int64), lost, settings,
                 meta.get("env_steps"))


def misfit_of_lanes(meta: Mapping[str, Any], members: int | None) -> str | None:
    """Return the reason why `meta` lacks values for some members, or None."""
    lanes = meta["lanes"]
    twice = len(set(lanes)) < len(lanes)
    if not lanes or twice or min(lanes) < 0 or (members is not None and max(lanes) >= members):
        return f"lanes are {lanes}" + (f" of {members} members" if members else "")
    lists = {name: meta.get(name) for name in ("reached", "best_scores")} | meta["settings"]
    short = [name for name, values in lists.items() if values is not None
             and len(values) < (members or max(lanes) + 1)]
    if not short:
        return None
    return f"{short[0]} has {len(lists[short[0]])} values, not one for each member"
