"""Programs that take turns: compile each, run each once, then measure them in turns."""

from __future__ import annotations

import dataclasses
import os
import platform
import statistics
import time
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any

from jaxrl_fast import runtime
from jaxrl_fast.doctor.machine import processor
from jaxrl_fast.doctor.software import version
from jaxrl_fast.errors import brief

if TYPE_CHECKING:
    import jax

OURS = "jaxrl_fast"  # begins the names of our contestants
PEERS = ("distrax", "flashbax", "gymnasium", "envpool", "stable-baselines3", "sbx-rl")


def machine() -> dict[str, Any]:
    """Return where and under what load a number is taken."""
    import jax

    device = jax.devices()[0]
    return {
        "device": f"{len(jax.devices())} x {device.device_kind} ({device.platform})",
        "cpu": processor(Path("/proc/cpuinfo")) or platform.processor(),
        "cores": runtime.cpu_count(),
        "nproc": os.environ.get("NPROC", "unset"),
        "xla_flags": os.environ.get("XLA_FLAGS", ""),
        "load": load(),
        "versions": runtime.versions() | {name: version(name) for name in PEERS if version(name)},
        "date": time.strftime("%Y-%m-%d %H:%M:%S"),
    }


def load() -> list[float]:
    return [round(x, 2) for x in os.getloadavg()] if hasattr(os, "getloadavg") else []


@dataclasses.dataclass(frozen=True)
class Started:
    """A program that has run once. play(turn) -> (seconds, result). facts: of compiling, steps."""

    play: Callable[[int], tuple[float, Any]]
    facts: dict[str, float]


@dataclasses.dataclass
class Contestant:
    """A function of arrays, compiled.

    build() returns the function, args(turn) its arguments. score(result) is the mean return at the
    end. steps: environment steps it is asked for; count(result), where given, those that it took.
    donate: arguments that the program may write over; they are made anew for each turn, outside of
    the timing.
    """

    name: str
    steps: int
    build: Callable[[], Callable]
    args: Callable[[int], tuple]
    score: Callable[[Any], float] | None = None
    count: Callable[[Any], int] | None = None
    donate: tuple[int, ...] = ()

    def start(self) -> Started:
        """Compile and run once."""
        import jax

        program = compile_apart(self.build(), self.args(0), self.donate)

        def play(turn: int) -> tuple[float, Any]:
            args = jax.block_until_ready(self.args(turn))
            began = time.perf_counter()
            out = jax.block_until_ready(program.call(*args))
            return time.perf_counter() - began, out

        _, out = play(0)
        steps = self.count(out) if self.count else self.steps
        facts = {"trace": program.trace, "lower": program.lower, "compile": program.compile}
        return Started(play, {"steps": steps} | facts)


@dataclasses.dataclass
class Loop:
    """A loop on the host. build() returns a function that takes `steps` steps when it is called."""

    name: str
    steps: int
    build: Callable[[], Callable[[], Any]]
    score: None = None

    def start(self) -> Started:
        """Build and run once; `first`: the seconds of both."""
        began = time.perf_counter()
        run = self.build()
        run()
        first = time.perf_counter() - began

        def play(turn: int) -> tuple[float, Any]:
            began = time.perf_counter()
            run()
            return time.perf_counter() - began, None

        return Started(play, {"steps": self.steps, "trace": 0.0, "lower": 0.0, "first": first})


@dataclasses.dataclass
class Compiled:
    call: jax.stages.Compiled
    trace: float
    lower: float
    compile: float


def compile_apart(fn: Callable, args: tuple, donate: tuple[int, ...] = ()) -> Compiled:
    """Trace, lower and backend-compile `fn`, each timed."""
    import jax

    t0 = time.perf_counter()
    traced = jax.jit(fn, donate_argnums=donate).trace(*args)
    t1 = time.perf_counter()
    lowered = traced.lower()
    t2 = time.perf_counter()
    compiled = lowered.compile()
    t3 = time.perf_counter()
    return Compiled(compiled, t1 - t0, t2 - t1, t3 - t2)


def say(text: str) -> None:
    print(text, flush=True)  # a row that is ended in time has still said what it measured


def race(
    contestants: Sequence[Contestant | Loop], turns: int, log: Callable[[str], None] = say
) -> dict[str, Any]:
    """Run each contestant once unmeasured, then let them take turns: ours, peer, peer, ours, ...

    A peer that fails in its first run is named and left out.

    Returns {"contestants": {name: steps, seconds of each turn, ...}, "ratios": see `ratios_of`}.
    """
    import jax

    started: dict[str, Started] = {}
    for one in contestants:
        try:
            found = one.start()
            if not found.facts["steps"]:
                raise RuntimeError("so short a turn has no step: --scale must be larger")
            started[one.name] = found
        except Exception as error:  # another library's, of any kind
            if one.name.startswith(OURS):
                raise
            log(f"    left out: {one.name} does not run here: {brief(error)}")
    contestants = [one for one in contestants if one.name in started]
    fresh = lambda facts: facts | {"seconds": [], "scores": [], "load": []}
    results = {name: fresh(one.facts) for name, one in started.items()}
    for turn in range(turns):
        for one in contestants if turn % 2 == 0 else contestants[::-1]:
            seconds, out = started[one.name].play(turn)
            result = results[one.name]
            result["seconds"].append(seconds)
            result["load"].append(load()[:1])
            if one.score:
                result["scores"].append(one.score(jax.device_get(out)))
            speed = f"{seconds:7.2f} s  {result['steps'] / seconds:>12,.0f} steps/s"
            score = f", return {result['scores'][-1]:.1f}" if one.score else ""
            log(f"    turn {turn + 1}/{turns}  {one.name:<28} {speed}{score}")
            del out
    for result in results.values():
        median = result["median_seconds"] = statistics.median(result["seconds"])
        result["steps_per_second"] = result["steps"] / median
        if "first" in result:
            result["compile"] = max(0.0, result.pop("first") - median)
    return {"contestants": results, "ratios": ratios_of(results)}


def ratios_of(results: dict[str, Any]) -> dict[str, Any]:
    """Return the speed of each of ours over each other's, turn by turn."""
    ratios = {}
    for name, mine in results.items():
        for other, peer in results.items():
            if name.startswith(OURS) and not other.startswith(OURS):
                work = mine["steps"] / peer["steps"]
                turns = zip(peer["seconds"], mine["seconds"], strict=True)
                pairs = [p / m * work for p, m in turns]
                ratios[f"{name} / {other}"] = {"median": statistics.median(pairs), "turns": pairs}
    return ratios
