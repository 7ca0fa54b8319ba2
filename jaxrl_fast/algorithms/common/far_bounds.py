"""A warning of actions whose bounds are far from a new policy's."""

from __future__ import annotations

import numpy as np

from jaxrl_fast.spaces import Box
from jaxrl_fast.types import EnvSpec

ONE_SIDE = 2.33  # standard deviations: 99% of a Gaussian's numbers are on one side


def far_bounds(spec: EnvSpec, std: float, remedy: str) -> list[str]:
    """Return a warning if clipping makes one number of nearly all first actions of some entry.

    std: deviation of the first actions around 0. remedy: for bounds on both sides.
    """
    space = spec.action
    if not isinstance(space, Box):
        return []
    low, high = space.bounds()
    far = np.argwhere((low < high) & ((low > ONE_SIDE * std) | (high < -ONE_SIDE * std)))
    if not len(far):
        return []
    at = tuple(far[0])
    where = f"action{list(map(int, at)) or ''}"
    bound = low[at] if low[at] > 0 else high[at]
    other = ("shift them in the environment (gymnasium.wrappers.TransformAction does it on the "
             "host)")
    return [f"{spec.name}: {where} is from {low[at]:g} to {high[at]:g}, and a new policy acts "
            f"around 0 with deviation {std:.2g}: clipped to {bound:g} nearly always, the actions "
            f"teach nothing. {remedy if space.bounded else other.capitalize()}"]
