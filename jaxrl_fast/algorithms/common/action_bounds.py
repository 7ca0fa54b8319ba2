"""Warn of action bounds that a new policy does not reach, or not for long."""

from __future__ import annotations

import numpy as np

from jaxrl_fast.spaces import Box
from jaxrl_fast.types import EnvSpec

ONE_SIDE = 2.33  # standard deviations: 99% of a Gaussian's numbers are on one side
WIDE = 20.0  # a mean moves by about 40 in 1,000,000 steps of PPO's defaults
SHIFT = ("Shift them in the environment: on the host, gymnasium.wrappers.TransformAction does it.")


def warnings_of_bounds(spec: EnvSpec, std: float, remedy: str) -> list[str]:
    """Return a warning if a new policy's actions miss the bounds, or nearly all of their range.

    Args:
      std: standard deviation of the first actions, around 0.
      remedy: a sentence for actions with bounds on both sides.
    """
    space = spec.action
    if not isinstance(space, Box):
        return []
    low, high = space.bounds()
    outside = (low < high) & ((low > ONE_SIDE * std) | (high < -ONE_SIDE * std))
    wide = (low < high) & space.bounded & (np.maximum(-low, high) > WIDE * max(std, 1.0))
    found = outside if outside.any() else wide
    if not found.any():
        return []
    at = tuple(np.argwhere(found)[0])
    entry = f"action{list(map(int, at)) or ''}"
    bound = low[at] if low[at] > 0 else high[at]
    effect = (f"Nearly all its actions are clipped to {bound:g}, so it cannot learn"
              if found is outside else "It learns actions far from 0 very slowly")
    return [f"{spec.name}: {entry} has bounds {low[at]:g} to {high[at]:g}, but a new policy acts "
            f"around 0 with a standard deviation of {std:.2g}. {effect}. "
            f"{remedy if space.bounded else SHIFT}"]
