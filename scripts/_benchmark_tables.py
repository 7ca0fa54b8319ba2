"""Tables of the benchmark pages (see benchmark_pages.py): results as rows, rows as Markdown."""

from __future__ import annotations

import json
import re
import string
import textwrap
from collections.abc import Iterable, Mapping, Sequence
from pathlib import Path
from typing import Any

REQUIRED = (
    "table",
    "what",
    "peer",
    "value",
    "unit",
    "seeds",
    "turns",
    "command",
    "date",
    "machine",
    "versions",
)
TIMES = ("s", "us", "ms")  # units in which less is faster
_WORDS = re.compile(r'(\w+)=("[^"]*"|\S+)')

Row = Mapping[str, Any]


def read_results(folder: Path) -> dict[str, list[Row]]:
    """Return the rows of every table by `FILE/TABLE`, in the order of the files.

    Raises:
        ValueError: A line is not JSON or lacks a required key; the message names file and line.
    """
    tables: dict[str, list[Row]] = {}
    for file in sorted(folder.glob("*.jsonl")):
        for i, line in enumerate(file.read_text().splitlines(), 1):
            row = json.loads(line)
            if missing := [key for key in REQUIRED if key not in row]:
                raise ValueError(
                    f"{file.name} line {i} must have all required keys, got none for {missing}."
                )
            tables.setdefault(f"{file.stem}/{row['table']}", []).append(row)
    return tables


def ratio(row: Row) -> float | None:
    """Return ours divided by the peer's: the median over the turns, or the values' quotient."""
    if row.get("ratio") is not None or row["peer"] is None:
        return row.get("ratio")
    ours, theirs = row["value"], row.get("peer_value")
    return None if not theirs or ours is None else round(ours / theirs, 2)


def speedup(row: Row) -> float | None:
    """Return how many times as fast as the peer ours is, whatever the unit."""
    found = ratio(row)
    return found if found is None or row["unit"] not in TIMES else round(1 / found, 2)


def target(row: Row) -> tuple[float, str] | None:
    """Return the score to reach and its source: the highest published one, or the peer's."""
    published = [(p["value"], p["source"]) for p in row.get("published", [])]
    if row.get("peer_value") is not None:
        published.append((row["peer_value"], f"{row['peer']}, run by us"))
    return max(published, default=None)


def verdict(row: Row) -> str | None:
    """Return whether a score reaches its target: yes, within (its 95% interval), or no."""
    if (goal := target(row)) is None:
        return None
    if row["value"] >= goal[0]:
        return "yes"
    return "within" if row["value"] + row.get("interval", 0) >= goal[0] else "no"


def number(value: Any) -> str:
    """Return a value as a table shows it: 1,234.5, 3e-4, the elements of a list with blanks."""
    if isinstance(value, (list, tuple)):
        return " ".join(map(number, value))
    if isinstance(value, bool) or not isinstance(value, (int, float)):
        return str(value)
    if value and abs(value) < 1e-3:
        return exponent(value)
    return f"{value:,}"


def exponent(value: float) -> str:
    """Return a number in the short form of the papers: 500000 as 5e5."""
    mantissa, _, power = f"{value:.2e}".partition("e")
    return f"{float(mantissa):g}e{int(power)}"


def listed(items: Iterable[str]) -> str:
    """Return a Markdown list, folded at 98 columns."""
    return "\n".join(textwrap.fill(f"- {item}", 98, subsequent_indent="  ") for item in items)


class Machines:
    """Letters for a page's pairs of machine and versions, in the order of their appearance."""

    def __init__(self) -> None:
        self.letters: dict[tuple[str, str], str] = {}

    def letter(self, row: Row) -> str:
        """Return the letter of a row's machine and versions."""
        return self.letters.setdefault(
            (row["machine"], row["versions"]), string.ascii_lowercase[len(self.letters)]
        )

    def listed(self) -> str:
        """Return a Markdown list of all letters."""
        return listed(
            f"**{letter}**: {machine}; {versions}"
            for (machine, versions), letter in self.letters.items()
        )


def fields(row: Row, machines: Machines) -> dict[str, str]:
    """Return the row's fields as text, with ratio, speedup, target, source, reached and on."""
    goal = target(row)
    more: dict[str, Any] = {"reached": verdict(row)}
    more |= {
        name: f"{x:.2f}"
        for name, x in (("ratio", ratio(row)), ("speedup", speedup(row)))
        if x is not None
    }
    if goal:
        more |= {"target": goal[0], "source": goal[1]}
    if row.get("steps") is not None:
        more["steps"] = exponent(row["steps"])
    shown = {key: number(value) for key, value in {**row, **more}.items() if value is not None}
    return shown | {"on": machines.letter(row)}


def cell(pattern: str, values: Mapping[str, str]) -> str:
    """Fill in a pattern; without a field its part in [brackets] vanishes, or the whole cell."""
    known = lambda text: all(
        name in values for _, name, _, _ in string.Formatter().parse(text) if name
    )
    text = re.sub(r"\[(.*?)\]", lambda m: m.group(1) if known(m.group(1)) else "", pattern)
    return text.format_map(values) if known(text) else ""


def markdown(head: Sequence[str], body: Iterable[Sequence[str]]) -> str:
    """Return a Markdown table."""
    lines = [head, ["---"] * len(head), *body]
    return "\n".join("| " + " | ".join(line) + " |" for line in lines)


def select(tables: Mapping[str, Sequence[Row]], words: str) -> list[Row]:
    """Return the rows that `FILE/TABLE key=value ...` names; `*`: every table, by `order`.

    Raises:
        ValueError: No row is left, so the page asks for what is not measured.
    """
    name, _, rest = words.partition(" ")
    rows = (
        [row for table in tables.values() for row in table]
        if name == "*"
        else list(tables.get(name, ()))
    )
    for key, value in _WORDS.findall(rest):
        rows = [row for row in rows if str(row.get(key)) == value.strip('"')]
    if not rows:
        raise ValueError(
            f"rows must be among {', '.join(sorted(tables))}, got {words!r}, which has none."
        )
    return sorted(rows, key=lambda row: row["order"]) if name == "*" else rows


def table(rows: Sequence[Row], columns: Mapping[str, str], machines: Machines) -> str:
    """Return a table with a line for each row of the results."""
    body = ([cell(pattern, fields(row, machines)) for pattern in columns.values()] for row in rows)
    return markdown(list(columns), body)


def grid(rows: Sequence[Row], spec: dict[str, str], machines: Machines) -> str:
    """Return a table with one result a cell: the columns of `spec`, then one a `columns`."""
    across, pattern = spec.pop("columns"), spec.pop("cell")
    values = [fields(row, machines) for row in rows]
    names = list(dict.fromkeys(cell(across, v) for v in values))
    lines: dict[tuple[str, ...], dict[str, str]] = {}
    for v in values:
        lines.setdefault(tuple(cell(p, v) for p in spec.values()), {})[cell(across, v)] = cell(
            pattern, v
        )
    return markdown(
        [*spec, *names],
        ([*head, *(line.get(n, "") for n in names)] for head, line in lines.items()),
    )


def bullets(rows: Sequence[Row], pattern: str, machines: Machines) -> str:
    """Return a Markdown list with an item for each row of the results."""
    return listed(cell(pattern, fields(row, machines)) for row in rows)
