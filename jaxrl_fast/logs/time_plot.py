"""Where the time of a run with environments on the host went: one picture, from the rows of its log."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np

from jaxrl_fast.logs.plots import PALETTE, Rows, figure, legend_beside, save

# Shares of a row's time that are logged, for actors and learner, in the order in which they are drawn.
PARTS = {
    "actors": {
        "environments": "time_actors_environments", "transfer": "time_actors_transfer", "inference": "time_actors_inference",
        "waiting": "time_actors_waiting",
    },
    "learner": {
        "learning": "time_learner_updates", "evaluating": "time_learner_evaluates", "writing": "time_learner_writes",
        "compiling": "time_learner_compiles", "waiting": "time_learner_waits",
    },
}  # fmt: skip


def has_times(rows: Rows) -> bool:
    return any("time_learner_updates" in row for row in rows)


def time_use(rows: Rows, path: str | Path) -> Path:
    """Shares of the wall clock over environment steps: what the actors did above, what the learner did below.

    Each one's shares add up to one; numbers in the legend are of the whole run. Small observations are sent with the
    launch of what looks at them, and are part of inference. Logs of older versions hold fewer parts.
    """
    rows = [row for row in rows if "time_learner_updates" in row]
    canvas, first = figure()
    first.remove()
    steps = np.array([row["env_steps"] for row in rows], float)
    lasted = np.diff([row.get("wall_seconds") or 0.0 for row in rows], prepend=0.0).clip(1e-9)
    for i, (who, parts) in enumerate(PARTS.items()):
        axes = canvas.add_subplot(2, 1, i + 1)
        shares = np.array([[_value(row.get(name)) for row in rows] for name in parts.values()])
        labels = [f"{label} {100 * share:.0f}%" for label, share in zip(parts, np.average(shares, 1, lasted), strict=True)]
        colours = [PALETTE[j] if label != "waiting" else "#c9ccd3" for j, label in enumerate(parts)]
        axes.stackplot(steps, shares, labels=labels, colors=colours, step="pre")
        axes.set(ylim=(0, 1), ylabel=who, xlim=(steps[0], steps[-1]) if len(steps) > 1 else None)
        legend_beside(axes)
    axes.set_xlabel("environment steps")
    return save(canvas, Path(path))


def _value(found: Any) -> float:
    return float(found[0]) if found and found[0] is not None else 0.0
