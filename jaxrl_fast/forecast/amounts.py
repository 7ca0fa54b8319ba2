"""Forecasts as values: ranges of seconds by part, bytes, joules and prices."""

from __future__ import annotations

import dataclasses
from collections.abc import Mapping


@dataclasses.dataclass(frozen=True)
class Range:
    """A number that is not known exactly."""

    low: float
    middle: float
    high: float

    def __add__(self, other: Range) -> Range:
        return Range(self.low + other.low, self.middle + other.middle, self.high + other.high)

    def __mul__(self, factor: float) -> Range:
        return Range(self.low * factor, self.middle * factor, self.high * factor)


def about(middle: float, spread: float = 1.0) -> Range:
    """Return the range from `middle` over `spread` to `middle` times `spread`."""
    return Range(middle / spread, middle, middle * spread)


def between(low: float, high: float) -> Range:
    """Return the range between two numbers, with their geometric mean in the middle."""
    return Range(low, (low * high) ** 0.5, high)


@dataclasses.dataclass(frozen=True)
class Forecast:
    """Time, memory, power and price of a whole run on one kind of device.

    parts: {activity: seconds}, with the activities of result.json and the start of the process.
    need, have: bytes of one device's memory, for programs (None: not known). watts: of the devices
    while the run lasts, None: not readable. price: of an hour of all devices together, None: not
    given. assumptions: sentences for the user.
    """

    device: str
    parts: Mapping[str, Range]
    need: int
    have: int | None
    steps_per_second: Range  # of all members, in training
    watts: float | None = None
    price: float | None = None
    assumptions: tuple[str, ...] = ()

    @property
    def seconds(self) -> Range:
        return sum(self.parts.values(), Range(0.0, 0.0, 0.0))

    @property
    def fits(self) -> bool:
        return self.have is None or self.need <= self.have

    @property
    def joules(self) -> Range | None:
        return None if self.watts is None else self.seconds * self.watts

    @property
    def cost(self) -> Range | None:
        return None if self.price is None else self.seconds * (self.price / 3600)
