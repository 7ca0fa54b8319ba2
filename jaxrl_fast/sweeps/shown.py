"""How a sweep's results are shown: titles, tables as text and HTML, rows of the best curves."""

from __future__ import annotations

import math
from typing import TYPE_CHECKING, Any

from jaxrl_fast.logs import html, svg
from jaxrl_fast.logs.terminal import align_columns
from jaxrl_fast.ops.aggregate import few

if TYPE_CHECKING:
    from jaxrl_fast.sweeps.results import SweepResult

MOST, MOST_CURVES = 20, 8  # configurations in a table and in a plot


def title(result: SweepResult) -> str:
    """Return the sweep's title: algorithm, environment, configurations, seeds, steps."""
    base, seeds = result.content["base"], f"{len(result.seeds)} seed{'s' * (len(result.seeds) > 1)}"
    return (f"{base['algorithm']['name']} on {base['environment']['name']}, "
            f"{len(result.configurations)} configurations with {seeds} each, "
            f"{base['run']['total_steps']:,} steps")


def label(settings: dict[str, Any]) -> str:
    """Return `learning_rate 0.001, num_envs 8`."""
    return ", ".join(f"{name.partition('.')[2]} {short(value)}" for name, value in settings.items())


def short(value: Any) -> str:
    """Return a setting's value in a few characters: 4 digits of a number."""
    return f"{value:.4g}" if isinstance(value, float) else str(value)


def best_rows(result: SweepResult) -> dict[str, list[dict[str, Any]]]:
    """Return {label: log rows} of the best configurations, their seeds as members."""
    runs = {}
    for c in result.ranking()[:MOST_CURVES]:
        rows: dict[int, dict[str, Any]] = {}
        for seed, own in enumerate(result.rows[c]):
            for row in own:
                whole = rows.setdefault(row["env_steps"], {"env_steps": row["env_steps"]})
                for name in ("episode_return", "eval_return"):
                    if name in row:
                        whole.setdefault(name, [None] * len(result.seeds))[seed] = row[name][0]
        if rows:
            runs[label(result.configurations[c])] = [rows[k] for k in sorted(rows)]
    return runs


def _cells(result: SweepResult) -> tuple[list[list[str]], list[str]]:
    """Return the best lines of the table, the head first, and notes."""
    names = result.names
    lines = [["", *names, "IQM", "95% interval", "seeds", "P(better than next)"]]
    table = result.table()
    for row in table[:MOST]:
        interval = f"{row['low']:.2f} to {row['high']:.2f}" if math.isfinite(row["low"]) else "-"
        scores = " ".join("lost" if not math.isfinite(x) else f"{x:.1f}" for x in row["scores"][:5])
        scores += " ..." if len(row["scores"]) > 5 else ""
        better = f"{row['better_than_next']:.2f}" if math.isfinite(row["better_than_next"]) else "-"
        middle = (f"{row['iqm']:.2f}" if math.isfinite(row["iqm"])
                  else row["lost"].split(" at ")[0] or "-")
        lines.append([str(row["rank"]), *(short(row[n]) for n in names),
                      middle, interval, scores, better])
    more = [f"... {len(table) - MOST} more in table.csv"] if len(table) > MOST else []
    return lines, few(result.final.shape[1]) + more


def as_text(result: SweepResult) -> str:
    """Return the table as text, its best rows."""
    lines, notes = _cells(result)
    return "\n".join(align_columns(lines) + notes)


def as_html(result: SweepResult) -> str:
    """Return the table and the best configurations' learning curves, for a notebook."""
    (head, *lines), notes = _cells(result)
    runs = best_rows(result)
    curves = svg.image(svg.learning_curve(runs)) if runs else ""
    table = html.table(lines, head, left=1 + len(result.names))
    return html.block(title(result), table, html.lines(*notes, f"in {result.path}"), curves)
