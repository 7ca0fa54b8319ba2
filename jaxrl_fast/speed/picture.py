"""Draw the trials of a search of tune-speed."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path

from jaxrl_fast.engine.tuned import describe_settings
from jaxrl_fast.logs import plots
from jaxrl_fast.speed.search import TrialResult


def draw(title: str, tried: Sequence[TrialResult], path: str | Path) -> Path:
    """Draw the speed of each choice beside the best before it; without a bar: left out."""
    canvas, axes = plots.figure()
    canvas.set_size_inches(7.2, 1.4 + 0.4 * len(tried))
    speeds = [one.speed or 0.0 for one in tried]
    texts = [plots.fold_text(one.reason or f"{one.speed:.2f}", 60) for one in tried]
    colours = [plots.PALETTE[0 if speed >= 1 else 1] for speed in speeds]
    plots.style(axes, "times the speed of the best before it", "", title)
    plots.bars(axes, [describe_settings(one.settings) for one in tried], speeds, texts, colours)
    axes.axvline(1.0, color="#2b2d33", linewidth=1, linestyle="--")
    axes.margins(x=0.12)
    return plots.save(canvas, Path(path))
