"""The commands of each flag, for the error about a flag typed after another command."""

from __future__ import annotations

import difflib
from collections.abc import Sequence

from jaxrl_fast.cli import args, train
from jaxrl_fast.cli.commands import COMMANDS
from jaxrl_fast.spelling.nearest import synonym

RESUMED = f"{args.PROG} train --resume"
KEPT = f"; a resumed run keeps its settings: `{args.PROG} train --config RUN` begins another run"


def flags_of(command: str) -> Sequence[args.Option]:
    """Return the flags of a command, without those of an algorithm or an environment."""
    known = COMMANDS[command]
    return train.options_of(command) if known.of_a_run else known.options


def with_command(error: args.UnknownFlag) -> args.UnknownFlag:
    """Return `error`, with the commands that take the nearest flag if this one does not."""
    takers: dict[str, list[str]] = {}
    for command in COMMANDS:
        options = flags_of(command)
        for flag in [o.flag for o in options] + [o.off for o in options if o.kind == "bool"]:
            takers.setdefault(flag, []).append(command)
    flags = list(dict.fromkeys([*error.known, *takers]))
    near = difflib.get_close_matches(error.flag, flags, n=1, cutoff=0.85)
    if error.prog == RESUMED and error.flag.startswith(("--algo.", "--env.")):
        return args.UnknownFlag(error.prog, error.value, error.known, KEPT)
    if not near or near[0] in error.known or synonym(error.flag, error.known):
        return error
    if error.prog == RESUMED and "train" in takers[near[0]]:
        return args.UnknownFlag(error.prog, error.value, error.known, KEPT)
    names = " and ".join(f"`{args.PROG} {command}`" for command in takers[near[0]][:2])
    return args.UnknownFlag(error.prog, error.value, error.known,
                            f"; {near[0]} is a flag of {names}")
