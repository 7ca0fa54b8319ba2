"""Finite values without meaning: a diverged run says so once a member, and goes on."""

from __future__ import annotations

import math
from collections.abc import Mapping

import numpy as np

MOST_RETURN = 1e3  # smaller returns give no bound on losses: unfinished episodes may pay more
MOST_LOSS = 1e6  # times the squared largest return: a squared value error is a few such squares
MOST_ENTROPY = 1e4  # nats of either sign; beyond any action space
MOST_PARAMETER = 1e8  # of a network's parameters


class Sanity:
    """The members' returns and entropies in the rows so far."""

    def __init__(self, members: int):
        self.returns = np.full(members, MOST_RETURN)  # the largest, of either sign
        self.entropy = np.zeros(members)  # the last positive one
        self.told: set[int] = set()

    def look(self, metrics: Mapping[str, np.ndarray]) -> dict[int, str]:
        """Return {member: fault} of members not named before. metrics: a row's, [members] each."""
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
        """Do the same for the largest parameter of each member, [members], NaN if unknown."""
        found = {
            int(m): f"the largest parameter is {largest[m]:.3g}"
            for m in np.flatnonzero(largest > MOST_PARAMETER)
            if int(m) not in self.told
        }
        self.told |= found.keys()
        return found

    def _senseless(self, name: str, value: float, member: int) -> bool:
        if name == "entropy":
            # Training separates logits step by step: entropy comes near zero, never to zero.
            return abs(value) > MOST_ENTROPY or (value == 0.0 and self.entropy[member] > 1e-6)
        return name.endswith("loss") and math.isfinite(value) and abs(value) > MOST_LOSS * self.returns[member] ** 2
