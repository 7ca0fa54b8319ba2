"""`jaxrl-fast ladder`: its flags, its table and its plot."""

from __future__ import annotations

import contextlib
import math
import signal
import time
from collections.abc import Callable, Iterator, Sequence
from pathlib import Path
from typing import Any

from jaxrl_fast import runtime
from jaxrl_fast.cli.args import Option, read_arguments
from jaxrl_fast.cli.ladder import rungs as ladders
from jaxrl_fast.cli.ladder.rungs import FRAMES, GAMES, SOLVED, Climb, Rung, check, choose, climb
from jaxrl_fast.cli.option import choices_text
from jaxrl_fast.errors import (
    ConfigError,
    MissingExtraError,
    RunError,
    UserError,
    brief,
    check_choice,
)
from jaxrl_fast.logs.plots import figure, legend_beside, look, name_ticks, save, style
from jaxrl_fast.runs.config_json import write_json
from jaxrl_fast.runs.signals import Stopped

OPTIONS = [
    Option("rungs", "append", help="rungs to climb, in this order",
           metavar=choices_text([r.name for r in ladders.RUNGS]),
           hint="repeatable; default: all, torch where PyTorch is there"),
    Option("minutes", "float", 3.0, "minutes for each rung, from the start of its training"),
    Option("full", "bool", False,
           f"train each rung until the mean score of {GAMES} games is {SOLVED:g}, "
           "or until its learning rate has fallen to 0"),
    Option("seed", "int", 0, "seed of environments, networks and exploration"),
    Option("out", "path", "ladder", "folder for ladder.json and ladder.png", metavar="DIR"),
]  # fmt: skip


def ladder(argv: list[str], known: Sequence[Rung] = ladders.RUNGS,
           climb: Callable[..., Any] = climb) -> None:
    """Train the rungs, by default all `known` ones, and print the speed of each."""
    about = "Pong, faster rung by rung: frames and steps a second, and time to the solve."
    (task,), given = read_arguments("ladder", about, argv)
    check_choice("task", task, ("pong",))
    out = Path(given.get("out", "ladder"))
    if (out / "ladder.json").exists() or out.is_file():
        raise ConfigError("--out", str(out), "a folder without an earlier ladder")
    if given.get("full") and "minutes" in given:
        valid = "left out with --full, which trains until the task is solved"
        raise ConfigError("--minutes", given["minutes"], valid)
    minutes, seed = None if given.get("full") else given.get("minutes", 3.0), given.get("seed", 0)
    check(minutes, seed)
    rungs = choose(given.get("rungs", ()), known)
    if not rungs:
        raise MissingExtraError("the ladder", "atari")
    for rung in known if not given.get("rungs") else ():
        if rung not in rungs:
            print(f"left out: {rung.name}, which needs pip install "
                  f"'jaxrl_fast[{ladders.needs(rung)}]'")
    runtime.enable_compile_cache()
    found: list[Climb] = []
    failed: list[Exception] = []
    print(head())
    for rung in rungs:
        found.append(Climb(rung))
        try:
            with terminable():
                climb(found[-1], minutes, seed, progress())
        except KeyboardInterrupt as stop:
            signum = getattr(stop, "signum", signal.SIGINT)
            found[-1].ended = signal.Signals(signum).name
            report(found, out)
            raise Stopped(signum, f"in the rung {rung.name}; the finished part is in "
                                  f"{out / 'ladder.json'}") from None
        except Exception as error:  # the other rungs still run
            failed.append(error)
            found[-1].ended = str(error) if isinstance(error, UserError) else brief(error)
            print(f"{rung.name} failed: {found[-1].ended}", flush=True)
        report(found, out)
    print(f"{out / 'ladder.json'}, {out / 'ladder.png'}")
    if failed and len(rungs) == 1:
        raise failed[0]
    if failed:
        raise RunError(f"{len(failed)} of {len(rungs)} rungs failed: "
                       + ", ".join(c.rung.name for c in found if c.ended))


