"""The doctor's report, for a terminal or a pipe, and as one JSON object."""

from __future__ import annotations

import dataclasses
import io
import json
import textwrap
from collections.abc import Sequence
from typing import TextIO

from jaxrl_fast.doctor.facts import Advice, Backend, Cache, Facts, Limits, Machine
from jaxrl_fast.doctor.quantities import gib, si

TITLES = {"wrong": ("Wrong", "bold red"), "faster": ("Faster", "bold"), "note": ("Notes", "bold")}
NAMES = {"float32": "float32", "tf32": "TF32", "bf16": "bfloat16"}


def as_json(facts: Facts, advice: Sequence[Advice], seconds: float) -> str:
    """Return one JSON object: `ok`, `advice`, `facts` and the seconds that it took."""
    content = {
        "ok": not count_wrong(advice),
        "advice": [dataclasses.asdict(one) for one in advice],
        "facts": dataclasses.asdict(facts),
        "seconds": round(seconds, 2),
    }
    return json.dumps(content, indent=1)


def count_wrong(advice: Sequence[Advice]) -> int:
    """Return how many things are wrong."""
    return sum(one.level == "wrong" for one in advice)


def print_report(facts: Facts, advice: Sequence[Advice], seconds: float, stream: TextIO) -> None:
    """Print facts, measurements and advice; lines to type are never folded."""
    from rich.console import Console
    from rich.text import Text

    seen, written = Console(file=stream), io.StringIO()
    console = Console(
        file=written, width=seen.width, force_terminal=seen.is_terminal, color_system="auto",
        highlight=False, markup=False, emoji=False,
    )  # fmt: skip
    count = count_wrong(advice)
    ended = f"{count} thing{'s' * (count > 1)} wrong" if count else "nothing is wrong"
    for text, style in [
        *fact_lines(facts, console.width),
        *advice_lines(advice, console.width),
        (f"{ended}; {seconds:.1f} s", "bold red" if count else "bold green"),
    ]:
        console.print(Text(text, style), soft_wrap=True)
    stream.write(written.getvalue())  # rich would end the process over a closed pipe
    stream.flush()


def fact_lines(facts: Facts, width: int) -> list[tuple[str, str]]:
    """Return (line, style) of the facts."""
    lines = []
    for title, rows in sections(facts).items():
        lines.append((title, "bold"))
        for name, text in rows:
            lines += [(line, "") for line in indent(f"  {name:18}", text, width)]
    return lines


def advice_lines(advice: Sequence[Advice], width: int) -> list[tuple[str, str]]:
    """Return (line, style) of the advice, by level; a line to type is one line."""
    lines = []
    for level, (title, style) in TITLES.items():
        chosen = [one for one in advice if one.level == level]
        lines += [(title, style)] if chosen else []
        for number, one in enumerate(chosen, 1):
            text = indent(f"  {number}. ", gain_text(one) + one.text, width)
            lines += [*((line, "") for line in text), (f"     {one.line}", "cyan")]
    return lines


def indent(name: str, text: str, width: int) -> list[str]:
    """Return text beside a name, in lines of `width` columns; long words stay whole."""
    fold = textwrap.TextWrapper(
        max(width, len(name) + 20), break_long_words=False, break_on_hyphens=False,
        subsequent_indent=" " * len(name),
    )  # fmt: skip
    first, *rest = text.split("\n")
    more = [line for part in rest for line in fold.wrap(" " * len(name) + part)]
    return [*fold.wrap(name + first), *more]


def gain_text(advice: Advice) -> str:
    return f"up to {advice.gain:.1f} times: " if advice.gain >= 1.05 else ""


def sections(facts: Facts) -> dict[str, list[tuple[str, str]]]:
    """Return {title: rows (name, text)} of all but the advice."""
    flags = [f"{k}={v}" for k, v in facts.flags.items()]
    shown = {
        "Installation": [
            ("versions", ", ".join(f"{k} {v}" for k, v in facts.versions.items())),
            ("XLA flags", "\n".join(flags) or "none"),
            ("variables", "\n".join(f"{k}={v}" for k, v in facts.variables.items()) or "none"),
        ],
        "Machine": [*machine_rows(facts.machine), *backend_rows(facts.backend)],
        "Compile cache": cache_rows(facts.cache),
    }
    if facts.limits:
        busy = " (low: the machine is busy)" * facts.machine.busy
        shown[f"Measured on {facts.limits.device}{busy}"] = limit_rows(facts.limits)
    return shown


def machine_rows(machine: Machine) -> list[tuple[str, str]]:
    allowed = f", {machine.quota:g} allowed" if machine.quota else ""
    load = "" if machine.load is None else f", load {machine.load:.1f}"
    share = f"{machine.share:.0%} of a core for a busy thread"
    sizes = [(machine.memory_bytes, "in all"), (machine.available_bytes, "available")]
    cards = [
        f"{c.name}, driver {c.driver}, {gib(c.used_bytes)} of {gib(c.total_bytes)} taken, "
        f"{c.utilization:.0%} busy"
        for c in machine.cards
    ]
    return [
        ("processor", machine.processor or "not known"),
        ("threads", f"{machine.cores} cores{allowed}{load}, {share}"),
        ("memory", ", ".join(f"{gib(size)} {what}" for size, what in sizes if size) or "not known"),
        ("NVIDIA cards", "\n".join(cards) or ("yes" if machine.nvidia else "none")),
    ]


def backend_rows(backend: Backend) -> list[tuple[str, str]]:
    if not backend.platform:
        return [("JAX runs on", "nothing: it does not start")]
    kinds = dict.fromkeys(backend.kinds)
    named = ", ".join(f"{backend.kinds.count(kind)} x {kind}" for kind in kinds)
    memory = f", {gib(backend.memory_bytes)} for programs" if backend.memory_bytes else ""
    return [("JAX runs on", f"{backend.platform}: {named}{memory}")]


def cache_rows(cache: Cache) -> list[tuple[str, str]]:
    if not cache.folder:
        return [("folder", "none")]
    rows = [("folder", cache.folder)]
    if cache.error:
        return [*rows, ("error", cache.error)]
    rows.append(("programs", f"{cache.programs:,}, {gib(cache.size_bytes)}"))
    if cache.reused is not None and cache.programs:
        share = cache.reused / cache.programs
        rows.append(("read again", f"{share:.0%} of the programs, by access times"))
    hits = f"{cache.hits} of {cache.requests} of this command's programs, by JAX's events"
    rows.append(("hits", hits))
    if cache.read_seconds is not None:
        times = f"{si(cache.read_seconds, 's')} to read it back"
        if cache.compile_seconds is not None:
            times += f", {si(cache.compile_seconds, 's')} to compile it"
        rows.append(("one program", times))
    return rows


def limit_rows(limits: Limits) -> list[tuple[str, str]]:
    products = [(f"products {NAMES[k]}", si(v, "FLOP/s")) for k, v in limits.products.items()]
    both = (("to the device", limits.to_device), ("to the host", limits.from_device))
    return [
        *products,
        ("memory", f"{si(limits.bandwidth, 'B/s')} read and written"),
        ("call", f"{si(limits.call, 's')} queued, {si(limits.round_trip, 's')} with its result"),
        ("turn of a loop", f"{si(limits.turn, 's')} in a program, around one small product"),
        *((name, "the same memory" if rate is None else si(rate, "B/s")) for name, rate in both),
    ]
