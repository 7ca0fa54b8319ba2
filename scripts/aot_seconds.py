"""Measure CPU seconds to compile programs for an H100 without one, ours and the peers' in turns.

    pip install -e '.[cuda12]'
    python scripts/aot_seconds.py --programs ppo_4 --purejaxrl DIR --rejax DIR --json seconds.jsonl

Tracing, lowering and compiling of a whole run, in a process of its own each time, without caches.
User and system time, ptxas included: on a busy machine it is steadier than the time that passes.
"""

from __future__ import annotations

import argparse
import contextlib
import json
import os
import statistics
import subprocess
import sys
import time
from pathlib import Path
from typing import Any

import _aot_targets as targets
import _peers

PEERS = {"ppo_4": "PureJaxRL", "ppo_2048": "PureJaxRL", "dqn_cartpole": "rejax"}
OURS = "jaxrl_fast"


def compile_one(args: argparse.Namespace) -> None:
    """Print the CPU seconds of each stage as JSON, and which program it was."""
    targets.prepare()  # before JAX starts
    import _aot_compile
    import _aot_programs as programs
    import _aot_table as table

    from jaxrl_fast.ops import lowering

    target, row = targets.parse("h100"), table.TABLE[args.programs[0]]
    work, notes = row.work(), []
    if args.only == OURS:
        program = programs.build(row.kind, work, target)
    else:
        found = {one.name: one for one in table.peers_of(row, args, notes)}
        if args.only not in found:
            sys.exit(f"no {args.only}: {'; '.join(notes)}")
        program = programs.peer(found[args.only], work.seeds, row.iterations, target)
    at = [_spent()]
    with target.described(), lowering.known(target.platform):
        traced = program.fn.trace(*program.args)
        at.append(_spent())
        lowered = traced.lower(lowering_platforms=(target.platform,))
        at.append(_spent())
        lowered.compile()
    at.append(_spent())
    stages = dict(zip(("trace", "lower", "compile"), map(float.__sub__, at[1:], at), strict=True))
    versions = _aot_compile.versions(target.platform)
    print(json.dumps({"what": row.what, "stages": stages, "versions": versions}))


def _spent() -> float:
    return sum(os.times()[:4])


def main(argv: list[str]) -> None:
    parser = argparse.ArgumentParser(description=__doc__,
                                     formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--programs", nargs="+", default=["ppo_4", "dqn_cartpole"], choices=PEERS,
                        help="names of aot_report.py (default ppo_4 dqn_cartpole)")
    parser.add_argument("--turns", type=int, default=3, help="(default 3)")
    parser.add_argument("--json", type=Path, help="rows are appended here")
    parser.add_argument("--only", help=argparse.SUPPRESS)  # compile this one, in this process
    _peers.add_arguments(parser, "purejaxrl", "rejax", "purejaxql")
    args = parser.parse_args(argv)
    if args.only:
        return compile_one(args)
    for name in args.programs:
        measure(argv, args, name, PEERS[name])


def measure(argv: list[str], args: argparse.Namespace, name: str, peer: str) -> None:
    """Compile a program and its peer in turns; print and write the means."""
    totals: dict[str, list[float]] = {OURS: [], peer: []}
    found: dict[str, Any] = {}
    loads = []
    for turn in range(args.turns):
        for who, seconds in totals.items():
            command = [sys.executable, __file__, *argv, "--programs", name, "--only", who]
            out = subprocess.run(command, check=True, stdout=subprocess.PIPE, text=True).stdout
            found = json.loads(out.splitlines()[-1])
            seconds.append(sum(found["stages"].values()))
            loads.append(os.getloadavg()[0])
            shown = " ".join(f"{k} {v:.2f}" for k, v in found["stages"].items())
            print(f"{name} {turn + 1} {who:<12} {seconds[-1]:6.2f} s: {shown}", flush=True)
    ours, theirs = map(statistics.mean, totals.values())
    row = {
        "table": "ahead", "program": name, "what": found["what"], "peer": peer,
        "value": round(ours, 2), "peer_value": round(theirs, 2), "ratio": round(ours / theirs, 2),
        "turns": [round(a / b, 2) for a, b in zip(*totals.values(), strict=True)],
        "unit": "CPU s", "seeds": None, "repeats": args.turns,
        "load": f"{min(loads):.1f} to {max(loads):.1f}", "date": time.strftime("%Y-%m-%d"),
        "machine": "compiled for NVIDIA H100 80GB HBM3 on a CPU",
        "versions": ", ".join(map(" ".join, found["versions"].items())),
        "command": "python scripts/aot_seconds.py --purejaxrl DIR --rejax DIR",
    }  # fmt: skip
    print(f"{name}: {ours:.2f} and {theirs:.2f} CPU s, {row['ratio']}")
    if args.json:
        with contextlib.closing(args.json.open("a")) as file:
            file.write(json.dumps(row) + "\n")


if __name__ == "__main__":
    main(sys.argv[1:])
