"""The report of a sweep: one HTML page with the ranking, curves, response plots and lineage."""

from __future__ import annotations

import shlex
from collections.abc import Sequence
from html import escape
from pathlib import Path
from typing import Any

import numpy as np

from jaxrl_fast.files import folders
from jaxrl_fast.imports import import_user_module
from jaxrl_fast.logs import html, svg
from jaxrl_fast.logs.page import code, figure, grid, page, picture, section, tiles, wide
from jaxrl_fast.runs.report import AGAIN, Subject, format_import_flags, reproduce, run_report
from jaxrl_fast.runs.rundir import run_path
from jaxrl_fast.sweeps import shown
from jaxrl_fast.sweeps.results import SweepResult, read_sweep

MOST_ROWS = 200  # of the ranking and of the lineage


def report(path: str | Path, modules: Sequence[str] = (), refresh: bool = False) -> str:
    """Return the HTML page of a run directory or of a sweep's folder.

    Args:
        modules: yours to import first, as for `load`.
        refresh: let a browser load the page again while the training goes on.

    Raises ConfigError for a folder of neither.
    """
    path = run_path("run", path)
    return (sweep_report if (path / "sweep.json").is_file() else run_report)(path, modules, refresh)


def sweep_report(path: Path, modules: Sequence[str] = (), refresh: bool = False) -> str:
    """Return the page of a sweep's folder, see `report`."""
    for module in modules:
        import_user_module(module)
    result = read_sweep(path)
    base = result.content["base"]
    subject = Subject.of(base, path)
    going = folders.holder(path) is not None
    scored = int(np.isfinite(result.final).any(axis=1).sum())
    table, best = result.table(), result.best()
    numbers = {
        "configurations with a score": f"{scored} of {len(result.configurations)}",
        "seeds each": str(len(result.seeds)),
        "steps a member": svg.short(base["run"]["total_steps"]),
    }  # fmt: skip
    if np.isfinite(result.final[best]).any():
        numbers["best IQM"] = f"{table[0]['iqm']:,.4g}"
    ended = (path / "table.csv").is_file()
    state = "in training" if going else "finished" if ended else "not finished"
    lineage = _lineage(result)
    changed = ("<p>PBT changed the settings. This page shows those of the start; best.json has the "
               "final settings of the best member.</p>" if lineage else "")
    parts = [
        f"<h1>{escape(shown.title(result))}</h1>",
        f'<p class="soft">{escape(f"{path}: {state}. {subject.where()}")}</p>',
        tiles(numbers),
        section("The best configuration",
                code(shown.label(result.configurations[best]).replace(", ", "\n")) + changed)
                if scored else "",
        section("Ranking", _ranking(result, table)),
        section("Curves of the best", _curves(result)),
        section("Responses", grid(_plots(path), "half")),
        section("Lineage", lineage),
        section("Settings of all", subject.settings()),
        section("How to reproduce", _reproduce(path, result.content)),
    ]
    return page(shown.title(result), parts, AGAIN if refresh and going else None)


def _ranking(result: SweepResult, table: list[dict[str, Any]]) -> str:
    number = lambda x: f"{x:,.4g}" if np.isfinite(x) else "-"
    seeds = (f"seed {seed}" for seed in result.seeds[:8])
    head = ("", *result.names, "IQM", "95% interval", "P(better than next)", *seeds, "lost")
    rows = [
        (row["rank"], *(shown.short(row[name]) for name in result.names), number(row["iqm"]),
         f"{number(row['low'])} to {number(row['high'])}" if np.isfinite(row["low"]) else "-",
         number(row["better_than_next"]),
         *map(number, row["scores"][:8]), row["lost"])
        for row in table[:MOST_ROWS]
    ]  # fmt: skip
    more = f"<p>{len(table) - MOST_ROWS} more in table.csv</p>" if len(table) > MOST_ROWS else ""
    return wide(html.table(rows, head)) + more


def _curves(result: SweepResult) -> str:
    runs = shown.best_rows(result)
    told = ("Mean over the seeds with its interval; dots are evaluations. Point at a line for its "
            "values.")
    return grid([figure(svg.learning_curve(runs), told)], "whole") if runs else ""


def _plots(path: Path) -> list[str]:
    """Return the plots that the sweep has drawn, but for its curves."""
    files = sorted(file for kind in ("response", "heat", "schedule")
                   for file in folders.own_files(path, f"{kind}-*.png"))
    return [figure(picture(file, file.stem), file.stem.replace("-", " of ", 1)) for file in files]


def _lineage(result: SweepResult) -> str:
    found = result.lineage()
    if not found:
        return ""
    seeds = len(result.seeds)
    name = lambda m: f"{int(m) // seeds} (seed {result.seeds[int(m) % seeds]})"
    value = lambda x: "-" if x is None else shown.short(x)
    rows = [
        (f"{x['env_steps']:,}", name(x["member"]), name(x["parent"]),
         *(value(x[n]) for n in result.names)) for x in found
    ]
    told = (
        f"<p>{len(found)} takeovers: which agent a member went on with, and its settings from then "
        "on.</p>"
    )
    table = wide(html.table(rows[:MOST_ROWS], ("steps", "member", "goes on with", *result.names)))
    title = f"the {'first ' * (len(rows) > MOST_ROWS)}{min(len(rows), MOST_ROWS)}"
    return told + html.fold(title, table)


def _reproduce(path: Path, content: dict[str, Any]) -> str:
    """Return the commands for the whole sweep (Optuna's has no plan to repeat) and its best."""
    base, where = content["base"], shlex.quote(str(path))
    imports = format_import_flags(base)
    again = (
        f"mkdir again && cp {where}/sweep.json again && jaxrl-fast sweep --resume again{imports}  "
        "# the whole sweep"
    )
    best = (
        f"jaxrl-fast train --config {where}/best.json{imports}  # the best configuration, all seeds"
    )
    lines = [*([] if "optuna" in content else [again]),
             *([best] if (path / "best.json").is_file() else [])]
    return reproduce(base, [*lines, f"jaxrl-fast sweep --resume {where}{imports}  # go on"],
                     "sweep.json")
