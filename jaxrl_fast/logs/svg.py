"""Learning curves as small SVG pictures, for notebooks: drawn in milliseconds, without matplotlib."""

from __future__ import annotations

import base64
import math
from collections.abc import Iterable, Mapping
from html import escape

import numpy as np

from jaxrl_fast.logs.plots import PALETTE, Rows, columns, smoothed
from jaxrl_fast.ops.aggregate import SURE, spread

WIDTH, HEIGHT = 640, 260
_LEFT, _RIGHT, _TOP, _BOTTOM = 58, 626, 26, 222  # of the axes
_LEGEND = 14  # height of a line of text
_MOST = 300  # points of a line
_INK, _FAINT = "#2b2d33", "#e3e5ea"


def learning_curve(rows_by_run: Mapping[str, Rows], metric: str = "episode_return") -> str:
    """Return SVG like the plot of `plots.learning_curve`: mean and interval of each run's members.

    Evaluations are dots. Without a finite value the axes stay empty and say so.
    """
    lines, dots = {}, {}
    for label, rows in rows_by_run.items():
        steps, values = columns(rows, metric)
        lines[label] = steps, *smoothed(values, max(1, len(rows) // 100)), values.shape[1]
        evaluated = [row for row in rows if metric != "eval_return" and row.get("eval_return") is not None]
        steps, values = columns(evaluated, "eval_return")
        dots[label] = steps, *smoothed(values, 1)
    known = [x[np.isfinite(x)] for _, *curves, _ in lines.values() for x in curves]
    known += [x[np.isfinite(x)] for _, *curves in dots.values() for x in curves]
    seen = np.concatenate([*known, []])
    if not seen.size:
        return _svg([_text((_LEFT + _RIGHT) / 2, (_TOP + _BOTTOM) / 2, f"no {metric} yet", "middle")])
    last = max(float(steps[-1]) for steps, *_ in lines.values() if len(steps))
    room = 0.05 * (seen.max() - seen.min()) or 1.0
    place = _Place(last, float(seen.min() - room), float(seen.max() + room))
    parts = [*_axes(place, metric), *_legend({label: found[-1] for label, found in lines.items()})]
    below = _LEGEND * len(lines) if len(lines) > 1 else 0
    for i, (label, (steps, mean, low, high, _)) in enumerate(lines.items()):
        colour = PALETTE[i % len(PALETTE)]
        parts += [_band(place, steps, low, high, colour), _line(place, steps, mean, colour)]
        kept = _few(dots[label][1])
        parts += [_dot(place, *dot, colour) for dot in zip(*(x[kept] for x in dots[label]), strict=True)]
    return _svg(parts, HEIGHT + below)


def image(svg: str) -> str:
    """Return an HTML image of SVG, which a sanitizer of notebooks keeps."""
    data = base64.b64encode(svg.encode()).decode()
    return f'<img alt="learning curve" style="max-width:100%" src="data:image/svg+xml;base64,{data}">'


class _Place:
    """Where values lie in the picture."""

    def __init__(self, last: float, low: float, high: float):
        self.last, self.low, self.high = max(last, 1.0), low, high

    def x(self, steps: float) -> float:
        return _LEFT + (_RIGHT - _LEFT) * steps / self.last

    def y(self, value: float) -> float:
        return _BOTTOM - (_BOTTOM - _TOP) * (value - self.low) / (self.high - self.low)

    def points(self, steps: Iterable[float], values: Iterable[float]) -> str:
        return " ".join(f"{self.x(s):.1f},{self.y(v):.1f}" for s, v in zip(steps, values, strict=True))


def _svg(parts: Iterable[str], height: int = HEIGHT) -> str:
    return (
        f'<svg xmlns="http://www.w3.org/2000/svg" width="{WIDTH}" height="{height}" viewBox="0 0 {WIDTH} {height}" '
        f'font-family="sans-serif" font-size="11"><rect width="100%" height="100%" fill="white"/>{"".join(parts)}</svg>'
    )


def _text(x: float, y: float, text: str, anchor: str = "start", colour: str = _INK) -> str:
    return f'<text x="{x:.1f}" y="{y:.1f}" text-anchor="{anchor}" fill="{colour}">{escape(text)}</text>'


def _axes(place: _Place, metric: str) -> list[str]:
    parts = []
    for value in ticks(place.low, place.high):
        y = place.y(value)
        parts.append(f'<line x1="{_LEFT}" x2="{_RIGHT}" y1="{y:.1f}" y2="{y:.1f}" stroke="{_FAINT}"/>')
        parts.append(_text(_LEFT - 6, y + 4, short(value), "end"))
    for value in ticks(0.0, place.last):
        parts.append(_text(place.x(value), _BOTTOM + 15, short(value), "middle"))
    parts.append(f'<line x1="{_LEFT}" x2="{_RIGHT}" y1="{_BOTTOM}" y2="{_BOTTOM}" stroke="{_INK}"/>')
    parts.append(_text((_LEFT + _RIGHT) / 2, _BOTTOM + 32, "environment steps of each member", "middle"))
    return [*parts, _text(4, 14, metric.replace("_", " "))]


def _legend(members: Mapping[str, int]) -> list[str]:
    """Return what one run's line is, above the axes, or the names of several below them."""
    if len(members) == 1:
        (count,) = members.values()
        interval = f"{spread(count)} of the {'mean' if count >= SURE else 'members'}"
        told = f"mean of {count} members, {interval}" if count > 1 else "training"
        return [_text(_RIGHT, 14, told, "end", PALETTE[0])]
    named = [f"{label} ({count} member{'s' * (count > 1)})"[:100] for label, count in members.items()]
    return [_text(_LEFT, HEIGHT + 8 + _LEGEND * i, x, "start", PALETTE[i % len(PALETTE)]) for i, x in enumerate(named)]


def _few(*arrays: np.ndarray) -> np.ndarray:
    """Return where all arrays are finite: at most `_MOST` places and the last one."""
    has = np.flatnonzero(np.all([np.isfinite(x) for x in arrays], axis=0))
    return np.unique(np.append(has[:: -(-len(has) // _MOST) or 1], has[-1:]))


def _line(place: _Place, steps: np.ndarray, mean: np.ndarray, colour: str) -> str:
    steps, mean = (x[_few(mean)] for x in (steps, mean))
    if len(steps) == 1:  # a line of one point is invisible
        return f'<circle cx="{place.x(steps[0]):.1f}" cy="{place.y(mean[0]):.1f}" r="3" fill="{colour}"/>'
    return f'<polyline points="{place.points(steps, mean)}" fill="none" stroke="{colour}" stroke-width="2"/>'


def _band(place: _Place, steps: np.ndarray, low: np.ndarray, high: np.ndarray, colour: str) -> str:
    kept = _few(low, high)
    steps, low, high = steps[kept], low[kept], high[kept]
    around = f"{place.points(steps, low)} {place.points(steps[::-1], high[::-1])}"
    return f'<polygon points="{around}" fill="{colour}" fill-opacity="0.2"/>' if len(steps) > 1 else ""


def _dot(place: _Place, steps: float, mean: float, low: float, high: float, colour: str) -> str:
    x, look = f"{place.x(steps):.1f}", f'stroke="{colour}" stroke-width="1.2"'
    bar = f'<line x1="{x}" x2="{x}" y1="{place.y(low):.1f}" y2="{place.y(high):.1f}" {look}/>' if math.isfinite(low) else ""
    told = f"<title>evaluation at {steps:,.0f} steps: {mean:,.4g}</title>"
    return f'{bar}<circle cx="{x}" cy="{place.y(mean):.1f}" r="3" fill="white" {look}>{told}</circle>'


def ticks(low: float, high: float, most: int = 6) -> list[float]:
    """Return round numbers (1, 2 or 5 times a power of ten) from low to high, `most` at most."""
    raw = (high - low) / most
    power = 10.0 ** math.floor(math.log10(raw)) if raw > 0 else 1.0
    step = next(power * k for k in (1, 2, 5, 10) if power * k >= raw)
    first = math.ceil(low / step)
    return [k * step for k in range(first, math.floor(high / step) + 1)]


def short(value: float) -> str:
    """Return a tick's label: `250`, `0.05`, `100k`, `1.5M`."""
    power = next((k for k in (3, 2, 1) if abs(value) >= 1000**k), 0)
    return f"{value / 1000**power:.4g}{('', 'k', 'M', 'G')[power]}"
