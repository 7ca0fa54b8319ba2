"""Compare a profile's shares with pieces of the iteration timed alone, on four programs.

    python scripts/profile_check.py [--seconds 2] [--out FILE.json]

A share of a trace and one of the pieces may differ by 10 points at most; exit code 1 otherwise.
XLA gets one thread, unless NPROC says another number: a sleeping thread pool wakes more slowly in a
program than in a piece that keeps it busy.
"""

from __future__ import annotations

import argparse
import json
import os
import sys
from pathlib import Path

os.environ.setdefault("NPROC", "1")

import jaxrl_fast as jf
from jaxrl_fast.doctor import machine
from jaxrl_fast.doctor.ready import busy
from jaxrl_fast.engine.config import run_config
from jaxrl_fast.engine.prepared import prepare
from jaxrl_fast.profiling import ablation
from jaxrl_fast.profiling.measure import measure

PROGRAMS = (
    ("ppo", "CartPole-v1"), ("dqn", "CartPole-v1"), ("ppo", "Breakout-MinAtar"),
    ("sac", "Pendulum-v1"),
)  # fmt: skip
POINTS = 10.0


def compare(algo: str, environment: str, seconds: float) -> dict[str, dict[str, float]]:
    """Return {piece: shares by trace and alone, and their difference in points}."""
    prepared = prepare(jf.preset(algo, environment), jf.make(environment), run_config(100_000, {}))
    profile, run = measure(prepared, None, seconds)
    alone = ablation.time_pieces(run, seconds / 4)
    here, pieces = ablation.group_shares(profile), ablation.shares(alone)
    differ = ablation.compare_shares(profile, alone)
    return {name: {"trace": here[name], "alone": pieces[name], "points": differ[name]}
            for name in pieces}


def main() -> int:
    """Print a table for each program; return 1 if a share is off by more than `POINTS`."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--seconds", type=float, default=2.0)
    parser.add_argument("--out", type=Path)
    options = parser.parse_args()
    print(f"machine: {busy(machine.examine()) or 'free'}")
    found = {}
    for algo, environment in PROGRAMS:
        found[f"{algo} {environment}"] = rows = compare(algo, environment, options.seconds)
        print(f"{algo} {environment}\n  {'piece':14}{'trace':>8}{'alone':>8}{'points':>8}")
        for name, row in rows.items():
            print(f"  {name:14}{row['trace']:8.1%}{row['alone']:8.1%}{row['points']:8.1f}",
                  flush=True)
    if options.out:
        options.out.write_text(json.dumps(found, indent=1) + "\n")
    worst = max(abs(row["points"]) for rows in found.values() for row in rows.values())
    print(f"the largest difference is {worst:.1f} points, {POINTS:g} are allowed")
    return int(worst > POINTS)


if __name__ == "__main__":
    sys.exit(main())
