"""Numbers that are finite and make no sense: a run that has diverged says so once for each member, and goes on."""

from __future__ import annotations

import math
from collections.abc import Mapping

import numpy as np

MOST_RETURN = 1e3  # returns below it say nothing of how large a loss may be: episodes that have not ended may pay more
MOST_LOSS = 1e6  # times the square of the largest return: a squared error of values is at most a few such squares
MOST_ENTROPY = 1e4  # nats of either sign; no action space has so many
MOST_PARAMETER = 1e8  # of a network's parameters


class Sanity:
    """Returns and entropies that the rows of each of `members` have shown so far."""

    def __init__(self, members: int):
        self.returns = np.full(members, MOST_RETURN)  # the largest, of either sign
        self.entropy = np.zeros(members)  # the last one, while it is positive
        self.told: set[int] = set()

    def look(self, metrics: Mapping[str, np.ndarray]) -> dict[int, str]:
        """Return {member: what makes no sense} for members that have not been named before. metrics: a row's, each [members]."""
        for name in ("episode_return", "eval_return"):
            self.returns = np.fmax(self.returns, np.abs(metrics.get(name, self.returns)))
        found: dict[int, str] = {}
        for name, values in metrics.items():
            for member, value in enumerate(values):
                if member not in self.told and self._senseless(name, float(value), member):
                    found.setdefault(member, f"{name} is {value:.3g}")
        entropy = metrics.get("entropy", self.entropy)
        self.entropy = np.where(entropy > 0, entropy, self.entropy)
        self.told |= found.keys()
        return found

    def look_at_parameters(self, largest: np.ndarray) -> dict[int, str]:
        """Like `look`, for the largest parameter of each member: [members], NaN where it is not known."""
        found = {
            int(m): f"the largest parameter is {largest[m]:.3g}"
            for m in np.flatnonzero(largest > MOST_PARAMETER)
            if int(m) not in self.told
        }
        self.told |= found.keys()
        return found

    def _senseless(self, name: str, value: float, member: int) -> bool:
        if name == "entropy":
            # Training moves logits apart step by step: the entropy comes near zero, and never to zero.
            return abs(value) > MOST_ENTROPY or (value == 0.0 and self.entropy[member] > 1e-6)
        return name.endswith("loss") and math.isfinite(value) and abs(value) > MOST_LOSS * self.returns[member] ** 2
