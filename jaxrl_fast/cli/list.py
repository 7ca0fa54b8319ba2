"""`jaxrl-fast list`: the names of algorithms, environments, sinks, samplers and presets."""

from __future__ import annotations

import shutil
import textwrap
from collections.abc import Callable, Sequence

from jaxrl_fast.cli.args import IMPORT, PROG, heading, parse, positionals
from jaxrl_fast.errors import ConfigError, check_choice

FEW = 3  # names of a source or of presets that the short list shows


def show(argv: list[str]) -> None:
    """Print the names of one part, or the first ones of every part."""
    words, flags = positionals(argv, 2)
    about = (
        f"Names of algorithms, environments, logs, samplers and presets; all of one part: {PROG} "
        "list PART"
    )
    given = parse(f"{PROG} list [{'|'.join(PARTS)}]", about, [IMPORT], flags)
    if len(words) > 1:
        raise ConfigError("PART", " ".join(words), "given once")
    if words:
        check_choice("PART", words[0], PARTS)
    from jaxrl_fast.imports import import_user_module

    for module in given.get("import", ()):
        import_user_module(module)
    for part in words or PARTS:
        print(heading(part), *PARTS[part](bool(words)), sep="\n")
    if not words:
        print(f"all of a part:  {PROG} list {'|'.join(PARTS)}\nsettings of one:  {PROG} train ppo "
              "CartPole-v1 --help-all")


def _algorithms(whole: bool) -> list[str]:
    from jaxrl_fast.algorithms import ALGORITHMS

    if not whole:
        return [_side_by_side(ALGORITHMS.names())]
    return [f"  {name:8} {_first_line(cls)}" for name, cls in ALGORITHMS.items()]


def _environments(whole: bool) -> list[str]:
    from jaxrl_fast.envs import registry

    sources: dict[str, list[str]] = {}
    for name, entry in (registry.list_environments() | registry.list_families()).items():
        title = (
            entry.source if entry.installed else f"{entry.source}, not installed: {entry.install}"
        )
        sources.setdefault(title, []).append(name)
    return (
        [line for title, names in sources.items() for line in (f"  {title}", _some(names, whole))]
    )


def _of(kind: str) -> Callable[[bool], list[str]]:
    def lines(whole: bool) -> list[str]:
        from jaxrl_fast.logs.sinks import SINKS
        from jaxrl_fast.sweeps.samplers import SAMPLERS

        known = (
            {cls.form or name: cls for name, cls in (SINKS if kind == "logs" else SAMPLERS).items()}
        )
        return (
            [f"  {form:19} {_first_line(cls)}" for form, cls in known.items()] if whole
            else [_side_by_side([*known])]
        )

    return lines


def _presets(whole: bool) -> list[str]:
    from jaxrl_fast.algorithms import presets

    return [_some([found.name for found in presets.PRESETS], whole)]


PARTS = {
    "algorithms": _algorithms, "environments": _environments, "logs": _of("logs"),
    "samplers": _of("samplers"),
    "presets": _presets,
}  # fmt: skip


def _some(names: Sequence[str], whole: bool) -> str:
    """Return names, or the first ones and the number of the others."""
    more = len(names) - FEW
    return _side_by_side(names if whole or more < 2 else [*names[:FEW], f"and {more} more"])


def _side_by_side(names: Sequence[str]) -> str:
    """Return names as lines of a terminal's width."""
    width = shutil.get_terminal_size((100, 24)).columns
    return textwrap.fill(
        "  ".join(names), max(width, 40), initial_indent="    ", subsequent_indent="    ",
        break_on_hyphens=False, break_long_words=False,
    )  # fmt: skip


def _first_line(cls: type) -> str:
    return (cls.__doc__ or "").strip().partition("\n")[0]
