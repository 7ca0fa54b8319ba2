"""Turn a report of gpu_report.py into rows of docs/benchmarks/results/gpu.jsonl.

    python scripts/gpu_results.py gpu.jsonl --before older.jsonl >>
    docs/benchmarks/results/gpu.jsonl

`--before`: an earlier report of the same card, whose ratio (or rate) stands beside the new one.
"""

from __future__ import annotations

import argparse
import json
import re
import statistics
import sys
from pathlib import Path
from typing import Any

import gpu_report as report

WHAT = {
    "ppo_4": "PPO CartPole, 4 environments",
    "ppo_2048": "PPO CartPole, 2,048 environments",
    "ppo_65536": "PPO CartPole, 65,536 environments",
    "ppo_1048576": "PPO CartPole, 1,048,576 environments, rollouts of 32",
    "ppo_breakout": "PPO Breakout-MinAtar, 64 environments",
    "seeds_64": "PPO CartPole, 64 agents",
    "seeds_2048": "PPO CartPole, 2,048 agents",
    "agents_2048_whole": "2,048 PPO agents, 499,712 steps each",
    "dqn_cartpole": "DQN CartPole, 10 environments",
    "dqn_breakout": "DQN Breakout-MinAtar, 1 environment, an update a step",
    "pqn_cartpole": "PQN CartPole, 32 environments",
    "pqn_breakout": "PQN Breakout-MinAtar, 128 environments",
    "sac_pendulum": "SAC Pendulum, 1 environment, an update a step",
    "rainbow_breakout": "Rainbow Breakout-MinAtar, preset",
    "dqn_breakout_128": "DQN Breakout-MinAtar, preset",
    "ant_4096": "PPO brax ant (spring), 4,096 environments",
    "humanoid_4096": "PPO brax humanoid (spring), 4,096 environments",
    "cartpole_475": "PPO CartPole to 475",
    "pqn_breakout_20": "PQN Breakout-MinAtar to 20",
    "dqn_breakout_20": "DQN Breakout-MinAtar to 20",
    "ant_6000": "PPO brax ant (spring) to 6,000",
}
FLAGS = {"graphs_off": "no graphs", "graphs_while": "loops in graphs"}


def named(row: str) -> str:
    """Return the text of a row's name, such as `graphs_off:ppo_4`, with its flags."""
    flags, _, name = row.rpartition(":")
    return WHAT[name] + (f", {FLAGS[flags]}" if flags else "")


def about(row: dict[str, Any]) -> dict[str, Any]:
    """Command, date, machine and versions of a row."""
    machine = row["machine"]
    card = re.sub(r"^1 x (.*) \(gpu\)$", r"\1", machine["device"])
    versions = ", ".join(f"{name.capitalize() if name == 'python' else name} {v}"
                         for name, v in machine["versions"].items())
    return {
        "seeds": None,
        "command": f"python scripts/gpu_report.py --rows {row['row']}",
        "date": machine["date"][:10],
        "machine": f"{card}, {machine['cores']} CPU cores",
        "versions": versions,
    }


def speed(row: dict[str, Any], before: dict[str, Any]) -> list[dict[str, Any]]:
    """Return a measurement for each peer of a row, or one without a peer."""
    programs, old = row["contestants"], before.get("contestants", {})
    found = []
    for ours in (name for name in programs if name.startswith("jaxrl_fast")):
        mine = programs[ours]
        common = {
            "what": named(row["row"]) + ours.removeprefix("jaxrl_fast"),
            "value": round(mine["steps_per_second"]),
            "unit": "steps/s",
            "seconds": round(statistics.median(mine["seconds"]), 3),
            "before": round(old[ours]["steps_per_second"]) if ours in old else None,
        }
        peers = [name for name in programs if not name.startswith("jaxrl_fast")]
        for peer in peers:
            key = f"{ours} / {peer}"
            found.append(
                {"table": "graphs" if ":" in row["row"] else "speed"} | common | {
                    "peer": peer,
                    "peer_value": round(programs[peer]["steps_per_second"]),
                    "ratio": round(row["ratios"][key]["median"], 2),
                    "ratio_before": round(before["ratios"][key]["median"], 2) if before else None,
                    "turns": [round(x, 3) for x in row["ratios"][key]["turns"]],
                }
            )  # fmt: skip
        if not peers:
            found.append({"table": "alone"} | common | {"peer": None, "turns": None})
    return [one | about(row) for one in found]


def score(row: dict[str, Any]) -> list[dict[str, Any]]:
    """Seconds to a score, or the evaluation at the end where training returns did not reach it."""
    seconds, steps, last = row["curve"][-1]
    reached = row["seconds_to_score"] is not None
    return [
        {
            "table": "scores", "what": named(row["row"]), "peer": None,
            "value": row["seconds_to_score"] if reached else seconds,
            "unit": "s", "turns": None, "steps_to": row["steps_to_score"] if reached else steps,
            "reached_in": "training" if reached else "not in training", "last": round(last, 1),
            "evaluation": round(row["evaluation"], 1),
        }
        | about(row)
        | {"seeds": [0]}
    ]  # fmt: skip


def compiled(row: dict[str, Any]) -> list[dict[str, Any]]:
    """Trace, lowering and compiler together, of a program alone on the machine."""
    seconds = {who: sum(p[part] for part in ("trace", "lower", "compile"))
               for who, p in row["contestants"].items()}
    ours = seconds.pop("jaxrl_fast")
    what = f"compile, {WHAT[row['row'].removeprefix('compile:')]}"
    one = {"table": "compile", "what": what, "value": round(ours, 2), "unit": "s",
           "turns": None} | about(row)
    return [one | {"peer": peer, "peer_value": round(theirs, 2)}
            for peer, theirs in seconds.items()]


def measurements(new: list[dict[str, Any]], old: list[dict[str, Any]]) -> list[dict[str, Any]]:
    """Every finished row of a report as measurements of docs/benchmarks/results."""
    before = {row["row"]: row for row in old if "contestants" in row}
    found = []
    for row in new:
        if "wanted" in row:
            found += score(row)
        elif row.get("row", "").startswith("compile:"):
            found += compiled(row)
        elif row.get("contestants"):
            found += speed(row, before.get(row["row"], {}))
    return found


def main(argv: list[str]) -> int:
    parser = argparse.ArgumentParser(description=__doc__,
                                     formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("report", type=Path, help="JSON Lines file of gpu_report.py")
    parser.add_argument("--before", type=Path, help="an earlier report to stand beside it")
    args = parser.parse_args(argv)
    for row in measurements(report.written(args.report),
                            report.written(args.before) if args.before else []):
        print(json.dumps(row))
    return 0


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
