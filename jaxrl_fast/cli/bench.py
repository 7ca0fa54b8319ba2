"""`jaxrl-fast bench`: our programs beside each peer that is there, on this machine."""

from __future__ import annotations

import importlib.util
import os
from collections.abc import Callable
from pathlib import Path
from typing import Any

from jaxrl_fast.cli.args import BUSY, Option, read_arguments
from jaxrl_fast.errors import ConfigError, check_choice

OPTIONS = (
    Option("purejaxrl", "path", help="a checkout of PureJaxRL", metavar="DIR", hint="$PUREJAXRL"),
    Option("rejax", "path", help="a checkout of rejax", metavar="DIR", hint="$REJAX, the package"),
    Option("purejaxql", "path", help="a checkout of purejaxql", metavar="DIR", hint="$PUREJAXQL"),
    Option("turns", "int", 3, "measured runs of each program", limits=(1, 100)),
    Option("scale", "float", 1.0, "part of the steps of a turn", limits=(0.001, 100)),
    Option("json", "file", help="write a line of JSON for each comparison"),
    Option("picture", "picture", help="draw the ratios of speeds"),
    BUSY,
)  # fmt: skip
PATHS = ("purejaxrl", "rejax", "purejaxql")


def compare(argv: list[str]) -> None:
    """Let the programs of the named rows take turns; by default all rows."""
    from jaxrl_fast.bench import report
    from jaxrl_fast.bench.rows import ROWS, Options

    about = f"Compare the speeds of rows, by default all: {', '.join(ROWS)}."
    names, given = read_arguments("bench", about, argv)
    for name in names:
        check_choice("row", name, ROWS)
    paths = {name: checkout(name, given.get(name)) for name in PATHS}
    options = Options(paths, given.get("scale", 1.0))
    rows = {name: ROWS[name] for name in names or ROWS}
    keep = lambda found: report.write(found, Path(given["json"])) if "json" in given else None
    found = measure(rows, options, given.get("turns", 3), given.get("busy", False), keep)
    if not found:
        return
    print(f"\n{found[0]['machine']}; speed: ours over the peer's, the median of the turns")
    print(report.table(found))
    if "picture" in given and any(one["peer"] for one in found):
        report.draw(found, given["picture"])


def checkout(name: str, given: str | None) -> str | None:
    """Return the folder of a peer: of the flag, of the environment, or of an installed package."""
    place = given or os.environ.get(name.upper())
    if place is not None:
        if not Path(place).is_dir():
            raise ConfigError(f"--{name}", place, "the folder of a checkout")
        return place
    found = importlib.util.find_spec(name)
    places = found.submodule_search_locations if found else None
    return str(places[0]) if places else None


def measure(
    rows: dict[str, Any], options: Any, turns: int, busy: bool, keep: Callable[[list], None]
) -> list[dict[str, Any]]:
    """Return the lines of all rows. keep: called with those so far after each row."""
    import jax

    from jaxrl_fast.bench import report
    from jaxrl_fast.bench.race import machine, race, say
    from jaxrl_fast.doctor import machine as looked
    from jaxrl_fast.doctor import ready

    before = None if busy else looked.examine()
    if before:
        ready.check_idle(before, jax.default_backend())
    jax.config.update("jax_enable_compilation_cache", False)  # compiling is compared, too
    found = []
    for name, row in rows.items():
        notes: list[str] = []
        say(f"{name}: {row.what}")
        contestants = row.make(options, notes)
        for note in notes:
            say(f"    left out: {note}")
        if contestants:
            found += report.lines(name, row, race(contestants, turns), machine())
            keep(found)
    return found