@contextlib.contextmanager
def terminable() -> Iterator[None]:
    """Turn SIGTERM and SIGHUP into Ctrl-C while a rung does not handle them."""

    def stop(signum: int, frame: Any) -> None:
        raise Stopped(signum)

    both = {n: signal.getsignal(n) for n in (signal.SIGTERM, signal.SIGHUP)}
    before = {n: old for n, old in both.items() if old != signal.SIG_IGN}
    for number in before:
        signal.signal(number, stop)
    try:
        yield
    finally:
        for number, old in before.items():
            signal.signal(number, old)


def report(found: Sequence[Climb], out: Path) -> None:
    """Print a line for the last rung; write the files for all."""
    print(line(found[-1], next((c for c in found if math.isfinite(c.rate)), found[0])), flush=True)
    out.mkdir(parents=True, exist_ok=True)
    write_json(out / "ladder.json", {"task": "pong", "versions": runtime.versions(),
                                     "rungs": [c.as_dict() for c in found]})
    draw(found, out / "ladder.png")


def progress(every: float = 60.0) -> Callable[[Climb], None]:
    """Return a function that prints a line about the current rung every so many seconds."""
    last = time.monotonic()

    def say(climb: Climb) -> None:
        nonlocal last
        if time.monotonic() - last >= every:
            last = time.monotonic()
            score = f", score {climb.score:.1f}" if climb.curve else ""
            print(f"  {climb.rung.name}: {climb.steps:,} steps in {climb.seconds / 60:.1f} "
                  f"minutes{score}", flush=True)

    return say


def head() -> str:
    columns = (f"{'rung':<8} {'steps/s':>8} {'frames/s':>9} {'times':>6} {'score':>6} {'steps':>9} "
               f"{'minutes':>8}")
    return f"{columns}   {'the book':<18} what"


def line(climb: Climb, first: Climb) -> str:
    show = lambda x, spec: format(x, spec) if math.isfinite(x) else "-"
    minutes = f"> {climb.seconds / 60:.1f}" if climb.solved is None else f"{climb.solved / 60:.1f}"
    book = "{} steps/s, {} min".format(*climb.rung.published) if climb.rung.published else ""
    return (f"{climb.rung.name:<8} {show(climb.rate, '8.0f'):>8} "
            f"{show(FRAMES * climb.rate, '9.0f'):>9} {show(climb.rate / first.rate, '6.1f'):>6} "
            f"{show(climb.score, '6.1f'):>6} {climb.steps:>9,} {minutes:>8}   {book:<18} "
            f"{climb.rung.what}")


def draw(climbs: Sequence[Climb], path: Path) -> Path:
    """Draw each rung's steps a second and minutes to solve beside the book's, and the scores."""
    canvas, axes = figure()
    axes.remove()
    scored = [i for i, one in enumerate(climbs) if one.curve]
    above = canvas.add_subplot(2 if scored else 1, 1, 1)
    for i, one in enumerate(climbs):
        book = one.rung.published
        above.bar(i, one.rate, color=look(i)["color"])
        if one.solved is not None:
            above.annotate(f"{one.solved / 60:.0f} min", (i, one.rate), ha="center",
                           va="bottom", fontsize=8)
        if book:
            above.plot([i - 0.4, i + 0.4], [book[0]] * 2, color="#2b2d33", lw=1.5)
    name_ticks(above, [one.rung.name for one in climbs])
    above.set_yscale("log")
    frames = above.secondary_yaxis("right", functions=(lambda x: FRAMES * x, lambda x: x / FRAMES))
    frames.set_ylabel("raw frames/s")
    for side in (above, frames):
        side.yaxis.set_major_formatter("{x:,.0f}")
        side.yaxis.set_minor_formatter("")
    style(above, "", "agent steps/s", "line: the book, on a desktop with a GPU")
    if scored:
        below = canvas.add_subplot(2, 1, 2)
        for i in scored:
            minutes = [t / 60 for t, _, _ in climbs[i].curve]
            scores = [score for *_, score in climbs[i].curve]
            below.plot(minutes, scores, **look(i), label=climbs[i].rung.name)
        style(below, "minutes", f"score, last {GAMES} games")
        below.axhline(SOLVED, color="#c9ccd3", lw=1)
        legend_beside(below)
    return save(canvas, path)
