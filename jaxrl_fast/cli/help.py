"""The overview of all commands, and a command's help: its first flags, or all, laid out by tyro."""

from __future__ import annotations

import dataclasses
import os
import shutil
import sys
import textwrap
from collections.abc import Sequence
from typing import Annotated, Any

from jaxrl_fast.cli.commands import COMMANDS, GROUPS
from jaxrl_fast.cli.option import ALL, Option

ROWS = 23  # lines of a screen of 24, below the prompt
COLUMN = 29  # where the text about a flag begins
LEAST_HELP = 20  # characters of a flag's help beside which its default stands
SEVERAL_OWN = 6  # flags of a command beside which the settings of a run are few
FIRST = ("total_steps", "seeds")  # settings of a run on every screen, and on one with room:
MORE = ("seed", "video_every", "eval_every",
        "algo.learning_rate", "algo.num_envs", "algo.discount")
LATER = ("pbt_every", "pbt_fraction", "eta", "wave", "preset")  # not on the first
_TITLES = {"run": "flags of a run", "command": "flags of the command",
           "algo": "flags of the algorithm"}


def heading(text: str, style: str = "1") -> str:
    """Return a text in a style, by default bold, on a terminal that has not NO_COLOR."""
    if sys.stdout.isatty() and not os.environ.get("NO_COLOR"):
        return f"\033[{style}m{text}\033[0m"
    return text


def overview(prog: str) -> str:
    """Return the commands, the first of a group with its name beside it, and what to begin with."""
    lines = [f"usage: {prog} COMMAND ...    (COMMAND --help: first flags; --help-all: all)"]
    for name, commands in GROUPS.items():
        titles = [heading(f"{name:6}"), *[" " * 6] * len(commands)]
        lines += [f"{title} {f'{typed} {command.takes}':26} {command.text}"
                  for title, (typed, command) in zip(titles, commands.items(), strict=False)]
    return "\n".join([*lines, "", f"Begin with:  {prog} train ppo CartPole-v1"])


def first_screen(prog: str, description: str, options: Sequence[Option]) -> str:
    """Return the help of a command: its own flags and the first of a run's, and what to try.

    A text longer than `ROWS` lines is cut: first the lines of flags, then the description.
    """
    whole = _screen(prog, description, options, True)
    if len(whole) <= ROWS:
        return "\n".join(whole)
    short = _screen(prog, description, options, False)
    if len(short) > ROWS:
        short = _screen(prog, description.partition("\n\n")[0], options, False)
    return "\n".join(short)


def _screen(prog: str, description: str, options: Sequence[Option], whole: bool) -> list[str]:
    room = min(shutil.get_terminal_size((80, 24)).columns, 100)
    usage, _, rest = description.partition("\n")
    if not usage.startswith(f"{prog} "):
        usage, rest = f"{prog} [flags]", description
    else:
        rest = rest.replace("\n\n", "\n")
    lines = [heading(f"usage: {usage}")]
    for text in rest.strip().splitlines():
        lines += textwrap.wrap(text, room, subsequent_indent="    ", break_on_hyphens=False) or [""]
    shown = _shown(options)
    for kind, title in _TITLES.items():
        found = [line for option in shown if _kind(option) == kind
                 for line in _flag(option, room, whole)]
        lines += ["", heading(title), *found] if found else []
    cut = len(shown) < len(options) or not whole
    more = [f"all {len(options)} flags:  {prog} {ALL}"] if cut else []
    return [*lines, "", *_tries(prog), *more]


def _tries(prog: str) -> list[str]:
    """Return commands to try, or none if `prog` names an algorithm, a run or another subject."""
    program, command, *words = prog.split()
    known = COMMANDS.get(command)
    if not known or (words and (words[0].startswith("-") or known.of_a_run)):
        return []
    return [f"try:  {program} {command} {typed}" for typed in known.tries]


def _kind(option: Option) -> str:
    return option.group or ("run" if option.panel else "command")


def _shown(options: Sequence[Option]) -> list[Option]:
    """Return the options of the first screen."""
    own = [o for o in options if _kind(o) == "command" and o.key not in LATER]
    first = FIRST if len(own) > SEVERAL_OWN else (*FIRST, *MORE)
    return [o for o in options if o in own or o.key in first]


def _flag(option: Option, room: int, whole: bool) -> list[str]:
    """Return a flag with its help, or with as much of it as fits one line."""
    flag = option.flag
    if option.kind != "bool":
        flag = f"{option.flag} {option.shown_metavar.partition('|')[0]}"
    start = f"  {flag:{COLUMN - 3}} "
    hint = f" ({option.shown_hint})"
    if whole:
        lines = textwrap.wrap(f"{start}{option.help}{hint}", room, break_on_hyphens=False,
                              subsequent_indent=" " * COLUMN)
    else:
        left = room - len(start) - len(hint)
        hint, left = (hint, left) if left >= LEAST_HELP else ("", left + len(hint))
        about = textwrap.shorten(option.help.partition(";")[0], left, placeholder=" ...")
        lines = [f"{start}{about}{hint}"]
    return [lines[0].replace(flag, heading(flag, "36"), 1), *lines[1:]]


def show_all(prog: str, description: str, options: Sequence[Option]) -> None:
    """Print every flag, laid out by tyro, and exit."""
    import tyro

    # a flag's name may be no identifier
    names = {o.key: f"option_{i}" for i, o in enumerate(options)}
    fields = [field_of(names[o.key], o) for o in options if not (o.group or o.panel)]
    for panel in dict.fromkeys(o.group or o.panel for o in options if o.group or o.panel):
        part = dataclasses.make_dataclass(panel, [field_of(names[o.key], o) for o in options
                                                  if panel == (o.group or o.panel)])
        fields.append((panel, part, dataclasses.field(default_factory=part)))
    shape = dataclasses.make_dataclass("Options", fields)
    about = "\n\n".join([description, *_tries(prog)])
    tyro.cli(shape, prog=prog, description=about, args=["--help"], config=())


def field_of(name: str, option: Option) -> tuple[str, Any, Any]:
    """Return a dataclass field for tyro: (name, annotated type, default)."""
    import tyro

    kinds = {"bool": bool, "ints": tuple[str, ...], "numbers": tuple[str, ...]}
    kind: Any = kinds.get(option.kind, str)
    default: Any = option.default if kind is bool else "" if kind is str else ("",)
    if option.kind == "append":
        kind, default = tyro.conf.UseAppendAction[tuple[str, ...]], ()
    arg = tyro.conf.arg(
        name=option.name.replace("_", "-"), prefix_name=bool(option.group),
        help=option.help or None, metavar=None if option.kind == "bool" else option.shown_metavar,
        help_behavior_hint=f"({option.shown_hint})",
    )  # fmt: skip
    return name, Annotated[kind, arg], dataclasses.field(default=default)
