"""`jaxrl-fast completion`: the script by which a shell completes commands and flags."""

from __future__ import annotations

import dataclasses
import functools
import operator
from collections.abc import Sequence
from typing import Annotated, Any

from jaxrl_fast.cli.args import PROG, Option, field_of, parse, positionals
from jaxrl_fast.errors import check_choice, expected

SHELLS = {
    "bash": f"source <({PROG} completion bash)    # in ~/.bashrc",
    "zsh": f"source <({PROG} completion zsh)    # in ~/.zshrc, after compinit",
    "fish": f"{PROG} completion fish | source    # in ~/.config/fish/config.fish",
}


def completion(argv: list[str]) -> None:
    """Print the script of a shell."""
    names, flags = positionals(argv, 2)
    about = "Print a script that completes commands and flags.\n\n" + "\n".join(SHELLS.values())
    parse(f"{PROG} completion {'|'.join(SHELLS)}", about, (), flags)
    if len(names) != 1:
        raise expected("SHELL", f"given: {PROG} completion bash", " ".join(names) or "none")
    check_choice("SHELL", names[0], SHELLS)
    import tyro

    from jaxrl_fast.cli.other_flags import commands

    known = commands() | {"list": (), "new": (), "completion": ()}
    parts = (Annotated[_shape(name, known[name]), tyro.conf.subcommand(name)] for name in known if " " not in name)
    everything: Any = functools.reduce(operator.or_, parts)
    tyro.cli(everything, prog=PROG, args=["--tyro-print-completion", names[0]], config=())


def _shape(name: str, options: Sequence[Option]) -> Any:
    """Return a dataclass with a command's flags, for tyro."""
    flags = [field_of(f"option_{i}", option) for i, option in enumerate(options)]
    return dataclasses.make_dataclass(f"{name.title()}Command", flags)
