"""`jaxrl-fast forecast`: time, memory, energy and money of a run, before it runs."""

from __future__ import annotations

import json
import sys
from typing import Any

import jax

from jaxrl_fast import runtime
from jaxrl_fast.cli.args import BUSY, Option
from jaxrl_fast.cli.train import Plan, resolve
from jaxrl_fast.doctor import machine, ready
from jaxrl_fast.engine.prepared import prepare
from jaxrl_fast.errors import ConfigError
from jaxrl_fast.forecast import elsewhere, here, rent, report, sheets
from jaxrl_fast.forecast.amounts import Forecast
from jaxrl_fast.runs.train import at_start

OPTIONS = (
    Option("price_per_hour", "word", help="price of an hour of the machine", metavar="PRICE",
           hint="default: no money"),
    Option("on", "word", help="a device that is not here: " + ", ".join(sheets.SHEETS),
           metavar="DEVICE[-N]", hint="default: this machine"),
    Option("rent", "word", help="devices with your prices of an hour: here=0.4,h100=2.5,v5e-8",
           metavar="DEVICE[=PRICE],...", hint="default: none"),
    Option("seconds", "float", 5.0, "seconds of training to measure", limits=(0.5, 600)),
    BUSY,
    Option("json", "bool", False, "print one JSON object"),
    Option("picture", "picture", help="draw the forecast into this file"),
)  # fmt: skip


def tell(plan: Plan, given: dict[str, Any]) -> None:
    """Print the forecast of the run that `train` would start with these flags."""
    wanted, seconds = offers(given), given.get("seconds", 5.0)
    measured = any(one.sheet is None for one in wanted)
    before = machine.examine() if measured and not given.get("busy") else None
    algo, env, config = resolve(plan, given)
    config = at_start(config)
    prepared = prepare(algo, env, config, outline=True)
    title = f"{algo.name} on {plan.environment or env.spec.name}, {steps(prepared)}"

    def measure(price: float | None) -> Forecast:
        from jaxrl_fast.forecast.calibrate import calibrate

        if before:
            ready.check_idle(before, jax.default_backend())
        ready.check_cache(runtime.enable_compile_cache())
        prepared.plan.check()
        start = here.process_age()
        print(f"training for about {seconds:g} s to measure", file=sys.stderr)
        return here.forecast(prepared, calibrate(algo, env, config, seconds), price, start)

    there = lambda x: elsewhere.forecast(prepared, x.sheet, x.count, x.price)
    found = rent.rank([measure(x.price) if x.sheet is None else there(x) for x in wanted])
    if given.get("json"):
        print(json.dumps(report.as_json(title, found), indent=1))
    else:
        print(report.table(title, found) if "rent" in given else report.text(title, found[0]))
        if "rent" in given:
            print("prices are yours; assumptions: jaxrl-fast forecast ALGO ENV --on DEVICE")
    if "picture" in given:
        print(f"picture: {report.draw(title, found, given['picture'])}", file=sys.stderr)


def offers(given: dict[str, Any]) -> list[rent.Offer]:
    """Return the devices of the flags; by default this machine."""
    price = given.get("price_per_hour")
    price = None if price is None else rent.check_price("--price-per-hour", price)
    if "rent" not in given:
        sheet, count = sheets.device("--on", given["on"]) if "on" in given else (None, 1)
        return [rent.Offer(given.get("on", rent.HERE), sheet, count, price)]
    for name in ("on", "price_per_hour"):
        if name in given:
            flag = "--" + name.replace("_", "-")
            valid = "left out with --rent, which names devices and prices: h100=2.5,a100"
            raise ConfigError(flag, given[name], valid)
    return rent.offers("--rent", given["rent"])


def steps(prepared: Any) -> str:
    """Return the run's size in words."""
    config, grid = prepared.config, prepared.grid
    what = "updates" if config.offline else "steps"
    each = f"{grid.env_steps(grid.rows):,} {what}"
    return each if config.members == 1 else f"{config.members} members of {each}"
