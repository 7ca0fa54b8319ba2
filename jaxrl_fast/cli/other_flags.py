"""Which command takes a flag, for the error about one that was typed after another command."""

from __future__ import annotations

import difflib

from jaxrl_fast.cli import experience, plan, runs, sweep, train
from jaxrl_fast.cli.args import DISTRIBUTED, IMPORT, OUTPUT, PROG, Option, UnknownFlag, option_of_field
from jaxrl_fast.cli.ladder import command as ladder
from jaxrl_fast.engine.config import RunConfig, by_group


def commands() -> dict[str, list[Option]]:
    """Return {command: its flags}, without those of algorithms and environments."""
    fields = [f for group in by_group(RunConfig).values() for f in group if f.metadata.get("flag", "") is not None]
    run = [*(option_of_field(f, f.default) for f in fields), IMPORT]
    return {
        "train": [*run, *train.OTHER, *OUTPUT, *DISTRIBUTED], "sweep": [*run, *sweep.OPTIONS], "plan": [*run, plan.COMPILE],
        "eval": [*runs.EVAL], "plot": [*runs.PLOT], "compare": [*runs.COMPARE], "experience": [*experience.OPTIONS],
        "ladder pong": [*ladder.OPTIONS],
    }  # fmt: skip


def with_command(error: UnknownFlag) -> UnknownFlag:
    """Return the error that names the commands with this flag, where they have the nearest one; else `error`."""
    takers: dict[str, list[str]] = {}
    for command, options in commands().items():
        for flag in {flag for o in options for flag in ((o.flag, o.off) if o.kind == "bool" else (o.flag,))}:
            takers.setdefault(flag, []).append(command)
    near = difflib.get_close_matches(error.flag, dict.fromkeys([*error.known, *takers]), n=1, cutoff=0.55)
    if not near or near[0] in error.known:
        return error
    names = " and ".join(f"`{PROG} {command}`" for command in takers[near[0]][:2])
    return UnknownFlag(error.prog, error.value, error.known, f"; {near[0]} is a flag of {names}")
