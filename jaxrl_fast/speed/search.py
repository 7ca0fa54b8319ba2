"""Go through settings that change speed; keep, one by one, what is faster with equal bits."""

from __future__ import annotations

import dataclasses
from collections.abc import Callable, Mapping
from typing import Any

from jaxrl_fast.doctor.quantities import gib
from jaxrl_fast.engine.backend import backend_of
from jaxrl_fast.engine.config import RunConfig
from jaxrl_fast.engine.prepared import Prepared
from jaxrl_fast.engine.tuned import SEARCHED, Tuned
from jaxrl_fast.errors import ConfigError
from jaxrl_fast.speed.trials import Trial, equal, ratio, with_settings

LEAST = 1.03  # times as fast: less is noise
Log = Callable[[str], None]


@dataclasses.dataclass(frozen=True)
class Tried:
    """One choice. equal: the same bits as the run's own. speed: times the best so far, if equal."""

    settings: Mapping[str, Any]
    equal: bool
    speed: float | None = None

    def __str__(self) -> str:
        chosen = ", ".join(f"{name} = {value}" for name, value in self.settings.items())
        verdict = f"{self.speed:.2f} times the speed" if self.equal else "other numbers: left out"
        return f"{chosen:24} {verdict}"


def choices(prepared: Prepared) -> dict[str, list[Any]]:
    """Return {setting: values to try} beside the run's own; a setting without any is left out."""
    config, algo, population = prepared.config, prepared.bound, prepared.population
    if not backend_of(prepared.env).one_program:
        return {}  # more actors begin other episodes, and are other numbers
    steps = 1 if config.offline else algo.num_steps
    own = [1] * (population.devices[0].platform == "gpu")  # elsewhere 1 is the default
    devices = len(population.devices) if population.size > 1 and not config.mesh else 1
    found = {
        "unroll": [n for n in (*own, 2, 4, 8, 16) if n <= steps and steps % n == 0 and steps > 1],
        "devices": [n for n in (1, 2, 4, 8, 16) if n < devices],
    }
    free = lambda name: getattr(config, name) == getattr(RunConfig, name)
    return {name: found[name] for name in SEARCHED if found[name] and free(name)}


def search(prepared: Prepared, log: Log) -> tuple[Tuned, list[Tried]]:
    """Return the best settings and all that were tried.

    Two runs are held at a time. Raises ConfigError if there is nothing to try or no room for two.
    """
    tried: list[Tried] = []
    found = choices(prepared)
    if not found:
        valid = f"one with a choice among {', '.join(SEARCHED)}: this run has none"
        raise ConfigError("run", f"{prepared.bound.name} on {prepared.env.spec.name}", valid)
    plan = prepared.plan
    if plan.have is not None and 2 * plan.need > plan.have:
        valid = f"at most half of the {gib(plan.have)} of the device: two runs take turns"
        raise ConfigError("memory", gib(plan.need), valid)
    best, settings, speed = Trial(prepared), {}, 1.0
    for name, values in found.items():
        for value in values:
            chosen = settings | {name: value}
            trial = Trial(with_settings(prepared, chosen), best.rows)
            faster = ratio(best, trial) if equal(best, trial) else None
            same = faster is not None and equal(best, trial)
            tried.append(Tried(chosen, same, faster if same else None))
            log(str(tried[-1]))
            if not same or faster < LEAST:
                trial.close()
                continue
            best.close()
            best, settings, speed = trial, chosen, speed * faster
    best.close()
    return Tuned(settings, round(speed, 3)), tried
