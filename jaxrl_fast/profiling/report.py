"""A profile as a table, a picture and JSON."""

from __future__ import annotations

import dataclasses
import json
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any

from jaxrl_fast.doctor.quantities import si
from jaxrl_fast.logs import plots
from jaxrl_fast.profiling.ablation import group_shares
from jaxrl_fast.profiling.advice import Suggestion
from jaxrl_fast.profiling.parts import MEMORY, Part, Profile
from jaxrl_fast.profiling.trials import Trial

LEAST = 0.0005  # share of a part that is shown
HEADS = ("share", "time", "arithmetic", "memory", "starts", "of a limit")
WIDTHS = (7, 10, 13, 10, 9, 18)
SIDES = {"program": "the program", "actors": "actors", "learner": "learner"}


def table(profile: Profile) -> str:
    """Return the parts of an iteration by share, one line each; numbers are per iteration."""
    timing = profile.timing
    lines = [
        f"{profile.algo} on {profile.environment}, {profile.device}: {si(timing.iteration, 's')} "
        f"an iteration of {timing.steps:,} steps, {timing.steps_per_second:,.0f} steps/s"
    ]
    for side in profile.sides:
        heads = "".join(f"{head:>{width}}" for head, width in zip(HEADS, WIDTHS, strict=True))
        lines.append(f"  {SIDES[side]:22}{heads}")
        parts = sorted(profile.side(side), key=lambda part: -part.share)
        lines += [_row(part) for part in parts if part.share >= LEAST]
    if profile.alone:
        lines.append(f"  {'pieces alone':22}{'alone':>7}{'here':>10}")
        here = group_shares(profile)
        lines += [f"  {name:22}{share:7.1%}{here[name]:10.1%}"
                  for name, share in profile.alone.items()]
    busy = f"the device is {profile.busy}: times are too long" if profile.busy else ""
    lines += [f"  {text}" for text in (profile.note, busy) if text]
    return "\n".join(lines)


def _row(part: Part) -> str:
    cells = (
        f"{part.share:.1%}", si(part.seconds, "s"),
        si(part.flops, "FLOP") if part.flops else "", si(part.bytes, "B") if part.bytes else "",
        f"{part.starts:,.0f}" if part.starts >= 0.5 else "", of_roof(part),
    )  # fmt: skip
    padded = "".join(f"{cell:>{width}}" for cell, width in zip(cells, WIDTHS, strict=True))
    return f"  {part.title:22}{padded}".rstrip()


def of_roof(part: Part) -> str:
    """Return how near a part is to the limit of its device: `36% arithmetic`, `caches`."""
    if not part.roof:
        return ""
    if part.of_roof > 1 and part.roof == MEMORY:
        return "caches"
    return f"{min(part.of_roof, 1):.0%} {part.roof}"


def advice_lines(
    suggestions: Sequence[Suggestion], trials: Sequence[Trial],
    typed: Callable[[Sequence[str]], str]
) -> str:
    """Return the suggestions with their gain, if tried; typed: flags -> the line to type."""
    if not suggestions:
        return "no setting is known to save much here"
    lines = []
    order = [(trial.suggestion, trial) for trial in trials] or [(one, None) for one in suggestions]
    for i, (one, trial) in enumerate(order, 1):
        if trial and (trial.gain or 1) < 1 and "Slower" not in lines:
            lines.append("Slower")
        elif not lines:
            lines.append("Faster")
        known = trial.text if trial else f"at most {one.bound:.1f} times"
        changed = "" if one.same else "; learns differently"
        lines += [f"  {i}. {known}: {one.text}{changed}", f"     {typed(one.flags)}"]
    return "\n".join(lines)


def as_json(profile: Profile, suggestions: Sequence[Suggestion], trials: Sequence[Trial]) -> str:
    """Return one JSON object: the profile, its advice and the trials."""
    timing = profile.timing
    content = {
        **dataclasses.asdict(profile),
        "seconds_per_iteration": timing.iteration,
        "steps_per_second": timing.steps_per_second,
        "advice": [dataclasses.asdict(one) | {"flags": list(one.flags)} for one in suggestions],
        "trials": [{"flags": list(t.suggestion.flags), "gain": t.gain, "before": t.before,
                    "after": t.after, "refused": t.refused} for t in trials],
    }  # fmt: skip
    for part, entry in zip(profile.parts, content["parts"], strict=True):
        entry["title"] = part.title
    return json.dumps(content, indent=1)


def picture(profile: Profile, path: Path) -> Path:
    """Draw the shares as bars, a panel for each side, with the limit that each part is near."""
    canvas, first = plots.figure()
    first.remove()
    shown = {side: [p for p in profile.side(side) if p.share >= LEAST] for side in profile.sides}
    heights = [len(parts) + 1 for parts in shown.values()]
    canvas.set_figheight(0.27 * sum(heights) + 1.1)
    widest = 135 * max((part.share for parts in shown.values() for part in parts), default=1)
    panels = canvas.subplots(len(shown), 1, height_ratios=heights, squeeze=False)[:, 0]
    for axes, (side, parts) in zip(panels, shown.items(), strict=True):
        _bars(axes, parts, widest)
        axes.set_ylabel(SIDES[side])
    timing = profile.timing
    rate = f"{si(timing.iteration, 's')} an iteration, {timing.steps_per_second:,.0f} steps/s"
    title = f"{profile.algo} on {profile.environment} ({profile.device}): {rate}"
    panels[0].set_title(plots.fold_text(title, 84), fontsize=10, loc="left")
    panels[-1].set_xlabel("share of an iteration's time; behind it, how near to a limit of the "
                          "device")
    return plots.save(canvas, path)


def _bars(axes: Any, parts: Sequence[Part], widest: float) -> None:
    shares = [100 * part.share for part in parts]
    quiet = ("waiting", "idle", "loops", "host", "other")
    colours = ["#c9ccd3" if part.name in quiet else plots.PALETTE[0] for part in parts]
    texts = [f"{100 * part.share:.0f}%" + f", {of_roof(part)}" * bool(part.roof) for part in parts]
    plots.bars(axes, [part.title for part in parts], shares, texts, colours)
    axes.set_xlim(0, widest)
    axes.xaxis.set_major_formatter("{x:.0f}%")
    for edge in ("top", "right"):
        axes.spines[edge].set_visible(False)
