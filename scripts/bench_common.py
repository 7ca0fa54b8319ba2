"""Share code of the benchmarks: compile times, contestants in turns, the machine's state.

A benchmark is a set of rows. Each row runs in a process of its own, under a time limit, so that a row that hangs or
needs other XLA flags harms no other; within a row the contestants take turns (ours, peer, peer, ours, ...) and the
ratio is the median over the turns of the ratio within a turn.
"""

from __future__ import annotations

import argparse
import contextlib
import dataclasses
import json
import math
import os
import platform
import statistics
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable
from importlib import metadata
from pathlib import Path
from typing import TYPE_CHECKING, Any, cast

if TYPE_CHECKING:
    import jax

sys.path.insert(0, str(Path(__file__).resolve().parent))

HANG_FLAG = "--xla_cpu_enable_concurrency_optimized_scheduler"


def prepare(host_devices: int = 1, cache: str | None = None):
    """Before anything of XLA starts. Returns the `jaxrl_fast` package, or None where it is not installed.

    host_devices: CPU devices to ask for (no effect on an accelerator). cache: a folder, or None for no compile cache.
    """
    flags = os.environ.get("XLA_FLAGS", "")
    if host_devices > 1 and "--xla_force_host_platform_device_count" not in flags:
        flags += f" --xla_force_host_platform_device_count={host_devices}"
    # the peers' vmapped programs hang without it on jaxlib 0.10; other versions may not know the flag and would abort
    if metadata.version("jaxlib").startswith("0.10.") and HANG_FLAG not in flags:
        flags += f" {HANG_FLAG}=false"
    os.environ["XLA_FLAGS"] = flags.strip()
    os.environ["JAXRL_FAST_CACHE"] = cache or "off"
    library = _library()
    import jax

    jax.config.update("jax_enable_compilation_cache", cache is not None)
    if cache:
        jax.config.update("jax_compilation_cache_dir", cache)
        jax.config.update("jax_persistent_cache_min_compile_time_secs", 0.0)
        jax.config.update("jax_persistent_cache_min_entry_size_bytes", -1)
    return library


def _library():
    try:
        import jaxrl_fast
    except ImportError as error:
        if not (error.name or "").startswith("jaxrl_fast"):
            raise
        return cast(Any, None)  # a row that needs it fails; `bench_ours.usable` asks
    return jaxrl_fast


def cores() -> int:
    """Cores that this process may use, NPROC respected (as XLA respects it)."""
    count = len(os.sched_getaffinity(0)) if hasattr(os, "sched_getaffinity") else os.cpu_count() or 1
    limit = os.environ.get("NPROC", "")
    return max(1, min(count, int(limit))) if limit.isdigit() and int(limit) else count


def machine() -> dict[str, Any]:
    """Where and under what load a number was taken."""
    import jax

    versions = {"python": platform.python_version()}
    for name in ("jaxrl_fast", "jax", "jaxlib", "flax", "optax", "gymnax", "distrax", "flashbax", "numpy"):
        with contextlib.suppress(metadata.PackageNotFoundError):
            versions[name] = metadata.version(name)
    device = jax.devices()[0]
    cpu = ""
    with contextlib.suppress(OSError):
        lines = Path("/proc/cpuinfo").read_text().splitlines()
        cpu = next((line.split(":", 1)[1].strip() for line in lines if line.startswith("model name")), "")
    return {
        "device": f"{len(jax.devices())} x {device.device_kind} ({device.platform})",
        "cpu": cpu or platform.processor(),
        "cores": cores(),
        "nproc": os.environ.get("NPROC", "unset"),
        "xla_flags": os.environ.get("XLA_FLAGS", ""),
        "load": load(),
        "versions": versions,
        "date": time.strftime("%Y-%m-%d %H:%M:%S"),
    }


def load() -> list[float]:
    return [round(x, 2) for x in os.getloadavg()] if hasattr(os, "getloadavg") else []


@dataclasses.dataclass
class Contestant:
    """One program. `build()` gives `fn`, `args(turn)` its arguments, `score(result)` the mean return at the end.

    steps: environment steps it is asked for; `count(result)`, where given, is how many it really took.
    donate: which arguments the program may write over; `args` makes them again for every turn, outside the timing.
    """

    name: str
    steps: int
    build: Callable[[], Callable]
    args: Callable[[int], tuple]
    score: Callable[[Any], float] | None = None
    count: Callable[[Any], int] | None = None
    donate: tuple[int, ...] = ()


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
    print(text, flush=True)  # a row that is ended for its time limit has still said what it measured


