"""Repeat the walk of docs/performance.md: DQN on Breakout-MinAtar from a profile to its tuned form.

    python scripts/bench_performance.py --json docs/benchmarks/results/performance.jsonl
    python scripts/benchmark_pages.py                              # the page, of these numbers
    python scripts/bench_performance.py --steps 2e4 --turns 1      # try the script out

Every number comes from `jaxrl-fast` in a process of its own. Trainings take turns; their compile
cache is in a temporary folder, like all files. Ten minutes on two idle cores.
"""

from __future__ import annotations

import argparse
import json
import os
import statistics
import subprocess
import sys
import tempfile
from collections.abc import Iterable
from pathlib import Path
from typing import Any

from bench_common import load, machine
from bench_forecast import compare

from jaxrl_fast.bench.report import describe_machine

PROGRAM = "dqn Breakout-MinAtar"
FEWER = "--algo.updates-per-iteration 1 --algo.batch-size 64"
FORMS = {
    "preset, one seed": "", "half the updates, batches twice as large": FEWER,
    "preset, two seeds": "--seeds 2", "fewer updates, two seeds": f"{FEWER} --seeds 2",
}  # fmt: skip
Row = dict[str, Any]


def call(words: str, folder: Path) -> str:
    """Run a command of `jaxrl-fast` in a folder -> its output."""
    environment = os.environ | {"JAXRL_FAST_CACHE": str(folder / "cache")}
    command = [sys.executable, "-m", "jaxrl_fast", *words.split()]
    done = subprocess.run(command, env=environment, cwd=folder, text=True, stdout=subprocess.PIPE,
                          check=True)  # fmt: skip
    return done.stdout


def profiles(folder: Path) -> Iterable[Row]:
    """Yield the speed and the parts of either form in a profile, and what `--try` measured."""
    for block, flags in (("preset", "--try"), ("fewer updates", FEWER)):
        words = f"profile {PROGRAM} {flags}"
        call(f"{words} --busy --out {block.split()[0]}", folder)
        found = json.loads((folder / block.split()[0] / "profile.json").read_text())
        common = {"block": block, "command": f"jaxrl-fast {words}"}
        rate = round(found["steps_per_second"])
        yield common | {"table": "profile", "what": block, "value": rate, "unit": "steps/s"}
        for part in sorted(found["parts"], key=lambda part: -part["share"]):
            if part["share"] >= 0.005:
                spent = {"value": round(1e6 * part["seconds"], 1), "unit": "us"}
                yield common | {"table": "parts", "what": part["title"], **spent}
        for trial in found["trials"]:
            if trial["gain"]:
                gain = {"value": round(trial["after"]), "peer_value": round(trial["before"]),
                        "unit": "steps/s", "ratio": round(trial["gain"], 2)}  # fmt: skip
                flags = " ".join(trial["flags"])
                yield common | {"table": "try", "what": flags, "peer": "without it", **gain}


def trainings(folder: Path, steps: str, turns: int) -> Iterable[Row]:
    """Yield the training of each form in turns; gains are over the first one of the turn."""
    rates: dict[str, list[float]] = {name: [] for name in FORMS}
    command = lambda flags: f"train {PROGRAM} --total-steps {steps} --eval-every 0 {flags}".strip()
    for turn in range(turns):
        for name, flags in list(FORMS.items())[:: 1 if turn % 2 == 0 else -1]:
            out = f"run-{name.replace(' ', '-')}-{turn}"
            call(f"{command(flags)} --out {out}", folder)
            result = json.loads((folder / out / "result.json").read_text())
            rates[name].append(result["steps_per_second"])
    first, *_ = FORMS
    for name, found in rates.items():
        row = {"table": "walk", "what": name, "value": round(statistics.median(found)),
               "unit": "steps/s", "seeds": 1 + name.endswith("two seeds"),
               "command": f"jaxrl-fast {command(FORMS[name])}"}  # fmt: skip
        ratios = [mine / its for mine, its in zip(found, rates[first], strict=True)]
        compared = {"peer": first, "peer_value": round(statistics.median(rates[first])),
                    "turns": [round(x, 3) for x in ratios],
                    "ratio": round(statistics.median(ratios), 2)}  # fmt: skip
        yield row | (compared if name != first else {})


def search(folder: Path) -> Row:
    """Return what tune-speed tries for the last form, as one text, and the speed that it keeps."""
    words = f"tune-speed {PROGRAM} {FORMS['fewer updates, two seeds']}"
    lines = call(f"{words} --busy", folder).splitlines()
    tried = "; ".join(" ".join(line.split()) for line in lines if line.startswith("  "))
    kept = [json.loads(file.read_text())["speed"] for file in folder.glob("cache/tuned/*.json")]
    speed = {"value": kept[0] if kept else 1.0, "unit": "times the defaults' speed"}
    return {"table": "search", "what": tried, "command": f"jaxrl-fast {words}", **speed}


def forecast(steps: str) -> Row:
    """Return the forecast of the last form, the mean of two, beside what the run took."""
    flags = FORMS["fewer updates, two seeds"]
    found = compare(f"{PROGRAM} --total-steps {steps} {flags}")
    return {"table": "forecast", "what": "fewer updates, two seeds", "peer": "the run",
            "value": round(found["forecast"], 1), "peer_value": round(found["took"], 1),
            "ratio": round(found["forecast"] / found["took"], 2), "unit": "s",
            "forecasts": [round(x, 1) for x in found["forecasts"]],
            "command": found["command"].replace(" train ", " forecast ")}  # fmt: skip


def main() -> None:
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("--json", type=Path, metavar="FILE", help="write the rows there")
    parser.add_argument("--turns", type=int, default=3, help="trainings of each form")
    parser.add_argument("--steps", default="3e5", help="environment steps of a training")
    args, rows = parser.parse_args(), []
    here = machine()
    common = {"peer": None, "seeds": 1, "turns": None, "date": here["date"][:10],
              **describe_machine(here)}
    with tempfile.TemporaryDirectory() as made:
        folder = Path(made)
        steps = (
            lambda: profiles(folder), lambda: trainings(folder, args.steps, args.turns),
            lambda: [search(folder)], lambda: [forecast(args.steps)],
        )  # fmt: skip
        for step in steps:
            before = load()
            found = list(step())
            loads = [x[0] for x in (before, load()) if x]
            for row in found:
                rows.append(common | row | {"load": loads})
                gain = f"  x {row['ratio']:.2f}" if "ratio" in row else ""
                print(f"{row['table']:9}{row['what']:60}{row['value']:>12,} {row['unit']}{gain}",
                      flush=True)  # fmt: skip
            if args.json:
                args.json.write_text("".join(json.dumps(row) + "\n" for row in rows))


if __name__ == "__main__":
    main()
