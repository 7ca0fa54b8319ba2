"""The rows of `bench_control.py` that measure SAC: against rejax and SBX."""

from __future__ import annotations

import statistics
import subprocess
import time

import bench_common as bench

from jaxrl_fast.bench import pendulum


def sac_pendulum(args):
    jf = bench.prepare()
    notes = []
    contestants = pendulum.pendulum(
        jf, args.rejax, max(500, int(pendulum.REJAX_SAC["total_timesteps"] * args.scale)), notes)
    return {"machine": bench.machine(), "notes": notes} | bench.race(contestants, args.turns)


SBX = """
import sys, time, warnings
warnings.filterwarnings("ignore")
from sbx import SAC
from jaxrl_fast.bench import ours, peers, theirs
updates = int(sys.argv[1])
model = SAC("MlpPolicy", "Pendulum-v1", learning_starts=300, batch_size=256, buffer_size=100_000,
            policy_kwargs=dict(net_arch=[256, 256]))
model.learn(600)
began = time.perf_counter()
model.learn(updates, reset_num_timesteps=False)
print(updates / (time.perf_counter() - began))
"""


def sac_sbx(args):
    """An update a step in one environment, both; SBX in a process of its own, for it brings
    PyTorch."""
    jf = bench.prepare()
    import jax

    notes, updates = [], max(200, int(2000 * args.scale))
    algo = jf.SAC(num_envs=1, updates_per_iteration=1, learning_starts=300, batch_size=256,
                  buffer_size=100_000)
    steps = updates + 300
    program = (
        jax.jit(
            jf.make_train(algo, jf.make("Pendulum-v1"), total_steps=steps)
        ).lower(jax.random.key(0)).compile()
    )
    jax.block_until_ready(program(jax.random.key(0)))
    speeds = {"jaxrl_fast": [], "SBX": []}
    for turn in range(args.turns):
        for who in ("jaxrl_fast", "SBX") if turn % 2 == 0 else ("SBX", "jaxrl_fast"):
            if who == "SBX" and not args.sbx_python:
                continue
            if who == "SBX":
                done = subprocess.run([args.sbx_python, "-c", SBX, str(updates)],
                                      capture_output=True, text=True, timeout=900)
                if done.returncode:
                    raise SystemExit(done.stderr[-2000:])
                speeds[who].append(float(done.stdout.split()[-1]))
            else:
                began = time.perf_counter()
                jax.block_until_ready(program(jax.random.key(turn)))
                speeds[who].append(updates / (time.perf_counter() - began))
            bench.say(
                f"    turn {turn + 1}/{args.turns}  {who:<12} {speeds[who][-1]:>10,.0f} updates/s")
    row = {"machine": bench.machine(), "notes": notes, "speeds": speeds}
    if speeds["SBX"]:
        ratios = [a / b for a, b in zip(speeds["jaxrl_fast"], speeds["SBX"], strict=True)]
        row["ratio"] = statistics.median(ratios)
        bench.say(f"  speed of jaxrl_fast / SBX: {row['ratio']:.2f} "
                  f"({' '.join(f'{x:.2f}' for x in ratios)})")
    else:
        notes.append("peer absent, SBX: no --sbx-python given")
    return row
