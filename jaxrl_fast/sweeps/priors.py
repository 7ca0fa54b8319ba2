"""What settings are drawn from: `uniform:0.95,0.999`, `loguniform:1e-5,1e-2`, `choice:32,64,128`, `integer:1,8`."""

from __future__ import annotations

import dataclasses
import math
from typing import Any

import numpy as np

from jaxrl_fast.errors import ConfigError, nearest
from jaxrl_fast.values import literal, real

KINDS = ("uniform", "loguniform", "integer", "choice")


@dataclasses.dataclass(frozen=True)
class Prior:
    """A distribution of one setting. `choices` for "choice", else a range [low, high]."""

    kind: str
    low: float = math.nan
    high: float = math.nan
    choices: tuple[Any, ...] = ()

    @property
    def continuous(self) -> bool:
        return self.kind in ("uniform", "loguniform")

    def at(self, u: Any) -> Any:
        """The quantile at u in [0, 1], of a continuous one; NumPy or JAX arrays."""
        if self.kind == "uniform":
            return self.low + u * (self.high - self.low)
        return self.low * (self.high / self.low) ** u

    def draw(self, rng: np.random.Generator, size: int) -> list[Any]:
        """`size` independent values, as Python numbers (or whatever the choices are)."""
        if self.kind == "choice":
            return [self.choices[i] for i in rng.integers(len(self.choices), size=size)]
        if self.kind == "integer":
            return rng.integers(int(self.low), int(self.high) + 1, size=size).tolist()
        return self.at(rng.random(size)).tolist()


def parse_prior(name: str, text: Any) -> Prior:
    """`text` is "KIND:VALUES"; ConfigError that names the setting where it is none."""
    valid = "uniform:LOW,HIGH, loguniform:LOW,HIGH, integer:LOW,HIGH or choice:A,B,..."
    kind, colon, rest = text.partition(":") if isinstance(text, str) else ("", "", "")
    if not colon or kind not in KINDS:
        raise ConfigError(name, text, f"{valid}{nearest(kind, KINDS) if kind else ''}")
    parts = [part.strip() for part in rest.split(",")]
    if not all(parts):
        raise ConfigError(name, text, "values between the commas, none of them empty")
    if kind == "choice":
        return Prior(kind, choices=tuple(literal(name, part) for part in parts))
    try:
        low, high = (real(name, part) for part in parts)
    except ValueError:
        raise ConfigError(name, text, valid) from None
    if not (math.isfinite(low) and math.isfinite(high) and low < high):
        raise ConfigError(name, text, "two finite numbers, the lower one first")
    if kind == "loguniform" and low <= 0:
        raise ConfigError(name, text, "two numbers above 0: a loguniform setting has a logarithm")
    if kind == "integer" and (low != int(low) or high != int(high)):
        raise ConfigError(name, text, "two whole numbers")
    return Prior(kind, low, high)
