"""Forecasts as text, as JSON and as a picture."""

from __future__ import annotations

import dataclasses
from collections.abc import Sequence
from pathlib import Path
from typing import Any

from jaxrl_fast.doctor.quantities import gib, si
from jaxrl_fast.forecast.amounts import Forecast, Range
from jaxrl_fast.logs import plots
from jaxrl_fast.logs.terminal import align_columns


def duration(seconds: float) -> str:
    """Return `0.4 s`, `12 s`, `3 min 5 s`, `2 h 10 min` or `3 d 4 h`."""
    if seconds < 59.5:
        return f"{seconds:.1f} s" if seconds < 9.95 else f"{seconds:.0f} s"
    used = next(unit for unit in _UNITS if seconds + unit[1] / 2 < unit[0])
    _, part, parts, unit, rest = used
    whole, left = divmod(round(seconds / part), parts)
    return f"{whole} {unit}" + (f" {left} {rest}" if left else "")


# seconds below which a unit is used; seconds of its parts, and how many it has; their names
_UNITS = (
    (3600, 1, 60, "min", "s"), (86400, 60, 60, "h", "min"), (float("inf"), 3600, 24, "d", "h"),
)  # fmt: skip
_AXES = ((86400, "days"), (3600, "hours"), (60, "minutes"))


def show_range(x: Range, show: Any = duration) -> tuple[str, str]:
    """Return a range's middle and its ends ("LOW to HIGH") as text; ends "" if both look alike."""
    low, high = show(x.low), show(x.high)
    return show(x.middle), f"{low} to {high}" if low != high else ""


def rows(one: Forecast) -> list[tuple[str, str, str]]:
    """Return (what, expected, range) of a forecast."""
    parts = [*one.parts.items(), ("time", one.seconds)]
    found = [(name, *show_range(x)) for name, x in parts if x.high > 0]
    found.append(("steps/s", *show_range(one.steps_per_second, lambda x: f"{x:,.0f}")))
    room = "" if one.have is None else f"{'of' if one.fits else 'does not fit:'} {gib(one.have)}"
    found.append(("memory", gib(one.need), room))
    if one.watts is not None:
        show = lambda joules: si(joules / 3600, "Wh")
        found.append(("energy", show(one.joules.middle), f"{one.watts:,.0f} W on average"))
    if one.cost is not None:
        middle, ends = show_range(one.cost, money)
        found.append(("money", middle, f"{ends} at {one.price:g} an hour".strip()))
    return found


def money(amount: float) -> str:
    """Return an amount in the unit of the user's prices."""
    return f"{amount:,.2f}" if amount >= 1 else f"{amount:.2g}"


def text(title: str, one: Forecast) -> str:
    """Return a forecast as a table, and its assumptions."""
    lines = [title, f"on {one.device}", f"  {'':10}{'expected':>14}  range"]
    lines += [f"  {what:10}{middle:>14}  {span}".rstrip() for what, middle, span in rows(one)]
    lines += ["assumed:"] * bool(one.assumptions) + [f"  {line}" for line in one.assumptions]
    return "\n".join(lines)


def table(title: str, found: Sequence[Forecast]) -> str:
    """Return forecasts for several devices, a line each, as they are ordered."""
    shown = [("device", "time", "range", "money", "range", "memory")]
    for one in found:
        cost = ("", "") if one.cost is None else show_range(one.cost, money)
        room = "fits" if one.fits else "does not fit"
        shown.append((one.device, *show_range(one.seconds), *cost, room))
    return "\n".join([title, *(f"  {line}" for line in align_columns(shown, left=len(shown[0])))])


def as_json(title: str, found: Sequence[Forecast]) -> dict[str, Any]:
    """Return forecasts as an object for JSON: seconds, bytes, joules, prices."""
    def content(one: Forecast) -> dict[str, Any]:
        more = {"seconds": one.seconds, "joules": one.joules, "cost": one.cost}
        whole = {name: x and dataclasses.asdict(x) for name, x in more.items()}
        return dataclasses.asdict(one) | whole | {"fits": one.fits}

    return {"run": title, "forecasts": [content(one) for one in found]}


def draw(title: str, found: Sequence[Forecast], path: str | Path) -> Path:
    """Draw the time on each device, divided into its parts; lines are the ranges."""
    canvas, axes = plots.figure()
    names = list(dict.fromkeys(name for one in found for name in one.parts))
    largest = max(one.seconds.high for one in found)
    size, unit = next((pair for pair in _AXES if largest > 2 * pair[0]), (1, "seconds"))
    for i, name in enumerate(names):
        part = [one.parts[name].middle / size if name in one.parts else 0.0 for one in found]
        left = lambda one, i=i: sum(one.parts[k].middle for k in names[:i] if k in one.parts)
        before, colour = [left(one) / size for one in found], plots.PALETTE[i]
        axes.barh(range(len(found)), part, left=before, color=colour, label=name, height=0.5)
    for place, one in enumerate(found):
        low, middle, high = (x / size for x in dataclasses.astuple(one.seconds))
        ends = [[middle - low], [high - middle]]
        axes.errorbar(middle, place, xerr=ends, color="#2b2d33", capsize=4, linewidth=1.2)
    axes.set_yticks(range(len(found)), [plots.fold_text(one.device, 22) for one in found])
    axes.invert_yaxis()
    plots.style(axes, unit, "", title)
    plots.legend_below(canvas, axes)
    return plots.save(canvas, Path(path))
