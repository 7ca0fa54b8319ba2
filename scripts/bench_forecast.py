"""Compare the forecast of a run with what the run then takes.

    python scripts/bench_forecast.py --json forecast.json
    python scripts/bench_forecast.py --rows dqn_breakout

Each program: `jaxrl-fast forecast`, `jaxrl-fast train` with the same flags, and the forecast once
more, each without a compile cache of earlier runs. The mean of both forecasts is compared, because
others may use the machine more or less by then. Time is that of the process of the run, from its
start to its end. Exit code 1 if a forecast is off by more than 20%.
"""

from __future__ import annotations

import argparse
import json
import os
import subprocess
import sys
import tempfile
import time
from pathlib import Path

from bench_common import load

ROWS = {
    "ppo_cartpole": "ppo CartPole-v1 --total-steps 1e6 --seeds 2",
    "dqn_breakout": "dqn Breakout-MinAtar --total-steps 60e3",
    "sac_pendulum": "sac Pendulum-v1 --total-steps 15e3",
}
WITHIN = 0.2


def call(command: str, flags: list[str], folder: Path) -> tuple[float, str]:
    """Run a command with an empty compile cache -> (seconds, its output)."""
    environment = os.environ | {"JAXRL_FAST_CACHE": str(folder / f"cache-{command}")}
    began = time.perf_counter()
    done = subprocess.run(
        [sys.executable, "-m", "jaxrl_fast", command, *flags], env=environment, text=True,
        stdout=subprocess.PIPE, check=True,
    )  # fmt: skip
    return time.perf_counter() - began, done.stdout


def forecast(flags: list[str], folder: Path) -> tuple[dict, float]:
    """Return the forecast of a run and the seconds that it took."""
    spent, out = call("forecast", [*flags, "--busy", "--json"], folder)
    return json.loads(out)["forecasts"][0], spent


def compare(line: str) -> dict:
    """Return the forecasts and the run of the flags in `line`."""
    flags = line.split()
    with tempfile.TemporaryDirectory() as made:
        folder, loads = Path(made), [load()]
        before, spent = forecast(flags, folder / "before")
        loads.append(load())
        took, _ = call("train", [*flags, "--out", str(folder / "run")], folder)
        loads.append(load())
        after, _ = forecast(flags, folder / "after")
        result = json.loads((folder / "run/result.json").read_text())
    both = [one["seconds"]["middle"] for one in (before, after)]
    parts = {k: (v["middle"] + after["parts"][k]["middle"]) / 2 for k, v in before["parts"].items()}
    return {
        "command": f"jaxrl-fast train {line}", "device": before["device"], "forecasts": both,
        "forecast": sum(both) / 2, "took": took, "off": sum(both) / 2 / took - 1, "parts": parts,
        "took_parts": {"start": took - result["wall_seconds"], **result["seconds"]},  # and pictures
        "command_took": spent, "load": [*loads, load()], "date": time.strftime("%Y-%m-%d"),
    }  # fmt: skip


def main() -> int:
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("--rows", nargs="+", choices=list(ROWS), default=list(ROWS))
    parser.add_argument("--json", type=Path, metavar="FILE", help="write what was measured there")
    args, found = parser.parse_args(), {}
    for name in args.rows:
        one = found[name] = compare(ROWS[name])
        loads = " ".join(str(load[0]) for load in one["load"])
        first, second = one["forecasts"]
        span = f"{one['forecast']:6.1f} s ({first:.1f} before, {second:.1f} after)"
        took = f"{one['took']:6.1f} s: {one['off']:+.0%}"
        print(f"{name:14} forecast {span}, took {took}, load {loads}", flush=True)
        for part, seconds in one["parts"].items():
            print(f"    {part:10}{seconds:8.1f}{one['took_parts'].get(part, 0.0):8.1f}")
        if args.json:
            args.json.write_text(json.dumps(found, indent=1) + "\n")
    return int(any(abs(one["off"]) > WITHIN for one in found.values()))


if __name__ == "__main__":
    sys.exit(main())
