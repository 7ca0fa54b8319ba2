"""A memory plan as text."""

from __future__ import annotations

from typing import Any


def table(plan: Any) -> str:
    """Show a `MemoryPlan`: a line a part, the total, and whether it fits."""
    p = plan.population
    devices = f"{len(p.devices)} device{'s' * (len(p.devices) > 1)}"
    many = f"{p.size} members by {p.mode} on {devices}" if p.size > 1 else "one member"
    many += ", each of which holds" if len(p.devices) > 1 and not plan.shared else ""
    parts = [row for row in (*plan.resident(), *plan.training(), *plan.evaluating()) if row[1] * row[2]]
    lines = [("", "one", "times", "all")]
    lines += [(part, show(size), str(count), show(size * count)) for part, size, count in parts]
    if plan.temporaries is not None:
        times = str(plan.places)
        lines.append(("compiled temporaries", show(plan.temporaries), times, show(plan.temporaries * plan.places)))
    lines.append(("total", "", "", show(plan.need)))
    text = [f"{plan.name}: {many}"]
    text += [f"  {part:32}{one:>12}{times:>8}{every:>12}" for part, one, times, every in lines]
    note = "with the compiled temporaries for" if plan.temporaries is not None else "with the larger of"
    text.append(f"  ({note} training and evaluation, which take turns)")
    device = f"{p.devices[0].device_kind}{', which all host devices share' if plan.places > 1 else ''}"
    if plan.have is None:
        text.append(f"the memory of {device} is not known")
    else:
        share = f"{100 * plan.need / plan.have:.0f}% of the {show(plan.have)} of {device}"
        text.append(f"{'fits' if plan.fits else 'does not fit'}: {share}")
    text.append(f"checkpoints: at most {show(plan.disk)} on the disk (keep_checkpoints = {plan.config.keep_checkpoints})")
    return "\n".join(text)


def show(size: int) -> str:
    """Bytes in the unit that leaves one to four digits before the point."""
    for unit in ("B", "KiB", "MiB", "GiB"):
        if size < 1024 or unit == "GiB":
            break
        size /= 1024
    return f"{size:.0f} B" if unit == "B" else f"{size:,.1f} {unit}"