def race(contestants: list[Contestant], turns: int, log=say) -> dict[str, Any]:
    """Compile every contestant, run each once unmeasured, then let them take turns."""
    import jax

    programs, results = {}, {}
    for one in contestants:
        program = compile_apart(one.build(), one.args(0), one.donate)
        out = jax.block_until_ready(program.call(*one.args(0)))
        programs[one.name] = program
        results[one.name] = {
            "steps": one.count(out) if one.count else one.steps,
            "trace": program.trace,
            "lower": program.lower,
            "compile": program.compile,
            "seconds": [],
            "scores": [],
            "load": [],
        }
        del out
    for turn in range(turns):
        order = contestants if turn % 2 == 0 else contestants[::-1]
        for one in order:
            args = one.args(turn)
            jax.block_until_ready(args)
            start = time.perf_counter()
            out = jax.block_until_ready(programs[one.name].call(*args))
            seconds = time.perf_counter() - start
            result = results[one.name]
            result["seconds"].append(seconds)
            result["load"].append(load()[:1])
            if one.score:
                result["scores"].append(one.score(jax.device_get(out)))
            speed = f"{seconds:7.2f} s  {result['steps'] / seconds:>12,.0f} steps/s"
            score = f", return {result['scores'][-1]:.1f}" if one.score else ""
            log(f"    turn {turn + 1}/{turns}  {one.name:<24} {speed}{score}")
            del out
    for result in results.values():
        result["median_seconds"] = statistics.median(result["seconds"])
        result["steps_per_second"] = result["steps"] / result["median_seconds"]
    return {"contestants": results, "ratios": ratios_of(results)}


def ratios_of(results: dict[str, Any]) -> dict[str, Any]:
    """Speed of each of ours to that of each other, turn by turn."""
    ratios = {}
    for name, mine in results.items():
        for other, peer in results.items():
            if name.startswith("jaxrl_fast") and not other.startswith("jaxrl_fast"):
                work = mine["steps"] / peer["steps"]
                pairs = [p / m * work for p, m in zip(peer["seconds"], mine["seconds"], strict=True)]
                ratios[f"{name} / {other}"] = {"median": statistics.median(pairs), "turns": pairs}
    return ratios


def report(row: dict[str, Any], log=say) -> None:
    """A row as text: every ratio comes with the thread mode and the load."""
    m = row["machine"]
    log(f"  {m['device']}, {m['cores']} cores, NPROC {m['nproc']}, load {m['load']} -> {row['load_after']}")
    log(f"  versions {' '.join(f'{k} {v}' for k, v in m['versions'].items())}; XLA_FLAGS {m['xla_flags'] or 'unset'}")
    for note in row["notes"]:
        log(f"  note: {note}")
    for name, r in row.get("contestants", {}).items():
        spread = f"{min(r['seconds']):.2f}..{max(r['seconds']):.2f}"
        score = f"  return {statistics.fmean(r['scores']):.1f}" if r["scores"] else ""
        log(
            f"  {name:<26}{r['steps_per_second']:>12,.0f} steps/s  {r['median_seconds']:.2f} s ({spread})  "
            f"trace {r['trace']:.2f} lower {r['lower']:.2f} compile {r['compile']:.2f} s{score}"
        )
    for name, ratio in row.get("ratios", {}).items():
        turns = " ".join(f"{x:.2f}" for x in ratio["turns"])
        log(
            f"  speed of {name}: {ratio['median']:.2f} (turns {turns}; {m['cores']} cores, NPROC {m['nproc']}, "
            f"load {m['load'][0] if m['load'] else '?'} -> {row['load_after'][0] if row['load_after'] else '?'})"
        )


# 97.5% quantiles of Student's t by degrees of freedom
T = [math.nan, 12.71, 4.30, 3.18, 2.78, 2.57, 2.45, 2.36, 2.31, 2.26]


def interval(scores):
    """Half width of the 95% interval of the mean."""
    n = len(scores)
    if n < 2:
        return math.nan
    return (T[n - 1] if n <= len(T) else 1.96) * statistics.stdev(scores) / math.sqrt(n)


def parser(doc: str | None, rows: dict[str, Any], turns: int = 5) -> argparse.ArgumentParser:
    p = argparse.ArgumentParser(description=doc, formatter_class=argparse.RawDescriptionHelpFormatter)
    p.add_argument("--rows", nargs="+", choices=list(rows), default=list(rows), help="default: all")
    p.add_argument("--turns", type=int, default=turns, help=f"measured runs of each contestant (default {turns})")
    p.add_argument("--scale", type=float, default=1.0, help="fraction of the environment steps, to try the script out")
    p.add_argument("--json", metavar="PATH", help="write everything measured to this file")
    p.add_argument("--timeout", type=float, default=1200, help="seconds a row may take (default 1200)")
    p.add_argument("--row", help=argparse.SUPPRESS)  # inside the child process of a row
    return p


def main(args: argparse.Namespace, rows: dict[str, Callable[[argparse.Namespace], dict]], argv: list[str]) -> int:
    """Run each row in a child process (`--row NAME`), print it and collect the JSON."""
    if args.row:
        row = rows[args.row](args)
        row.setdefault("notes", [])
        row["load_after"] = load()
        Path(args.json).write_text(json.dumps(row))
        return 0
    collected, failed = {}, 0
    for name in args.rows:
        print(f"{name}:", flush=True)
        with tempfile.TemporaryDirectory() as folder:
            out = Path(folder) / "row.json"
            command = [sys.executable, os.path.abspath(sys.argv[0]), *argv, "--row", name, "--json", str(out)]
            try:
                code = subprocess.run(command, timeout=args.timeout).returncode
            except subprocess.TimeoutExpired:
                code = f"nothing within {args.timeout:.0f} s"
            if code == 0 and out.exists():
                collected[name] = json.loads(out.read_text())
                report(collected[name])
            else:
                failed += 1
                collected[name] = {"failed": str(code)}
                print(f"  FAILED: {code}")
        if args.json:
            Path(args.json).write_text(json.dumps(collected, indent=1) + "\n")
    return 1 if failed else 0
