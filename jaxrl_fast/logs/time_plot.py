"""The plot of where the time of a run on host environments goes, from its log."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np

from jaxrl_fast.logs.plots import PALETTE, Rows, figure, legend_beside, save

# Logged shares of a row's time, of actors and learner, in drawing order.
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
    """Draw the shares of the wall clock over environment steps: actors above, learner below.

    Each side's shares sum to one; the legend has those of the whole run. Small observations travel
    with the launch of the policy and count as inference. Logs of older versions hold fewer parts.
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
