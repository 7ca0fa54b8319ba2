"""Samplers: the distributions of settings.

A new sampler is a class here and a line in `SAMPLERS`. A text names a sampler and its values:
"loguniform:1e-5,1e-2", "choice:32,64,128".
"""

from __future__ import annotations

import dataclasses
import math
from typing import Any, ClassVar

import numpy as np

from jaxrl_fast.errors import ConfigError, nearest
from jaxrl_fast.registry import Registry
from jaxrl_fast.values import literal, pieces, real


class Sampler:
    """Base class and protocol of samplers: the distribution of one setting.

    The text "KIND:A,B" of `--sample`, `jf.sweep` and `jf.PBT` makes `cls.parse(["A", "B"])`;
    `check` follows. A subclass writes `form` and `at`, and overrides others if they differ.

        at(u) -> value                  the quantile at u in [0, 1]
        draw(rng, size) -> [value]      independent values, numbers or texts; default: quantiles
        suggest(trial, name) -> value   an Optuna trial's value; default: a suggested quantile
        check()                         raises ConfigError for values that make no distribution
        parse(texts) -> sampler         by default every text is a number, an argument of the class

    Attributes:
        form: the text's form, for errors and help: "uniform:LOW,HIGH".
        continuous: a range of real numbers from `low` to `high`: PBT multiplies such settings and
            keeps them in it. Other samplers' values may be static, each a program of its own.
        values: every value, if there are a few; each is tried before a search begins.
    """

    form: ClassVar[str]
    continuous: ClassVar[bool] = False
    values: tuple[Any, ...] = ()

    @classmethod
    def parse(cls, texts: list[str]) -> Sampler:
        return cls(*(real(cls.form, text) for text in texts))

    def check(self) -> None:
        pass

    def at(self, u: Any) -> Any:
        raise NotImplementedError

    def draw(self, rng: np.random.Generator, size: int) -> list[Any]:
        return [self.at(u) for u in rng.random(size).tolist()]

    def suggest(self, trial: Any, name: str) -> Any:
        return self.at(trial.suggest_float(name, 0.0, 1.0))


@dataclasses.dataclass(frozen=True)
class Uniform(Sampler):
    """Real numbers of a range, uniform."""

    form: ClassVar[str] = "uniform:LOW,HIGH"
    continuous: ClassVar[bool] = True

    low: float
    high: float

    def check(self):
        if not (math.isfinite(self.low) and math.isfinite(self.high) and self.low < self.high):
            raise ConfigError("range", (self.low, self.high),
                              "two finite numbers, the lower one first")

    def at(self, u):
        return self.low + u * (self.high - self.low)

    def draw(self, rng, size):
        return self.at(rng.random(size)).tolist()

    def suggest(self, trial, name):
        return trial.suggest_float(name, self.low, self.high)


class LogUniform(Uniform):
    """Positive numbers with a uniform logarithm."""

    form: ClassVar[str] = "loguniform:LOW,HIGH"

    def check(self):
        super().check()
        if self.low <= 0:
            raise ConfigError("range", (self.low, self.high),
                              "two numbers above 0: a loguniform setting has a logarithm")

    def at(self, u):
        return self.low * (self.high / self.low) ** u

    def suggest(self, trial, name):
        return trial.suggest_float(name, self.low, self.high, log=True)


class Integer(Uniform):
    """Whole numbers from `low` to `high`, both included, uniform."""

    form: ClassVar[str] = "integer:LOW,HIGH"
    continuous: ClassVar[bool] = False

    def check(self):
        super().check()
        if self.low != int(self.low) or self.high != int(self.high):
            raise ConfigError("range", (self.low, self.high), "two whole numbers")

    def at(self, u):
        return min(int(self.low) + int(u * (self.high - self.low + 1)), int(self.high))

    def draw(self, rng, size):
        return rng.integers(int(self.low), int(self.high) + 1, size=size).tolist()

    def suggest(self, trial, name):
        return trial.suggest_int(name, int(self.low), int(self.high))


@dataclasses.dataclass(frozen=True)
class Choice(Sampler):
    """One of a few values: numbers, true, false, none or words."""

    form: ClassVar[str] = "choice:A,B,..."

    values: tuple[Any, ...]

    @classmethod
    def parse(cls, texts):
        return cls(tuple(literal(cls.form, text) for text in texts))

    def at(self, u):
        return self.values[min(int(u * len(self.values)), len(self.values) - 1)]

    def draw(self, rng, size):
        return [self.values[i] for i in rng.integers(len(self.values), size=size)]

    def suggest(self, trial, name):
        return trial.suggest_categorical(name, list(self.values))


def _check(name: str, cls: Any) -> None:
    if not (isinstance(cls, type) and issubclass(cls, Sampler)):
        raise ConfigError("sampler", cls, "a subclass of jaxrl_fast.sweeps.samplers.Sampler")


SAMPLERS: Registry[type[Sampler]] = Registry("sampler", "jaxrl_fast.samplers", {
    "uniform": Uniform, "loguniform": LogUniform, "integer": Integer, "choice": Choice,
}, _check)  # fmt: skip


def sampler_of(name: str, text: Any) -> Sampler:
    """Return the sampler of "KIND:VALUES" for the setting `name`.

    Raises ConfigError, with the valid forms, for a bad text.
    """
    kind, colon, rest = text.partition(":") if isinstance(text, str) else ("", "", "")
    if not colon or kind not in SAMPLERS:
        *forms, last = (cls.form for _, cls in SAMPLERS.items())
        near = nearest(kind, SAMPLERS.names()) if kind else ""
        raise ConfigError(name, text, f"{', '.join(forms)} or {last}{near}")
    cls = SAMPLERS.get(kind)
    try:
        sampler = cls.parse(pieces(name, rest))
        sampler.check()
    except (ConfigError, TypeError) as error:
        reason = f"; {error.valid}" if isinstance(error, ConfigError) else ""
        raise ConfigError(name, text, f"{cls.form}{reason}") from None
    return sampler
