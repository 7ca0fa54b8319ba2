"""Learning curves as small SVG pictures in milliseconds, for notebooks and reports.

In a report they are elements of the page: `logs/page.py` shows the value of a line with
`data-label` under the pointer, by the axes in the attributes `data-*` of the picture.
"""

from __future__ import annotations

import math
from collections.abc import Iterable, Mapping, Sequence
from html import escape

import numpy as np

from jaxrl_fast.logs import html
from jaxrl_fast.logs.plots import PALETTE, Rows, columns, held_means, smooth_members
from jaxrl_fast.ops.aggregate import SURE, spread

WIDTH, HEIGHT = 640, 260
NARROW = 380  # width of a picture whose letters stay readable in a third of a page, or on a phone
_LEFT, _TOP, _BOTTOM = 58.0, 26.0, 222.0  # of the axes
_MARGIN = 14  # right of them
_LEGEND = 17  # height of a line of text, also of a phone's larger letters
_MOST = 300  # points of a line
_INK, _FAINT = "#2b2d33", "#e3e5ea"


def learning_curve(
    rows_by_run: Mapping[str, Rows], metric: str = "episode_return", members: Sequence[str] = (),
    evaluations: bool = True, width: int = WIDTH,
) -> str:  # fmt: skip
    """Return SVG like the plot of `plots.learning_curve`: mean and interval of a run's members.

    Evaluations are dots. Without a finite value the axes stay empty and say so.

    Args:
        members: names of a run's members; each gets a thin line. (): no lines.
        evaluations: whether to draw the dots.
        width: of the picture in pixels; letters keep their size.
    """
    lines, dots, thin = {}, {}, {}
    shown = evaluations and metric != "eval_return"
    for label, rows in rows_by_run.items():
        steps, values = columns(rows, metric)
        window = max(1, len(steps) // 100)
        lines[label] = steps, *smooth_members(values, window), values.shape[1]
        thin[label] = held_means(values, window)[:, : len(members)]
        evaluated = [row for row in rows if row.get("eval_return") is not None]
        steps, values = columns(evaluated if shown else [], "eval_return")
        dots[label] = steps, *smooth_members(values, 1)
    known = [x[np.isfinite(x)] for _, *curves, _ in lines.values() for x in curves]
    known += [x[np.isfinite(x)] for _, *curves in dots.values() for x in curves]
    known += [x[np.isfinite(x)] for x in thin.values()]
    seen = np.concatenate([*known, []])
    if not seen.size:
        middle = (_LEFT + width - _MARGIN) / 2, (_TOP + _BOTTOM) / 2
        return _svg([_text(*middle, f"no {metric} yet", "middle")], width)
    ends = [float(steps[-1]) for steps, *_ in (*lines.values(), *dots.values()) if len(steps)]
    room = 0.05 * (seen.max() - seen.min()) or max(1.0, 1e-3 * abs(seen.max()))
    place = _Place(max(ends), float(seen.min() - room), float(seen.max() + room), width - _MARGIN)
    counts = {label: x[-1] for label, x in lines.items()}
    parts = [*_axes(place, metric), *_legend(counts, place.right, "training" if shown else "")]
    for i, (label, (steps, mean, low, high, _)) in enumerate(lines.items()):
        colour = PALETTE[i % len(PALETTE)]
        named = zip(members, thin[label].T, strict=False) if len(members) > 1 else ()
        parts += [_line(place, steps, own, colour, 0.8, name, stroke_opacity="0.45")
                  for name, own in named]
        parts += [_band(place, steps, low, high, colour),
                  _line(place, steps, mean, colour, 2, label or "mean")]
        found = np.stack(dots[label], axis=1)  # [evaluations, 4]
        parts += [_dot(place, colour, *dot) for dot in found[_few(found[:, 1])]]
    return _svg(parts, width, HEIGHT + (_LEGEND * len(lines) if len(lines) > 1 else 0), place)


def image(svg: str) -> str:
    """Return an HTML image of SVG, which a sanitizer of notebooks keeps."""
    return html.image(svg.encode(), "svg+xml", "learning curve")


class _Place:
    """Positions of values in the picture; right: the end of the axes."""

    def __init__(self, last: float, low: float, high: float, right: float):
        self.last, self.low, self.high, self.right = max(last, 1.0), low, high, float(right)

    def x(self, steps: float) -> float:
        return _LEFT + (self.right - _LEFT) * float(steps) / self.last

    def y(self, value: float) -> float:
        return _BOTTOM - (_BOTTOM - _TOP) * (float(value) - self.low) / (self.high - self.low)

    def points(self, steps: Iterable[float], values: Iterable[float]) -> str:
        pairs = zip(steps, values, strict=True)
        return " ".join(f"{self.x(s):.1f},{self.y(v):.1f}" for s, v in pairs)


def _tag(name: str, inner: str = "", **attributes: object) -> str:
    """Return an element; `stroke_width` is stroke-width, floats get one decimal."""
    shown = {k: f"{v:.1f}" if isinstance(v, float) else v for k, v in attributes.items()}
    given = "".join(f' {k.replace("_", "-")}="{v}"' for k, v in shown.items())
    return f"<{name}{given}>{inner}</{name}>"


def _svg(parts: Iterable[str], width: int, height: int = HEIGHT,
         place: _Place | None = None) -> str:
    ground, axes = _tag("rect", width=width, height=height, fill="white"), {}
    if place:
        axes["data_frame"] = f"{_LEFT} {place.right} {_TOP} {_BOTTOM}"
        axes["data_axes"] = f"{place.last} {place.low} {place.high}"
    return _tag(
        "svg", ground + "".join(parts), xmlns="http://www.w3.org/2000/svg",
        width=width, height=height, viewBox=f"0 0 {width} {height}",
        font_family="sans-serif", font_size=11, **axes,
    )  # fmt: skip


def _text(x: float, y: float, text: str, anchor: str = "start", colour: str = _INK) -> str:
    return _tag("text", escape(text), x=x, y=y, text_anchor=anchor, fill=colour)


def _axes(place: _Place, metric: str) -> list[str]:
    parts = [_text(4, 14, metric.replace("_", " "))]
    for value in ticks(place.low, place.high):
        y = place.y(value)
        parts.append(_tag("line", x1=_LEFT, x2=place.right, y1=y, y2=y, stroke=_FAINT))
        parts.append(_text(_LEFT - 6, y + 4, short(value), "end"))
    for value in ticks(0.0, place.last, 6 if place.right > NARROW else 4):
        parts.append(_text(place.x(value), _BOTTOM + 15, short(value), "middle"))
    parts.append(_tag("line", x1=_LEFT, x2=place.right, y1=_BOTTOM, y2=_BOTTOM, stroke=_INK))
    below = (_LEFT + place.right) / 2, _BOTTOM + 32
    return [*parts, _text(*below, "environment steps of each member", "middle")]


def _legend(members: Mapping[str, int], right: float, alone: str) -> list[str]:
    """Return the legend: of one run above the axes, of several below them. alone: of one member."""
    if len(members) == 1:
        (count,) = members.values()
        interval = f"{spread(count)} of the {'mean' if count >= SURE else 'members'}"
        told = f"mean of {count} members, {interval}" if count > 1 else alone
        return [_text(right, 14, told, "end", PALETTE[0])] if told else []
    found = []
    for i, (label, count) in enumerate(members.items()):
        named = f"{label} ({count} member{'s' * (count > 1)})"[:100]
        y, colour = HEIGHT + 8 + _LEGEND * i, PALETTE[i % len(PALETTE)]
        found.append(_text(_LEFT, y, named, "start", colour))
    return found


def _few(*arrays: np.ndarray) -> np.ndarray:
    """Return where all arrays are finite: at most `_MOST` places and the last one."""
    has = np.flatnonzero(np.all([np.isfinite(x) for x in arrays], axis=0))
    return np.unique(np.append(has[:: -(-len(has) // _MOST) or 1], has[-1:]))


def _line(
    place: _Place, steps: np.ndarray, mean: np.ndarray, colour: str,
    width: float = 2, label: str = "", **more: str
) -> str:
    kept = _few(mean)
    if not len(kept):
        return ""
    if len(kept) == 1:  # a line of one point is invisible
        (x,), (y,) = map(place.x, steps[kept]), map(place.y, mean[kept])
        return _tag("circle", cx=x, cy=y, r=3, fill=colour)
    points, label = place.points(steps[kept], mean[kept]), escape(label)
    return _tag("polyline", points=points, fill="none", stroke=colour,
                stroke_width=width, data_label=label, **more)


def _band(place: _Place, steps: np.ndarray, low: np.ndarray, high: np.ndarray, colour: str) -> str:
    kept = _few(low, high)
    if len(kept) < 2:
        return ""
    back = kept[::-1]
    around = f"{place.points(steps[kept], low[kept])} {place.points(steps[back], high[back])}"
    return _tag("polygon", points=around, fill=colour, fill_opacity="0.2")


def _dot(place: _Place, colour: str, steps: float, mean: float, low: float, high: float) -> str:
    x, look, bar = place.x(steps), {"stroke": colour, "stroke_width": "1.2"}, ""
    if math.isfinite(low):
        bar = _tag("line", x1=x, x2=x, y1=place.y(low), y2=place.y(high), **look)
    told = _tag("title", f"evaluation at {steps:,.0f} steps: {mean:,.4g}")
    return bar + _tag("circle", told, cx=x, cy=place.y(mean), r=3, fill="white", **look)


def ticks(low: float, high: float, most: int = 6) -> list[float]:
    """Return round numbers from low to high, about `most`: 1, 2 or 5 times a power of ten."""
    raw = (high - low) / most
    power = 10.0 ** math.floor(math.log10(raw)) if raw > 0 else 1.0
    step = next(power * k for k in (1, 2, 5, 10) if power * k >= raw)
    return [k * step for k in range(math.ceil(low / step), math.floor(high / step) + 1)]


def short(value: float) -> str:
    """Return a tick's label: `250`, `0.05`, `100k`, `1.5M`."""
    power = next((k for k in (3, 2, 1) if abs(value) >= 1000**k), 0)
    return f"{value / 1000**power:.4g}{('', 'k', 'M', 'G')[power]}"
