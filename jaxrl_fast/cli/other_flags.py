"""The commands of each flag, for the error about a flag typed after another command."""

from __future__ import annotations

import difflib
from collections.abc import Sequence

from jaxrl_fast.cli import (
    args,
    bench,
    doctor,
    experience,
    export,
    forecast,
    plan,
    profile,
    push,
    report,
    runs,
    sweep,
    train,
)  # fmt: skip
from jaxrl_fast.cli import tune_speed as tune
from jaxrl_fast.cli.ladder import command as ladder


def commands() -> dict[str, Sequence[args.Option]]:
    """Return the flags of every command, without those of an algorithm or an environment."""
    run = train.run_options(train.Plan("", "", []))
    return {
        "train": [*run, *train.OTHER, *args.OUTPUT, *args.DISTRIBUTED, args.IMPORT],
        "sweep": [*run, *sweep.OPTIONS], "plan": [*run, *plan.OPTIONS],
        "forecast": [*run, *forecast.OPTIONS],
        "compile": run, "profile": [*run, *profile.OPTIONS], "eval": runs.EVAL, "plot": runs.PLOT,
        "compare": runs.COMPARE, "report": report.OPTIONS, "export": export.OPTIONS,
        "push": push.OPTIONS,
        "experience": experience.OPTIONS, "ladder pong": ladder.OPTIONS,
        "doctor": doctor.OPTIONS, "bench": bench.OPTIONS,
        "tune-speed": [*run, *tune.OPTIONS],
    }  # fmt: skip


def with_command(error: args.UnknownFlag) -> args.UnknownFlag:
    """Return `error`, with the commands that take the nearest flag if this one does not."""
    takers: dict[str, list[str]] = {}
    for command, options in commands().items():
        for flag in [o.flag for o in options] + [o.off for o in options if o.kind == "bool"]:
            takers.setdefault(flag, []).append(command)
    flags = list(dict.fromkeys([*error.known, *takers]))
    near = difflib.get_close_matches(error.flag, flags, n=1, cutoff=0.85)
    if not near or near[0] in error.known:
        return error
    names = " and ".join(f"`{args.PROG} {command}`" for command in takers[near[0]][:2])
    return args.UnknownFlag(error.prog, error.value, error.known,
                            f"; {near[0]} is a flag of {names}")
