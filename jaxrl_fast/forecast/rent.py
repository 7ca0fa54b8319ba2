"""Forecasts of a run on several devices side by side, with the user's prices."""

from __future__ import annotations

import dataclasses
import math

from jaxrl_fast.errors import ConfigError
from jaxrl_fast.forecast.amounts import Forecast
from jaxrl_fast.forecast.sheets import Sheet, device
from jaxrl_fast.values import pieces, real

HERE = "here"


@dataclasses.dataclass(frozen=True)
class Offer:
    """Devices and the price of an hour of all of them; sheet None: this machine."""

    name: str
    sheet: Sheet | None
    count: int
    price: float | None


def offers(argument: str, text: str) -> list[Offer]:
    """Return the offers of `here=0.4,h100=2.5,v5e-8`; a price may be left out."""
    found = []
    for piece in pieces(argument, text):
        name, equals, price = piece.partition("=")
        sheet, count = (None, 1) if name == HERE else device(argument, name)
        value = check_price(f"{argument} {name}", price) if equals else None
        found.append(Offer(name, sheet, count, value))
    return found


def check_price(argument: str, text: str | float) -> float:
    """Return a price of an hour. Raises ConfigError for no number, a negative one or infinity."""
    value = real(argument, text) if isinstance(text, str) else text
    if not math.isfinite(value) or value < 0:
        raise ConfigError(argument, text, "the price of an hour, a number of at least 0")
    return value


def rank(found: list[Forecast]) -> list[Forecast]:
    """Return forecasts that fit first, then by cost if all have prices, else by time."""
    priced = all(one.price is not None for one in found)
    amount = lambda one: one.cost.middle if priced else one.seconds.middle
    return sorted(found, key=lambda one: (not one.fits, amount(one)))
