"""Draw the measured limits of a device: the rate that a product of each size can reach."""

from __future__ import annotations

from pathlib import Path

import numpy as np

from jaxrl_fast.doctor.facts import Limits
from jaxrl_fast.doctor.quantities import si
from jaxrl_fast.logs import plots

SIDES = 2.0 ** np.arange(1, 13.01, 0.1)


def reachable(limits: Limits, sides: np.ndarray) -> dict[str, np.ndarray]:
    """Return {limit: FLOP/s} of products of square float32 matrices, by their sides."""
    flops, moved = 2 * sides**3, 3 * 4 * sides**2
    product = limits.products["float32"]
    return {
        f"starts: {si(limits.start, 's')} an instruction": flops / limits.start,
        f"memory: {si(limits.bandwidth, 'B/s')}": flops / moved * limits.bandwidth,
        f"arithmetic: {si(product, 'FLOP/s')}": np.full_like(sides, product),
    }


def draw(limits: Limits, path: str | Path) -> Path:
    """Draw the three limits and the lowest of them over the side of the matrices."""
    canvas, axes = plots.figure()
    found = reachable(limits, SIDES)
    for (name, rates), colour in zip(found.items(), plots.PALETTE, strict=False):
        axes.plot(SIDES, rates, color=colour, linewidth=1.2, linestyle="--", label=name)
    lowest = np.min(list(found.values()), axis=0)
    axes.plot(SIDES, lowest, color="#2b2d33", linewidth=2.4, label="the lowest of them")
    plots.style(axes, "side of square float32 matrices", "FLOP/s of their product",
                f"{limits.device}: reachable rates of products")  # fmt: skip
    axes.set_xscale("log", base=2)
    axes.set_yscale("log")
    axes.set_ylim(lowest[0], 4 * lowest.max())
    sides = 2 ** np.arange(1, 13)
    axes.set_xticks(sides, [str(side) for side in sides])
    axes.legend(frameon=False, fontsize=9)
    return plots.save(canvas, Path(path))
