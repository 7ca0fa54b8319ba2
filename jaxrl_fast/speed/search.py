"""Go through settings that change speed; keep, one by one, each faster choice."""

from __future__ import annotations

import dataclasses
from collections.abc import Callable, Mapping
from typing import Any

from jaxrl_fast.doctor.quantities import gib
from jaxrl_fast.engine.prepared import Prepared
from jaxrl_fast.engine.tuned import CHOICES, SAME, Tuned, choices, describe_settings, with_settings
from jaxrl_fast.errors import ConfigError, UserError, one_line
from jaxrl_fast.speed.trials import LEAST, Measure, Trial

Log = Callable[[str], None]


@dataclasses.dataclass(frozen=True)
class TrialResult:
    """One choice. speed: times the best so far, None if it was left out; reason: why it was.

    same_numbers: as the defaults'.
    """

    settings: Mapping[str, Any]
    speed: float | None = None
    reason: str = ""
    same_numbers: bool = True

    def __str__(self) -> str:
        left_out = self.speed is None
        kind = "" if self.same_numbers else ", other numbers"
        fast = "" if left_out else f"{self.speed:.2f} times the speed{kind}"
        verdict = f"left out: {self.reason}" if left_out else fast
        return f"{describe_settings(self.settings) + ':':29} {verdict}"


def search(
    prepared: Prepared, log: Log, other_numbers: bool = False, measure: Measure = Measure()
) -> tuple[Tuned, list[TrialResult]]:
    """Return the best settings and all that were tried.

    Two runs are held at a time. other_numbers: take also what rounds or draws otherwise. Raises
    ConfigError if there is nothing to try or no room for two.
    """
    tried, found = [], choices(prepared, other_numbers)
    if not found:
        valid = f"one with a choice among {', '.join(CHOICES if other_numbers else SAME)}"
        run = f"{prepared.bound.name} on {prepared.env.spec.name}"
        raise ConfigError("run", run, f"{valid}: this run has none")
    check_room(prepared, prepared)
    best, settings, speed, same = measure.begin(prepared), {}, 1.0, True
    held = {best}
    try:
        for name, values in found.items():
            for value in values:
                tries = settings | {name: value}
                try:
                    run = with_settings(prepared, tries)
                    check_room(best.prepared, run)
                    trial = measure.begin(run, best)
                except UserError as error:  # too large, or environments that cannot be had so
                    tried.append(TrialResult(tries, reason=one_line(str(error))))
                    log(str(tried[-1]))
                    continue
                held.add(trial)
                tried.append(compare(measure, best, trial, tries, same, other_numbers))
                log(str(tried[-1]))
                left, faster = trial, tried[-1].speed
                if faster is not None and faster >= LEAST:
                    left, best, settings, speed = best, trial, tries, speed * faster
                    same = tried[-1].same_numbers
                held.remove(left)
                left.close()
    finally:
        for trial in held:
            trial.close()
    return Tuned(settings, round(speed, 3), same), tried


def check_room(one: Prepared, other: Prepared) -> None:
    """Raise ConfigError unless the device holds two runs at a time."""
    have, need = one.plan.have, one.plan.need + other.plan.need
    if have is not None and need > have:
        valid = f"at most the {gib(have)} of the device for two runs that take turns"
        raise ConfigError("memory", gib(need), valid)


def compare(
    measure: Measure, best: Trial, trial: Trial, tries: Mapping[str, Any], same: bool,
    other_numbers: bool,
) -> TrialResult:
    """Return a trial's result beside the best. same: the best has the defaults' numbers."""
    if not measure.equal(best, trial) and not other_numbers:
        return TrialResult(tries, reason="other numbers")
    faster = measure.ratio(best, trial)
    if not measure.equal(best, trial) and not other_numbers:
        return TrialResult(tries, reason="other numbers")
    return TrialResult(tries, faster, same_numbers=same and measure.equal(best, trial))
