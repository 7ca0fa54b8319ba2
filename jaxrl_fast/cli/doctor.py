"""`jaxrl-fast doctor`: abilities and faults of this machine, with the lines to type."""

from __future__ import annotations

import os
import sys
import time
from collections.abc import Callable
from typing import Any

from jaxrl_fast import runtime
from jaxrl_fast.cli.args import Option, read_arguments
from jaxrl_fast.doctor import child

OPTIONS = (
    Option("json", "bool", False, "print one JSON object"),
    Option("picture", "picture", help="draw the device's limits into this file"),
)


def examine(argv: list[str], measure: Callable[..., dict[str, Any]] = child.examine) -> None:
    """Measure and print; exit code 1 if something is wrong."""
    about = "Versions, devices, flags, cache and measured limits of this machine, with advice."
    began, (_, given) = time.perf_counter(), read_arguments("doctor", about, argv)
    from jaxrl_fast.doctor import machine, report, software
    from jaxrl_fast.doctor.checks import advise
    from jaxrl_fast.doctor.facts import Facts
    from jaxrl_fast.logs.terminal import is_terminal

    if is_terminal(sys.stderr):
        print("measuring this machine takes about ten seconds", file=sys.stderr)
    facts = Facts(
        versions=software.versions(),
        machine=machine.examine(),  # before the child takes the cores
        unmet=software.find_unmet(),
        flags=software.flags(runtime.xla_flags()),
        variables=software.variables(os.environ),
        **measure(os.environ),
    )
    advice, seconds = advise(facts), time.perf_counter() - began
    if given.get("json"):
        print(report.as_json(facts, advice, seconds))
    else:
        report.print_report(facts, advice, seconds, sys.stdout)
    if "picture" in given and facts.limits:
        from jaxrl_fast.doctor.picture import draw

        print(f"picture: {draw(facts.limits, given['picture'])}", file=sys.stderr)
    if report.count_wrong(advice):
        raise SystemExit(1)
