"""The plots of a sweep: curves, score over a setting, heat map of two, PBT's schedule."""

from __future__ import annotations

import math
from pathlib import Path
from typing import Any

import numpy as np

from jaxrl_fast.logs import plots
from jaxrl_fast.ops.aggregate import bootstrap, iqm
from jaxrl_fast.sweeps.results import SweepResult, distinct
from jaxrl_fast.sweeps.shown import best_rows, short


def draw(result: SweepResult) -> list[Path]:
    """Draw every plot that the sweep has data for; return their paths."""
    made = [curves(result)]
    tried = {name: {repr(c[name]) for c in result.configurations} for name in result.names}
    varied = [name for name, values in tried.items() if len(values) > 1]
    moved = any("parent" in row for seeds in result.rows for rows in seeds for row in rows)
    if result.content["base"]["run"]["selection"] and moved:
        return [*made, *(schedule(result, name) for name in result.names)]
    made += [response(result, name) for name in varied]
    if len(varied) == 2:
        made.append(heat_map(result, *varied))
    return made


def curves(result: SweepResult) -> Path:
    """Draw the best configurations' learning curves: mean over seeds with its interval."""
    runs = best_rows(result)
    title = f"{_title(result)}: the best {len(runs)} of {len(result.configurations)}"
    return plots.learning_curve(runs, result.path / "curves.png", title=title)


def response(result: SweepResult, name: str) -> Path:
    """Draw score over one setting: runs as dots, with IQM and interval where they share a value."""
    values = [c[name] for c in result.configurations]
    numeric = all(isinstance(v, (int, float)) and not isinstance(v, bool) for v in values)
    shown = sorted(set(values)) if numeric else list(dict.fromkeys(map(str, values)))
    at = {v: float(v) if numeric else i for i, v in enumerate(shown)}
    place = [at[v if numeric else str(v)] for v in values]
    figure, axes = plots.figure()
    for c, x in enumerate(place):
        axes.plot([x] * len(result.seeds), result.final[c], "o", color=plots.PALETTE[0],
                  alpha=0.35, markersize=4, linewidth=0)
    if len(shown) < len(values) or len(result.seeds) > 1:
        middle = []
        for v in shown:
            scores = np.concatenate([result.scores[c] for c, x in enumerate(place) if x == at[v]])
            scores = scores[np.isfinite(scores)]  # without configurations that have no score
            middle.append((at[v], iqm(scores), *bootstrap(scores)) if scores.size
                          else (at[v], *(math.nan,) * 3))
        x, y, low, high = np.array(middle).T
        if len(shown) <= 30:
            axes.plot(x, y, color=plots.PALETTE[1], linewidth=2, marker="o",
                      markersize=5, label="IQM, 95% interval")
            axes.vlines(x, low, high, color=plots.PALETTE[1], linewidth=1.5)
            axes.legend(frameon=False, fontsize=9)
    if numeric and _wide(place):
        axes.set_xscale("log")
    if not numeric:
        plots.name_ticks(axes, shown)
    plots.style(axes, name, "evaluation return", _title(result))
    if not numeric:
        axes.set_xlim(-0.5, len(shown) - 0.5)  # room for long names and the legend
    return plots.save(figure, result.path / f"response-{name}.png")


def heat_map(result: SweepResult, first: str, second: str) -> Path:
    """Draw the IQM over two settings; draws that fill no grid are coloured dots."""
    xs, ys = ([c[n] for c in result.configurations] for n in (first, second))
    score = np.array([iqm(scores) for scores in result.scores])
    columns, rows = distinct(xs), distinct(ys)
    figure, axes = plots.figure()
    if len(columns) * len(rows) == len(result.configurations):
        table = np.full((len(rows), len(columns)), np.nan)
        for x, y, s in zip(xs, ys, score, strict=True):
            table[rows.index(y), columns.index(x)] = s
        shown = axes.imshow(table, origin="lower", aspect="auto", cmap="viridis")
        plots.name_ticks(axes, [str(short(v)) for v in columns])
        axes.set_yticks(range(len(rows)), [plots.fold_text(str(short(v)), 30) for v in rows])
        middle = np.nanmean(table)
        for i, j in np.ndindex(*table.shape):
            text = "lost" if math.isnan(table[i, j]) else f"{table[i, j]:.4g}"
            axes.text(j, i, text, ha="center", va="center",
                      color="white" if not table[i, j] > middle else "black", fontsize=9)
    else:
        shown = axes.scatter(xs, ys, c=score, cmap="viridis", s=36)
        for values, scale in ((xs, axes.set_xscale), (ys, axes.set_yscale)):
            if all(isinstance(v, (int, float)) for v in values) and _wide(values):
                scale("log")
    figure.colorbar(shown, ax=axes, label="IQM of the evaluation return")
    plots.style(axes, first, second, _title(result), grid=False)
    return plots.save(figure, result.path / f"heat-{first}-{second}.png")


def _wide(values: Any) -> bool:
    """Return whether the values suit a logarithmic axis."""
    values = np.asarray(values, float)
    return bool(values.size and values.min() > 0 and values.max() / values.min() >= 20)


def schedule(result: SweepResult, name: str) -> Path:
    """Draw a setting under PBT in every member over the steps, the best member's line thick."""
    steps, values = result.curve(name)
    figure, axes = plots.figure()
    flat = values.reshape(-1, len(steps))
    final = np.nan_to_num(result.final.reshape(-1), nan=-np.inf)
    for member in flat:
        axes.step(steps, member, where="pre", color=plots.PALETTE[0],
                  alpha=max(0.1, min(0.5, 8 / len(flat))), linewidth=1)
    best = flat[int(np.argmax(final))]
    axes.step(steps, best, where="pre", color=plots.PALETTE[1], linewidth=2,
              label="the best member at the end")
    axes.legend(frameon=False, fontsize=9)
    if _wide(flat[np.isfinite(flat)]):
        axes.set_yscale("log")
    plots.style(axes, "environment steps of each member", name, _title(result))
    return plots.save(figure, result.path / f"schedule-{name}.png")


def _title(result: SweepResult) -> str:
    base = result.content["base"]
    return f"{base['algorithm']['name']} {base['environment']['name']}"
