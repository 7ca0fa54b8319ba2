"""Results of `jaxrl-fast bench`: lines as in docs/benchmarks/results, a table, a picture."""

from __future__ import annotations

import json
import math
import re
from collections.abc import Sequence
from pathlib import Path
from typing import Any

from jaxrl_fast.bench.rows import Row
from jaxrl_fast.logs import plots
from jaxrl_fast.logs.terminal import align_columns

Line = dict[str, Any]


def lines(name: str, row: Row, raced: dict[str, Any], machine: dict[str, Any]) -> list[Line]:
    """Return a line for each peer of a row, or one without a peer.

    value, peer_value: steps a second. ratio: ours over the peer's, the median of `turns`. compile,
    peer_compile: seconds of tracing and compiling; of a loop on the host, until it runs.
    """
    found, (mine, *peers) = raced["contestants"], list(raced["contestants"])
    compiling = lambda one: round(one["trace"] + one["lower"] + one["compile"], 2)
    load = [one for result in found.values() for turn in result["load"] for one in turn]
    common = {
        "table": "rows", "row": name, "what": row.what, "unit": row.unit, "seeds": None,
        "value": round(found[mine]["steps_per_second"]), "compile": compiling(found[mine]),
        "command": f"jaxrl-fast bench {name}", "date": machine["date"][:10],
        **describe_machine(machine), "load": [min(load), max(load)] if load else None,
    }  # fmt: skip
    if not peers:
        return [common | {"peer": None, "turns": None}]
    compared = []
    for peer in peers:
        ratio = raced["ratios"][f"{mine} / {peer}"]
        compared.append(common | {
            "peer": peer, "peer_value": round(found[peer]["steps_per_second"]),
            "peer_compile": compiling(found[peer]), "ratio": round_ratio(ratio["median"], 2),
            "turns": [round_ratio(x, 3) for x in ratio["turns"]],
        })  # fmt: skip
    return compared


def round_ratio(ratio: float, digits: int) -> float:
    """Return a ratio with some decimals, or as many significant digits below 1: never 0."""
    return round(ratio, digits) if ratio >= 1 else float(f"{ratio:.{digits}g}")


def describe_machine(machine: dict[str, Any]) -> dict[str, str]:
    """Return a machine and its versions as text."""
    kind = re.fullmatch(r"\d+ x (.*) \((\w+)\)", machine["device"])
    cores = f"{machine['cores']} CPU cores" if kind[2] != "cpu" else f"{machine['cores']} cores"
    chip = kind[1] if kind[2] != "cpu" else machine["cpu"] or "CPU"
    versions = (f"{'Python' if k == 'python' else k} {v}" for k, v in machine["versions"].items())
    return {"machine": f"{chip}, {cores}", "versions": ", ".join(versions)}


def table(found: Sequence[Line]) -> str:
    """Return the comparisons as text, a line each."""
    shown = [("work", "ours", "peer", "peer's", "speed", "compile", "peer's")]
    for one in found:
        speed, peer = f"{one['value']:,} {one['unit']}", one["peer"]
        theirs = (peer, f"{one['peer_value']:,}", f"{one['ratio']:g}") if peer else ("", "", "")
        compiled = f"{one['compile']:.1f} s", f"{one['peer_compile']:.1f} s" if peer else ""
        shown.append((one["what"], speed, *theirs, *compiled))
    return "\n".join(align_columns(shown, left=len(shown[0])))


def write(found: Sequence[Line], path: Path) -> None:
    """Write a line of JSON each, into a folder that may be new."""
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_text("".join(json.dumps(one) + "\n" for one in found))


def draw(found: Sequence[Line], path: str | Path) -> Path:
    """Draw our speed over each peer's, with the range of the turns; orange: slower."""
    compared = [one for one in found if one["peer"] is not None]
    canvas, axes = plots.figure()
    canvas.set_size_inches(8.4, 1.4 + 0.32 * len(compared))
    labels = [plots.fold_text(f"{one['what']} / {one['peer']}", 52) for one in compared]
    speeds = [one["ratio"] for one in compared]
    colours = [plots.PALETTE[0 if speed >= 1 else 1] for speed in speeds]
    plots.bars(axes, labels, speeds, ["" for _ in compared], colours, start=1.0)
    for place, (middle, one) in enumerate(zip(speeds, compared, strict=True)):
        low, high = min(middle, *one["turns"]), max(middle, *one["turns"])
        ends = [[middle - low], [high - middle]]
        axes.errorbar(middle, place, xerr=ends, color="#2b2d33", capsize=3, linewidth=1)
        axes.text(1.03 * max(high, 1.0), place, f"{middle:g}", va="center", fontsize=8)
    plots.style(axes, "our speed / the peer's", "", found[0]["machine"] if found else None)
    axes.axvline(1.0, color="#2b2d33", linewidth=1, linestyle="--")
    axes.set_xscale("log")
    ratios = [x for one in compared for x in (one["ratio"], *one["turns"])]
    powers = range(math.floor(math.log2(min(ratios))), math.ceil(math.log2(max(ratios))) + 1)
    axes.set_xticks([2.0**n for n in powers], [f"{2.0**n:g}" for n in powers])
    axes.minorticks_off()
    axes.margins(x=0.12, y=0.01)
    return plots.save(canvas, Path(path))
