"""Share code of the benchmarks: compile times, contestants in turns, the machine's state.

A benchmark is a set of rows. Each row runs in a process of its own, under a time limit, so that a
row that hangs or needs other XLA flags harms no other; within a row the contestants take turns
(ours, peer, peer, ours, ...) and the ratio is the median over the turns of the ratio within a turn.
"""

from __future__ import annotations

import argparse
import json
import math
import os
import statistics
import subprocess
import sys
import tempfile
from collections.abc import Callable
from importlib import metadata
from pathlib import Path
from typing import Any

from jaxrl_fast.bench.race import (  # noqa: F401, used as `bench.NAME` by every benchmark
    Compiled,
    Contestant,
    compile_apart,
    load,
    machine,
    race,
    ratios_of,
    say,
)
from jaxrl_fast.runtime import cpu_count as cores  # noqa: F401

sys.path.insert(0, str(Path(__file__).resolve().parent))

HANG_FLAG = "--xla_cpu_enable_concurrency_optimized_scheduler"


def prepare(host_devices: int = 1, cache: str | None = None):
    """Before anything of XLA starts. Returns the `jaxrl_fast` package.

    host_devices: CPU devices to ask for (no effect on an accelerator). cache: a folder, or None for
        no compile cache.
    """
    flags = os.environ.get("XLA_FLAGS", "")
    if host_devices > 1 and "--xla_force_host_platform_device_count" not in flags:
        flags += f" --xla_force_host_platform_device_count={host_devices}"
    # the peers' vmapped programs hang without it on jaxlib 0.10; other versions may not know the
    # flag and would abort
    if metadata.version("jaxlib").startswith("0.10.") and HANG_FLAG not in flags:
        flags += f" {HANG_FLAG}=false"
    os.environ["XLA_FLAGS"] = flags.strip()
    os.environ["JAXRL_FAST_CACHE"] = cache or "off"
    import jax

    import jaxrl_fast

    jax.config.update("jax_enable_compilation_cache", cache is not None)
    if cache:
        jax.config.update("jax_compilation_cache_dir", cache)
        jax.config.update("jax_persistent_cache_min_compile_time_secs", 0.0)
        jax.config.update("jax_persistent_cache_min_entry_size_bytes", -1)
    return jaxrl_fast


def preset_run(algorithm: str, environment: str) -> dict[str, Any]:
    """Return the settings of a preset's run; the preset must be there."""
    from jaxrl_fast.algorithms.presets import find_preset

    found = find_preset(algorithm, environment)
    assert found is not None, f"{algorithm}/{environment} has no preset"
    return found.run


def report(row: dict[str, Any], log=say) -> None:
    """A row as text: every ratio comes with the thread mode and the load."""
    m = row["machine"]
    log(f"  {m['device']}, {m['cores']} cores, NPROC {m['nproc']}, load {m['load']} -> "
        f"{row['load_after']}")
    log(f"  versions {' '.join(f'{k} {v}' for k, v in m['versions'].items())}; XLA_FLAGS "
        f"{m['xla_flags'] or 'unset'}")
    for note in row["notes"]:
        log(f"  note: {note}")
    for name, r in row.get("contestants", {}).items():
        spread = f"{min(r['seconds']):.2f}..{max(r['seconds']):.2f}"
        score = f"  return {statistics.fmean(r['scores']):.1f}" if r["scores"] else ""
        log(
            f"  {name:<26}{r['steps_per_second']:>12,.0f} steps/s  {r['median_seconds']:.2f} s "
            f"({spread})  "
            f"trace {r['trace']:.2f} lower {r['lower']:.2f} compile {r['compile']:.2f} s{score}"
        )
    for name, ratio in row.get("ratios", {}).items():
        turns = " ".join(f"{x:.2f}" for x in ratio["turns"])
        log(
            f"  speed of {name}: {ratio['median']:.2f} (turns {turns}; {m['cores']} cores, NPROC "
            f"{m['nproc']}, "
            f"load {m['load'][0] if m['load'] else '?'} -> "
            f"{row['load_after'][0] if row['load_after'] else '?'})"
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
    p = argparse.ArgumentParser(description=doc,
                                formatter_class=argparse.RawDescriptionHelpFormatter)
    p.add_argument("--rows", nargs="+", choices=list(rows), default=list(rows), help="default: all")
    p.add_argument("--turns", type=int, default=turns,
                   help=f"measured runs of each contestant (default {turns})")
    p.add_argument("--scale", type=float, default=1.0,
                   help="fraction of the environment steps, to try the script out")
    p.add_argument("--json", metavar="PATH", help="write everything measured to this file")
    p.add_argument("--timeout", type=float, default=1200,
                   help="seconds a row may take (default 1200)")
    p.add_argument("--row", help=argparse.SUPPRESS)  # inside the child process of a row
    return p


def main(args: argparse.Namespace, rows: dict[str, Callable[[argparse.Namespace], dict]],
         argv: list[str]) -> int:
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
            command = [sys.executable, os.path.abspath(sys.argv[0]), *argv, "--row", name, "--json",
                       str(out)]
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
