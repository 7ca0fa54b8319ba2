"""Warn of action bounds that a new policy does not reach."""

from __future__ import annotations

import numpy as np

from jaxrl_fast.spaces import Box
from jaxrl_fast.types import EnvSpec

ONE_SIDE = 2.33  # standard deviations: 99% of a Gaussian's numbers are on one side
SHIFT = ("Shift them in the environment: on the host, gymnasium.wrappers.TransformAction does it.")


def warnings_of_bounds(spec: EnvSpec, std: float, remedy: str) -> list[str]:
    """Return a warning if the bounds clip nearly all of a new policy's actions to one value.

    Args:
      std: standard deviation of the first actions, around 0.
      remedy: a sentence for actions with bounds on both sides.
    """
    space = spec.action
    if not isinstance(space, Box):
        return []
    low, high = space.bounds()
    far = np.argwhere((low < high) & ((low > ONE_SIDE * std) | (high < -ONE_SIDE * std)))
    if not len(far):
        return []
    at = tuple(far[0])
    entry = f"action{list(map(int, at)) or ''}"
    bound = low[at] if low[at] > 0 else high[at]
    return [f"{spec.name}: {entry} has bounds {low[at]:g} to {high[at]:g}, but a new policy acts "
            f"around 0 with a standard deviation of {std:.2g}. Nearly all its actions are clipped "
            f"to {bound:g}, so it cannot learn. {remedy if space.bounded else SHIFT}"]
