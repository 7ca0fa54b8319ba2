"""Which command takes a flag, for the error about one that was typed after another command."""

from __future__ import annotations

import difflib

from jaxrl_fast.cli import args, doctor, experience, forecast, plan, report, runs, sweep, train
from jaxrl_fast.cli.ladder import command as ladder


def with_command(error: args.UnknownFlag) -> args.UnknownFlag:
    """Return `error`, with the commands that take the nearest flag if this one does not."""
    run = train.run_options(train.Plan("", "", []))
    commands = {
        "train": [*run, *train.OTHER, *args.OUTPUT, *args.DISTRIBUTED, args.IMPORT],
        "sweep": [*run, *sweep.OPTIONS], "plan": [*run, *plan.OPTIONS],
        "forecast": [*run, *forecast.OPTIONS], "compile": run, "eval": runs.EVAL, "plot": runs.PLOT,
        "compare": runs.COMPARE, "experience": experience.OPTIONS, "ladder pong": ladder.OPTIONS,
        "doctor": doctor.OPTIONS, "report": report.OPTIONS,
    }  # fmt: skip
    takers: dict[str, list[str]] = {}
    for command, options in commands.items():
        for flag in [o.flag for o in options] + [o.off for o in options if o.kind == "bool"]:
            takers.setdefault(flag, []).append(command)
    flags = list(dict.fromkeys([*error.known, *takers]))
    near = difflib.get_close_matches(error.flag, flags, n=1, cutoff=0.55)
    if not near or near[0] in error.known:
        return error
    names = " and ".join(f"`{args.PROG} {command}`" for command in takers[near[0]][:2])
    return args.UnknownFlag(error.prog, error.value, error.known, f"; {near[0]} is a flag of {names}")
