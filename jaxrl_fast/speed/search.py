"""Go through settings that change speed; keep, one by one, what is faster with equal bits."""

from __future__ import annotations

import dataclasses
from collections.abc import Callable, Mapping
from typing import Any

from jaxrl_fast.doctor.quantities import gib
from jaxrl_fast.engine.prepared import Prepared
from jaxrl_fast.engine.tuned import CHOICES, Tuned, choices, chosen, with_settings
from jaxrl_fast.errors import ConfigError, UserError, one_line
from jaxrl_fast.speed.trials import LEAST, Trial, equal, ratio

Log = Callable[[str], None]


@dataclasses.dataclass(frozen=True)
class Tried:
    """One choice. speed: times the best so far, None if it was left out; reason: why it was."""

    settings: Mapping[str, Any]
    speed: float | None = None
    reason: str = ""

    def __str__(self) -> str:
        left_out = self.speed is None
        verdict = f"left out: {self.reason}" if left_out else f"{self.speed:.2f} times the speed"
        return f"{chosen(self.settings) + ':':29} {verdict}"


def search(prepared: Prepared, log: Log) -> tuple[Tuned, list[Tried]]:
    """Return the best settings and all that were tried.

    Two runs are held at a time. Raises ConfigError if there is nothing to try or no room for two.
    """
    tried: list[Tried] = []
    found = choices(prepared)
    if not found:
        valid = f"one with a choice among {', '.join(CHOICES)}: this run has none"
        raise ConfigError("run", f"{prepared.bound.name} on {prepared.env.spec.name}", valid)
    plan = prepared.plan
    if plan.have is not None and 2 * plan.need > plan.have:
        valid = f"at most half of the {gib(plan.have)} of the device: two runs take turns"
        raise ConfigError("memory", gib(plan.need), valid)
    best, settings, speed = Trial(prepared), {}, 1.0
    held = {best}
    try:
        for name, values in found.items():
            for value in values:
                tries = settings | {name: value}
                try:
                    trial = Trial(with_settings(prepared, tries), best)
                except UserError as error:  # too large, or environments that cannot be had so
                    tried.append(Tried(tries, reason=one_line(str(error))))
                    log(str(tried[-1]))
                    continue
                held.add(trial)
                faster = ratio(best, trial) if equal(best, trial) else None
                same = faster is not None and equal(best, trial)
                tried.append(Tried(tries, faster) if same else Tried(tries, reason="other numbers"))
                log(str(tried[-1]))
                left = trial
                if same and faster >= LEAST:
                    left, best, settings, speed = best, trial, tries, speed * faster
                held.remove(left)
                left.close()
    finally:
        for trial in held:
            trial.close()
    return Tuned(settings, round(speed, 3)), tried
