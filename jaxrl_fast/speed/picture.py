"""Draw what a search of tune-speed tried."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path

from jaxrl_fast.logs import plots
from jaxrl_fast.speed.search import Tried


def draw(title: str, tried: Sequence[Tried], path: str | Path) -> Path:
    """Draw the speed of each choice beside the best before it; grey: other numbers, left out."""
    canvas, axes = plots.figure()
    canvas.set_size_inches(7.2, 1.4 + 0.4 * len(tried))
    for place, one in enumerate(tried):
        speed = one.speed or 0.0
        axes.barh(place, speed, color=plots.PALETTE[0 if speed >= 1 else 1], height=0.6)
        text = f" {speed:.2f}" if one.equal else " other numbers"
        axes.text(speed, place, text, va="center", fontsize=9, color="#2b2d33")
    names = [", ".join(f"{k} = {v}" for k, v in one.settings.items()) for one in tried]
    plots.style(axes, "times the speed of the best before it", "", title)
    axes.axvline(1.0, color="#2b2d33", linewidth=1, linestyle="--")
    axes.set_yticks(range(len(tried)), names)
    axes.invert_yaxis()
    axes.margins(x=0.12)
    return plots.save(canvas, Path(path))
