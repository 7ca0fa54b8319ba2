"""Fit the model of `jaxrl-fast forecast --on` to what was counted and measured.

    python scripts/fit_gpu_model.py

Launches: of programs compiled for an H100 (results/gpu_launches.jsonl), from counts of their
traced operations. Seconds: of programs on an H200 (results/gpu.jsonl), from launches, bytes and
FLOPs. Each program is predicted by a fit to all others ("without"). The coefficients and ranges are
in jaxrl_fast/forecast.
"""

from __future__ import annotations

import argparse
import json
import os
from collections import Counter
from collections.abc import Callable
from pathlib import Path

os.environ.setdefault("JAX_PLATFORMS", "cpu")

import _aot_table as table
import numpy as np
from _aot_programs import Work
from scipy.optimize import nnls

import jaxrl_fast as jf
from jaxrl_fast.engine.config import RunConfig
from jaxrl_fast.engine.members import configurations, gather
from jaxrl_fast.forecast import elsewhere
from jaxrl_fast.forecast.sheets import SHEETS

RESULTS = Path(__file__).parents[1] / "docs/benchmarks/results"


def _more(envs: int, steps: int = 128) -> Callable[[], Work]:
    config = table.theirs.PPO_CARTPOLE | {"NUM_ENVS": envs, "NUM_STEPS": steps}
    return table._at("PPO", table._scaled(config, 1000))


def _ant() -> Work:
    algo = jf.preset("ppo", "brax/ant", num_envs=4096, num_steps=8)
    return Work(algo, jf.make("brax/ant", backend="spring"), 4096 * 8 * 100)


TIMED: dict[str, Callable[[], Work]] = {
    "PPO CartPole, 4 environments": table.TABLE["ppo_4"].work,
    "PPO CartPole, 2,048 environments": table.TABLE["ppo_2048"].work,
    "PPO CartPole, 65,536 environments": _more(65_536),
    "PPO CartPole, 1,048,576 environments, rollouts of 32": _more(1_048_576, 32),
    "PPO CartPole, 64 agents": table.TABLE["ppo_64_seeds"].work,
    "PPO CartPole, 2,048 agents": table._times(table._at("PPO", table.PPO_4), 2048),
    "DQN CartPole, 10 environments": table.TABLE["dqn_cartpole"].work,
    "DQN CartPole, 10 environments, prioritized": table.TABLE["dqn_prioritized"].work,
    "DQN Breakout-MinAtar, 1 environment, an update a step": table.TABLE["dqn_breakout"].work,
    "PQN CartPole, 32 environments": table.TABLE["pqn_cartpole"].work,
    "PQN Breakout-MinAtar, 128 environments": table.TABLE["pqn_breakout"].work,
    "SAC Pendulum, 1 environment, an update a step": table.TABLE["sac"].work,
    "Rainbow Breakout-MinAtar, preset": table._preset("rainbow", "Breakout-MinAtar"),
    "PPO brax ant (spring), 4,096 environments": _ant,
}


def rows(file: str) -> list[dict]:
    return [json.loads(line) for line in (RESULTS / file).read_text().splitlines()]


def counted(work: Work) -> Counter[str]:
    config = RunConfig(total_steps=work.steps)
    runs, grid = configurations(work.algo, work.env, config)
    traced = elsewhere.Traced(gather(runs, config).first, work.seeds, "cuda")
    counts = traced.iteration(grid)
    counts["steps"] = grid.steps * work.seeds
    return counts


def fit(features: dict[str, list[float]], wanted: dict[str, float]) -> None:
    """Print the coefficients, and each program's value by a fit to the others over its own."""
    def solve(names):
        a = np.array([features[n] for n in names]) / np.array([[wanted[n]] for n in names])
        return nnls(a, np.ones(len(names)))[0]

    names = list(wanted)
    others = {n: solve([m for m in names if m != n]) for n in names}
    ratios = {n: float(np.dot(features[n], others[n]) / wanted[n]) for n in names}
    for name, ratio in ratios.items():
        print(f"  {name:60}{wanted[name]:>14,.1f}{ratio:>8.2f}")
    low, high = min(ratios.values()), max(ratios.values())
    print(f"  coefficients {solve(names).round(4)}; without {low:.2f} to {high:.2f}")


def main() -> None:
    argparse.ArgumentParser(description=(__doc__ or "").split("\n")[0]).parse_args()
    found = {row["program"]: row["value"] for row in rows("gpu_launches.jsonl")}
    trains = lambda name: table.TABLE[name].kind != "evaluation"
    launches = {name: value for name, value in found.items() if trains(name)}
    counts = {name: counted(table.TABLE[name].work()) for name in launches}
    print("launches of an iteration")
    fit({name: [one[k] for k in elsewhere.LAUNCHES] for name, one in counts.items()}, launches)
    speeds = [row for row in rows("gpu.jsonl") if row["table"] in ("speed", "alone")]
    rates = {row["what"]: row["value"] for row in speeds}
    sheet = SHEETS["h200"]
    measured, features = {}, {}
    for name, make in TIMED.items():
        work = make()
        one = counted(work)
        measured[name] = 1e6 * one["steps"] / rates[name]
        peaks = one["bytes"] / sheet.bandwidth, one["flops"] / sheet.float32
        features[name] = [elsewhere.launches(one), *(1e6 * seconds for seconds in peaks)]
    print("microseconds of an iteration on an H200: launches, bytes and FLOPs at the card's peak")
    fit(features, measured)


if __name__ == "__main__":
    main()
