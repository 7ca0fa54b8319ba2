"""time.png: where the wall time of a run went."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np

from jaxrl_fast.logs.plots import PALETTE, Rows, figure, legend_beside, save
from jaxrl_fast.logs.walltime import ACTORS

# Logged shares of a row's time, of actors and learner, in drawing order.
_SHARES = {
    "actors": {name: f"time_actors_{name}" for name in ACTORS},
    "learner": {
        "learning": "time_learner_updates", "evaluating": "time_learner_evaluates",
        "writing": "time_learner_writes",
        "compiling": "time_learner_compiles", "waiting": "time_learner_waits",
    },
}  # fmt: skip


def time_use(rows: Rows, path: str | Path) -> Path | None:
    """Draw the shares of the wall clock over environment steps: actors above, learner below.

    Small observations travel with the launch of the policy and count as inference.
    """
    rows = [row for row in rows if "time_learner_updates" in row]
    if not rows:
        return None
    canvas, first = figure()
    first.remove()
    steps = np.array([row["env_steps"] for row in rows], float)
    lasted = np.diff([row.get("wall_seconds") or 0.0 for row in rows], prepend=0.0).clip(1e-9)
    for i, (who, parts) in enumerate(_SHARES.items()):
        axes = canvas.add_subplot(2, 1, i + 1)
        shares = np.array([[_value(row.get(name)) for row in rows] for name in parts.values()])
        labels = [f"{label} {100 * share:.0f}%"
                  for label, share in zip(parts, np.average(shares, 1, lasted), strict=True)]
        colours = [PALETTE[j] if label != "waiting" else "#c9ccd3" for j, label in enumerate(parts)]
        axes.stackplot(steps, shares, labels=labels, colors=colours, step="pre")
        axes.set(ylim=(0, 1), ylabel=who, xlim=(steps[0], steps[-1]) if len(steps) > 1 else None)
        legend_beside(axes)
    axes.set_xlabel("environment steps")
    return save(canvas, Path(path))


def _value(found: Any) -> float:
    return float(found[0]) if found and found[0] is not None else 0.0
