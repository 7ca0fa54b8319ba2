"""`jaxrl-fast list`: the names of algorithms, environments, sinks, samplers and presets."""

from __future__ import annotations

import shutil
import textwrap
from collections.abc import Callable, Iterable, Sequence

from jaxrl_fast.cli.args import IMPORT, PROG, read_arguments
from jaxrl_fast.cli.help import heading
from jaxrl_fast.errors import check_choice

OPTIONS = (IMPORT,)
FEW = 3  # names of a source or of presets that the short list shows
MARGIN = 14  # characters of a title


def show(argv: list[str]) -> None:
    """Print the names of one part, or the first ones of every part."""
    about = f"List the first names of each part, or all of one: PART is {', '.join(PARTS)}."
    words, given = read_arguments("list", about, argv)
    if words:
        check_choice("PART", words[0], PARTS)
    from jaxrl_fast.imports import import_user_module

    for module in given.get("import", ()):
        import_user_module(module)
    if words:
        print(heading(words[0]), *PARTS[words[0]](), sep="\n")
    else:
        print(*_overview(), sep="\n")


def _overview() -> list[str]:
    """Return the first names of every part; with a prompt, they fit a screen of 24 lines."""
    from jaxrl_fast.algorithms import ALGORITHMS

    sources = []
    for (source, install), names in _by_source().items():
        first = [f"not installed: {install}"] if install else _few(names)
        sources.append(_fill(first, f"  {source:{MARGIN - 2}}"))
    return [
        _row("algorithms", ALGORITHMS.names()), heading("environments"), *sources,
        _row("logs", _forms("logs")), _row("samplers", _forms("samplers")),
        _row("presets", _few(_preset_names())), "",
        f"All of a part:    {PROG} list {'|'.join(PARTS)}",
        f"Settings of one:  {PROG} train ppo CartPole-v1 --help",
    ]  # fmt: skip


def _by_source() -> dict[tuple[str, str], list[str]]:
    """Return {(source, the line that installs it, "" if installed): its environments}."""
    from jaxrl_fast.envs import registry

    found: dict[tuple[str, str], list[str]] = {}
    for name, entry in (registry.list_environments() | registry.list_families()).items():
        found.setdefault((entry.source, "" if entry.installed else entry.install), []).append(name)
    return found


def _few(names: Sequence[str]) -> list[str]:
    more = len(names) - FEW
    return [*names] if more < 2 else [*names[:FEW], f"and {more} more"]


def _algorithms() -> list[str]:
    from jaxrl_fast.algorithms import ALGORITHMS

    return [_line(f"  {name:8} {_first_line(cls)}") for name, cls in ALGORITHMS.items()]


def _environments() -> list[str]:
    lines = []
    for (source, install), names in _by_source().items():
        title = f"  {source}, not installed: {install}" if install else f"  {source}"
        lines += [title, _fill(names, "    ")]
    return lines


def _kinds(part: str) -> dict[str, type]:
    """Return {form on a command line: class} of logs or samplers."""
    from jaxrl_fast.logs.sinks import SINKS
    from jaxrl_fast.sweeps.samplers import SAMPLERS

    known = SINKS if part == "logs" else SAMPLERS
    return {cls.form or name: cls for name, cls in known.items()}


def _forms(part: str) -> list[str]:
    return [*_kinds(part)]


def _explained(part: str) -> Callable[[], list[str]]:
    return lambda: [_line(f"  {form:19} {_first_line(cls)}") for form, cls in _kinds(part).items()]


def _preset_names() -> list[str]:
    from jaxrl_fast.algorithms import presets

    return [found.name for found in presets.PRESETS]


PARTS: dict[str, Callable[[], list[str]]] = {
    "algorithms": _algorithms, "environments": _environments, "logs": _explained("logs"),
    "samplers": _explained("samplers"), "presets": lambda: [_fill(_preset_names(), "    ")],
}  # fmt: skip


def _row(title: str, names: Iterable[str]) -> str:
    """Return a part's title with names beside it."""
    return _fill(names, f"{title:{MARGIN}}").replace(title, heading(title), 1)


def _fill(names: Iterable[str], start: str) -> str:
    """Return names as lines of a terminal's width."""
    width, nowhere = shutil.get_terminal_size((80, 24)).columns, "\0"
    text = textwrap.fill(
        "  ".join(name.replace(" ", nowhere) for name in names), max(width, 40),
        initial_indent=start, subsequent_indent=" " * len(start), break_on_hyphens=False,
        break_long_words=False,
    )  # fmt: skip
    return text.replace(nowhere, " ")


def _line(text: str) -> str:
    """Return a line that a terminal does not break; whole without a terminal."""
    width = shutil.get_terminal_size((len(text), 24)).columns
    return text if len(text) <= width else text[: width - 4].rpartition(" ")[0] + " ..."


def _first_line(cls: type) -> str:
    return (cls.__doc__ or "").strip().partition("\n")[0]
