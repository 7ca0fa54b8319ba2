"""`jaxrl-fast list`: the names of algorithms, environments, sinks, samplers and presets."""

from __future__ import annotations

import shutil
import textwrap
from collections.abc import Sequence

from jaxrl_fast.cli.args import IMPORT, PROG, heading, parse


def show(argv: list[str]) -> None:
    """Print the algorithms, environments, log sinks, samplers and presets."""
    given = parse(f"{PROG} list", "Algorithms, environments that are installed, log sinks, samplers and presets.", [IMPORT], argv)
    from jaxrl_fast.algorithms import ALGORITHMS, presets
    from jaxrl_fast.envs import registry
    from jaxrl_fast.imports import import_user_module
    from jaxrl_fast.logs.sinks import SINKS
    from jaxrl_fast.sweeps.samplers import SAMPLERS

    for module in given.get("import", ()):
        import_user_module(module)
    print(heading("algorithms"))
    for name, cls in ALGORITHMS.items():
        print(f"  {name:8} {_first_line(cls)}")
    sources: dict[str, list[str]] = {}
    for name, entry in (registry.list_environments() | registry.list_families()).items():
        title = entry.source if entry.installed else f"{entry.source}, not installed: {entry.install}"
        sources.setdefault(title, []).append(name)
    print(heading("environments"))
    for title, names in sources.items():
        print(f"  {title}", _side_by_side(names), sep="\n")
    for title, known in (("log sinks: --log", SINKS), ("samplers: --sample", SAMPLERS)):
        print(heading(title))
        for name, cls in known.items():
            print(f"  {cls.form or name:19} {_first_line(cls)}")
    print(heading("presets"), _side_by_side([found.name for found in presets.PRESETS]), sep="\n")
    print(f"settings of one:  {PROG} train ppo CartPole-v1 --help")


def _side_by_side(names: Sequence[str]) -> str:
    """Return names as lines of a terminal's width."""
    width = shutil.get_terminal_size((100, 24)).columns
    return textwrap.fill(
        "  ".join(names), max(width, 40), initial_indent="    ", subsequent_indent="    ",
        break_on_hyphens=False, break_long_words=False,
    )  # fmt: skip


def _first_line(cls: type) -> str:
    return (cls.__doc__ or "").strip().partition("\n")[0]
