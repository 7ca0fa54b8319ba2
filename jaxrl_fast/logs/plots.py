"""Plots of a run's log: learning curves, and on the host the shares of time; without pyplot."""

from __future__ import annotations

import math
import re
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

import numpy as np

from jaxrl_fast.errors import ConfigError, check_int, nearest
from jaxrl_fast.files import folders
from jaxrl_fast.ops.aggregate import SURE, intervals, spread
from jaxrl_fast.values import PICTURES

# Distinct for the colour-blind and in grey; the first is the project's blue.
PALETTE = ("#2f6db5", "#d9822b", "#2a9d7f", "#b5476b", "#7a5fb0", "#8a8f3c",
           "#4fb3d9", "#6b4a36", "#e39aa8", "#8b9099", "#1d4d3a", "#c9a413")
_DASHES = ("-", "--", ":", "-.")  # for runs after the last colour
_WIDE, _TITLE = 84, 68  # characters in a legend and a title
_INK, _FAINT = "#2b2d33", "#e3e5ea"

Rows = Sequence[Mapping[str, Any]]  # of `jsonl.read_jsonl`


def learning_curve(
    rows_by_run: Mapping[str, Rows], path: str | Path, metric: str = "episode_return",
    smooth: int | None = None, title: str | None = None,
) -> Path:  # fmt: skip
    """Draw `metric` over environment steps, one colour a run, as png, svg or pdf.

    The thick line is the mean over a run's members, its band their range or the 95% interval of the
    mean (`ops.aggregate.interval`). Thin lines are the members; in the mean a member keeps its last
    value over rows that lack it. `eval_return` is drawn as dots.

    smooth: rows of the trailing mean; None: a hundredth of the rows.
    """
    path = Path(path)
    _kind(path)
    if smooth is not None:
        check_int("smooth", smooth)
    _check_metric(rows_by_run, metric)

    canvas, axes = figure()
    windows, alone = set(), len(rows_by_run) == 1
    evaluations = lambda rows: [r for r in rows if metric != "eval_return"
                                and r.get("eval_return") is not None]
    found = {label: (columns(rows, metric), columns(evaluations(rows), "eval_return"))
             for label, rows in rows_by_run.items()}
    seen = np.concatenate([values[np.isfinite(values)] for pair in found.values()
                           for _, values in pair])
    for i, (label, (curve, dots)) in enumerate(found.items()):
        if np.isfinite(curve[1]).any():
            window = smooth or max(1, len(curve[0]) // 100)
            windows.add(window)
            _draw_run(axes, label, look(i), *curve, window, alone)
            _draw_evaluations(axes, look(i)["color"], *dots, alone)
    from matplotlib.ticker import EngFormatter

    axes.xaxis.set_major_formatter(EngFormatter(sep=""))  # 100k, 1M
    window = max(windows, default=1)
    label = metric.replace("_", " ") + (f" (mean of {window} rows)" if window > 1 else "")
    title = title if title or len(rows_by_run) > 1 else next(iter(rows_by_run))
    style(axes, "environment steps of each member", label, title)
    if windows:
        room = 0.05 * (seen.max() - seen.min()) or 1.0
        axes.set_ylim(seen.min() - room, seen.max() + room)
        if alone:
            axes.legend(frameon=False, fontsize=9, labelcolor=_INK)
        else:  # curves of several runs leave no free place
            legend_below(canvas, axes)
    else:
        axes.text(0.5, 0.5, f"no {metric} yet", transform=axes.transAxes,
                  ha="center", va="center", color=_INK)

    return save(canvas, path)


def figure() -> tuple[Any, Any]:
    """Return (figure, axes) in the size and look of all plots."""
    from matplotlib.backends.backend_agg import FigureCanvasAgg
    from matplotlib.figure import Figure

    made = Figure(figsize=(7.2, 4.2), dpi=150, facecolor="white", layout="constrained")
    FigureCanvasAgg(made)
    return made, made.add_subplot()


def look(i: int) -> dict[str, str]:
    """Return colour and dashes of the i-th run; the first 48 differ."""
    return {"color": PALETTE[i % len(PALETTE)],
            "linestyle": _DASHES[i // len(PALETTE) % len(_DASHES)]}


def legend_below(canvas: Any, axes: Any) -> None:
    """Put the legend below a figure that grows by its height; long labels are folded."""
    handles, labels = axes.get_legend_handles_labels()
    columns = 2 if max(map(len, labels)) <= _WIDE // 2 - 4 else 1
    labels = [fold_text(label, _WIDE if columns == 1 else _WIDE // 2) for label in labels]
    lines = sum(label.count("\n") + 1 for label in labels) / columns
    canvas.set_figheight(canvas.get_figheight() + 0.18 * max(0.0, lines - 1))
    canvas.legend(handles, labels, loc="outside lower center", ncols=columns,
                  frameon=False, fontsize=9, labelcolor=_INK)


def legend_beside(axes: Any) -> None:
    axes.legend(loc="center left", bbox_to_anchor=(1.0, 0.5), frameon=False,
                fontsize=9, labelcolor=_INK)


def name_ticks(axes: Any, names: Sequence[str]) -> None:
    """Name the places 0, 1, ... of the x axis, slanted without room."""
    room = 80 / max(len(names), 1)  # characters
    slanted = ({} if max(map(len, names), default=0) <= room
               else {"rotation": 30, "ha": "right", "rotation_mode": "anchor"})
    axes.set_xticks(range(len(names)), [fold_text(name, 30) for name in names], **slanted)


def fold_text(text: str, width: int) -> str:
    """Fold text to lines of at most `width` characters, at spaces, commas and slashes."""
    words, lines = re.findall(r"[^\s,/]*[\s,/]*", text), [""]
    for piece in (word[k : k + width] for word in words for k in range(0, len(word), width)):
        if len(lines[-1]) + len(piece.rstrip()) > width:
            lines.append("")
        lines[-1] += piece
    return "\n".join(line.rstrip() for line in lines)


def _kind(path: Path) -> str:
    kind = path.suffix.lower() or ".png"
    if kind not in PICTURES:
        raise ConfigError("path", str(path), f"a file that ends in {', '.join(PICTURES)}")
    return kind.removeprefix(".")


def save(canvas: Any, path: Path) -> Path:
    kind = _kind(path)
    path.parent.mkdir(parents=True, exist_ok=True)
    with folders.replacing(path) as temporary:
        canvas.savefig(temporary, format=kind, metadata={"Software": None} if kind == "png"
                       else None)
    return path


def _check_metric(rows_by_run: Mapping[str, Rows], metric: str) -> None:
    if not rows_by_run:
        raise ConfigError("rows_by_run", rows_by_run, "at least one run")
    for label, rows in rows_by_run.items():
        names = list(dict.fromkeys(name for row in rows for name in row if name != "env_steps"))
        if not names:
            raise ConfigError("rows_by_run", label, "a run that has logged at least one row")
        if metric not in names:
            raise ConfigError("metric", metric, f"one that {label} has logged "
                                                f"({', '.join(names)}){nearest(metric, names)}")


def _draw_run(axes: Any, label: str, looks: dict, steps: Any,
              values: Any, window: int, alone: bool) -> None:
    members, colour = values.shape[1], looks["color"]
    if members > 1 or window > 1:
        alpha = max(0.08, min(0.35, 4 / members))
        for j, member in enumerate(values.T):
            has = np.isfinite(member)
            thin = {"color": colour, "alpha": alpha, "linewidth": 0.7, "zorder": 2}
            axes.plot(steps[has], member[has], **thin, label="members" if alone
                      and members > 1 and j == 0 else None)
    mean, low, high = smooth_members(values, window)
    has = np.isfinite(mean)
    if members > 1:
        text = None
        if alone:
            text = f"{spread(members)} of the {'mean' if members >= SURE else 'members'}"
        axes.fill_between(steps[has], low[has], high[has], color=colour,
                          alpha=0.2, linewidth=0, zorder=3, label=text)
    count = f"{members} members" if members > 1 else "1 member"
    text = (f"mean of {count}" if members > 1 else "training") if alone else f"{label} ({count})"
    marker = "o" if has.sum() == 1 else None  # a line of one point is invisible
    axes.plot(steps[has], mean[has], **looks, linewidth=2, zorder=4,
              label=text, marker=marker, markersize=4)


def _draw_evaluations(axes: Any, colour: str, steps: Any, values: Any, alone: bool) -> None:
    mean, low, high = intervals(values)
    has = np.isfinite(mean)
    if not has.any():
        return
    text = "evaluation" if alone else None
    dots = {"linestyle": "none", "marker": "o", "markersize": 5,
            "zorder": 5, "markeredgewidth": 1.2}
    axes.plot(steps[has], mean[has], **dots, color=colour, markerfacecolor="white", label=text)
    sure = has & np.isfinite(low)
    axes.vlines(steps[sure], low[sure], high[sure], color=colour, linewidth=1.2, zorder=4.5)


def style(axes: Any, x: str, y: str, title: str | None = None, grid: bool = True) -> None:
    """Set labels, grid and colours of all plots."""
    axes.set_xlabel(x, color=_INK)
    axes.set_ylabel(y, color=_INK)
    if title:
        axes.set_title(fold_text(title, _TITLE), color=_INK, fontsize=11, loc="left")
    if grid:
        axes.grid(True, color=_FAINT, linewidth=0.8)
        axes.set_axisbelow(True)
    axes.margins(x=0.01)
    axes.tick_params(colors=_INK, length=0)
    for side, spine in axes.spines.items():
        spine.set_visible(side == "bottom")
        spine.set_color(_INK)


def bars(
    axes: Any, names: Sequence[str], values: Sequence[float], texts: Sequence[str],
    colours: Sequence[str], start: float = 0.0,
) -> None:  # fmt: skip
    """Draw horizontal bars from `start`, the first on top, with names and texts behind them."""
    places = range(len(values))
    axes.barh(places, [value - start for value in values], left=start, color=colours, height=0.65)
    for place, value, text in zip(places, values, texts, strict=True):
        where = {"textcoords": "offset points", "va": "center", "fontsize": 8, "color": _INK}
        behind = {"fc": "white", "ec": "none", "pad": 1}
        axes.annotate(text, (value, place), (6, 0), bbox=behind, **where)
    axes.set_yticks(places, names, fontsize=8)
    axes.invert_yaxis()


def columns(rows: Rows, metric: str) -> tuple[np.ndarray, np.ndarray]:
    """Return (env_steps [R], values [R, K]) of the rows with the metric; NaN for null."""
    found = [(row["env_steps"], row[metric]) for row in rows if metric in row]
    lists = [value if isinstance(value, (list, tuple, np.ndarray)) else [value]
             for _, value in found]
    values = np.full((len(found), max(map(len, lists), default=1)), np.nan)
    for i, entry in enumerate(lists):
        values[i, : len(entry)] = [math.nan if v is None else v for v in entry]
    steps = np.array([steps for steps, _ in found], np.float64)
    return steps, np.where(np.isfinite(values), values, np.nan)


def smooth_members(values: np.ndarray, window: int) -> tuple[np.ndarray, np.ndarray, np.ndarray]:
    """Return mean, low and high over members [R, K], of each member's mean over `window` rows."""
    return intervals(held_means(values, window))


def held_means(values: np.ndarray, window: int) -> np.ndarray:
    """Return each member's mean over `window` rows [R, K], kept over gaps."""
    return _held(_trailing_mean(values, window))


def _trailing_mean(values: np.ndarray, window: int) -> np.ndarray:
    """Return each column's mean over finite values of the last `window` rows [R, K], or NaN."""
    if window <= 1:
        return values
    has = np.isfinite(values)

    def trailing_sum(x):
        total = np.cumsum(x, axis=0, dtype=np.float64)
        total[window:] = total[window:] - total[:-window]
        return total

    count, total = trailing_sum(has), trailing_sum(np.where(has, values, 0.0))
    return np.where(count > 0, total / np.maximum(count, 1), np.nan)


def _held(values: np.ndarray) -> np.ndarray:
    """Keep every column's last finite value over later gaps; rows of only gaps stay, [R, K]."""
    has = np.isfinite(values)
    last = np.maximum.accumulate(np.where(has, np.arange(len(values))[:, None], -1), axis=0)
    held = np.where(last >= 0, np.take_along_axis(values, np.maximum(last, 0), axis=0), np.nan)
    return np.where(has.any(axis=1, keepdims=True), held, np.nan)
