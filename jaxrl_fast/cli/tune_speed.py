"""`jaxrl-fast tune-speed`: search settings that change speed alone; keep the best."""

from __future__ import annotations

import dataclasses
from typing import Any

import jax

from jaxrl_fast import runtime
from jaxrl_fast.cli.args import BUSY, Option
from jaxrl_fast.cli.train import Plan, resolve
from jaxrl_fast.doctor import machine, ready
from jaxrl_fast.engine import tuned
from jaxrl_fast.engine.prepared import prepare
from jaxrl_fast.errors import ConfigError
from jaxrl_fast.runs.train import at_start

OPTIONS = (
    BUSY,
    Option("other_numbers", "bool", False,
           "also take choices with other rounding or draws: other numbers, the same learning"),
    Option("picture", "picture", help="draw the trials into this file"),
)


def tune(plan: Plan, given: dict[str, Any], **how: Any) -> None:
    """Try settings of the run that `train` would start; later runs take the best.

    how: `measure` of `search`.
    """
    before = None if given.get("busy") else machine.examine()
    algo, env, config = resolve(plan, given)
    prepared = prepare(algo, env, at_start(dataclasses.replace(config, tuned=False)))
    folder = runtime.enable_compile_cache()
    if folder is None:
        valid = "a folder or unset: tune-speed keeps its result beside the compile cache"
        raise ConfigError("JAXRL_FAST_CACHE", "off", valid)
    ready.check_cache(folder)
    tuned.name_of(prepared)  # refuses a run that cannot be found again
    if before:
        ready.check_idle(before, jax.default_backend())
    from jaxrl_fast.speed.picture import draw
    from jaxrl_fast.speed.search import search

    title = f"{algo.name} on {plan.environment or env.spec.name}"
    print(f"{title}: {plan.source}", flush=True)
    log = lambda text: print(f"  {text}", flush=True)
    found, tried = search(prepared, log, given.get("other_numbers", False), **how)
    if "picture" in given:
        draw(title, tried, given["picture"])
    if not found.settings:
        tuned.forget(prepared)
        print(f"none of {len(tried)} choices is faster: runs keep the defaults")
        return
    print(f"{found}\nkept in {tuned.keep(prepared, found)}: new runs of this program take it")
