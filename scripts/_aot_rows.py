"""Rows of the report: compare, write as JSON lines, print as a table."""

from __future__ import annotations

import json
import platform
import re
import time
from collections.abc import Iterable
from pathlib import Path
from typing import Any

import _aot_compile
import _aot_targets as targets

Measured = dict[str, Any]
TOLERANCE = 1.02  # launches over launches before that count as no change


def row(
    name: str, what: str, kind: str, target: targets.Target, found: Measured, command: str
) -> Measured:
    """Return a row of docs/benchmarks/results; `value`: launches, on a TPU compile seconds."""
    value, unit = (
        (found["launches"], "launches") if "launches" in found else (found["compile_s"], "s")
    )
    card = targets.GPUS[target.kind].name if target.platform == "cuda" else f"TPU {target.kind}"
    compilers = _aot_compile.versions(target.platform)
    here = [f"Python {platform.python_version()}", *map(" ".join, compilers.items())]
    return {
        "table": "programs", "program": name, "what": what, "kind": kind, "target": target.name,
        "value": value, "unit": unit, "peer": None, "peer_value": None, "seeds": None,
        "turns": None, "command": command, "date": time.strftime("%Y-%m-%d"),
        "machine": f"compiled for {card} on a CPU", "versions": ", ".join(here),
    } | found  # fmt: skip


def beside(mine: Measured, peers: dict[str, Measured], wanted: float | None) -> Measured:
    """Return a row with its peers, and the one that launches least as `peer`."""
    if not peers:
        return mine | {"wanted": wanted}
    best = min(peers, key=lambda name: peers[name]["launches"])
    return mine | {
        "wanted": wanted,
        "peer": best,
        "peer_value": peers[best]["launches"],
        "peers": peers,
    }


def read(path: Path) -> dict[tuple[str, str], Measured]:
    """Return the rows of a report by program and target, without a last line that was cut off."""
    found = {}
    for line in path.read_text().splitlines() if path.exists() else []:
        try:
            one = json.loads(line)
        except json.JSONDecodeError:
            continue
        found[key(one)] = one
    return found


def key(one: Measured) -> tuple[str, str]:
    return one["program"], one["target"]


def write(path: Path, rows: Iterable[Measured]) -> None:
    """Write rows in place of a report's rows of the same programs and targets."""
    kept = read(path) | {key(one): one for one in rows}
    path.write_text("".join(f"{json.dumps(one)}\n" for one in kept.values()))


def worse(new: Measured, old: Measured) -> list[str]:
    """Return what a program does more often than before, as sentences."""
    found = []
    most = lambda verb, what: (
        f"{new['program']} must {verb} at most {old[what]:g}, got {new[what]:g}"
    )
    if new["unit"] == old["unit"] == "launches":
        if new["launches"] > TOLERANCE * old["launches"]:
            found.append(most("launch", "launches"))
        if new["syncs"] > old["syncs"]:
            found.append(f"{most('wait', 'syncs')}: {'; '.join(new['waits'])}")
    if sum(new["collectives"].values()) > sum(old["collectives"].values()):
        sent = f"collectives {old['collectives']}, got {new['collectives']}"
        found.append(f"{new['program']} must have {sent}")
    return found


PARTS = ("rollout", "physics", "returns", "update", "rest")
COLUMNS = {
    "program": 16, "target": 8, "launches": 9, "before": 9, "peer": 9, "ratio": 6, "wanted": 7,
    **dict.fromkeys(PARTS, 8), "syncs": 6, "graphs": 7, "loose": 8, "MiB": 9,
    "collect.": 9, "compile": 8,
}  # fmt: skip


def heading() -> str:
    return "".join(f"{name:>{width}}" for name, width in COLUMNS.items()) + "  products"


def line(one: Measured, before: Measured | None = None) -> str:
    """Return a row as text, in the columns of `heading`."""
    count = lambda name: f"{one[name]:,g}" if name in one else ""
    sizes = one["arguments"] + one["temporaries"]
    cells = {
        "program": one["program"][:15], "target": one["target"], "launches": count("launches"),
        "before": f"{before['launches']:,g}" if before and "launches" in before else "",
        "peer": f"{one['peer_value']:,g}" if one.get("peer_value") else "",
        "ratio": f"{one['launches'] / one['peer_value']:.2f}" if one.get("peer_value") else "",
        "wanted": f"{one['wanted']:.2f}" if one.get("wanted") else "",
        **{name: count(name) for name in (*PARTS, "syncs", "graphs", "loose")},
        "MiB": f"{sizes / 2**20:,.1f}",
        "collect.": str(sum(one["collectives"].values())), "compile": f"{one['compile_s']:.0f} s",
    }  # fmt: skip
    products = ", ".join(f"{n} {kind}" for kind, n in one["products"].items()) or "none"
    return "".join(f"{cells[name]:>{width}}" for name, width in COLUMNS.items()) + f"  {products}"


def remarks(one: Measured, before: Measured | None = None) -> list[str]:
    """Return what a row has no column for: waits, work around iterations, what got worse."""
    found = [
        f"    waits for {re.sub(r'closed_call/|jit[(]|[)]', '', name)}"
        for name in one.get("waits", ())
    ]
    if (around := one.get("around")) and around["syncs"]:
        counts = f"{around['launches']:,g} launches, {around['syncs']:g} syncs"
        found.append(f"    around the iterations: {counts}")
    return found + [f"    WORSE: {text}" for text in (worse(one, before) if before else ())]
