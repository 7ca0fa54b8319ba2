"""The rows of `bench_control.py` that measure SAC: against rejax and SBX."""

from __future__ import annotations

import statistics
import subprocess
import time
from typing import Any

import _peer_settings as theirs
import _peers
import bench_common as bench
import bench_ours as ours
from bench_common import Contestant

REJAX_SAC: dict[str, Any] = dict(  # configs/gymnax/pendulum.yaml of rejax
    num_envs=1, buffer_size=10_000, fill_buffer=256, batch_size=256, learning_rate=0.01, num_epochs=1,
    total_timesteps=10_000, gamma=0.99, polyak=0.98, normalize_observations=True,
)  # fmt: skip


REJAX_TD3: dict[str, Any] = dict(
    num_envs=1, buffer_size=10_000, fill_buffer=1000, batch_size=100, learning_rate=0.001, num_epochs=1, total_timesteps=10_000,
    gamma=0.99, polyak=0.95, max_grad_norm=100, exploration_noise=0.3, target_noise=0.2, target_noise_clip=0.5, policy_delay=2,
    normalize_observations=True,
)  # fmt: skip
_COMMON: dict[str, Any] = dict(
    num_envs=1, updates_per_iteration=1, buffer_size=10_000, discount=0.99, normalize_observations=True, hidden=(64, 64),
    critic_hidden=(64, 64), activation="silu",
)  # fmt: skip


def sac(jf):
    """Our SAC at rejax's settings."""
    return jf.SAC(**_COMMON, learning_starts=256, batch_size=256, learning_rate=0.01, target_tau=0.02)


def td3(jf):
    """Our TD3 at rejax's settings."""
    return jf.TD3(
        **_COMMON, learning_starts=1000, batch_size=100, learning_rate=0.001, target_tau=0.05, exploration_noise=0.3,
        target_noise=0.2, target_noise_clip=0.5, policy_period=2,
    )  # fmt: skip


def _key(turn):
    import jax

    return (jax.random.key(turn),)


def rejax_pendulum(rejax, name, settings, steps, notes):
    """rejax's `name` on Pendulum-v1, without its evaluations; [] and a note where its checkout is absent."""

    def peer():
        package = _peers.rejax(rejax)
        env, params = _peers.legacy_make("Pendulum-v1")
        own = settings | {"total_timesteps": steps, "eval_freq": steps, "skip_initial_evaluation": True}
        made = package.get_algo(name).create(env=env, env_params=params, **own)
        made = made.replace(eval_callback=lambda algo, state, key: ())
        return Contestant("rejax", steps, lambda: lambda key: made.train(key), _key)

    return theirs.present(notes, peer)


def pendulum(jf, rejax, steps, notes):
    """Our SAC on Pendulum-v1 and rejax's (from the checkout `rejax`), at rejax's settings, over `steps`."""
    build = lambda: jf.make_train(sac(jf), jf.make("Pendulum-v1"), total_steps=steps)
    score = lambda out: ours.final_return(out[1])
    peer = rejax_pendulum(rejax, "sac", REJAX_SAC | {"agent_kwargs": {"activation": "swish"}}, steps, notes)
    return [Contestant("jaxrl_fast", steps, build, _key, score, ours.env_steps), *peer]


def sac_pendulum(args):
    jf = bench.prepare()
    notes = []
    contestants = pendulum(jf, args.rejax, max(500, int(REJAX_SAC["total_timesteps"] * args.scale)), notes)
    return {"machine": bench.machine(), "notes": notes} | bench.race(contestants, args.turns)


SBX = """
import sys, time, warnings
warnings.filterwarnings("ignore")
from sbx import SAC
updates = int(sys.argv[1])
model = SAC("MlpPolicy", "Pendulum-v1", learning_starts=300, batch_size=256, buffer_size=100_000,
            policy_kwargs=dict(net_arch=[256, 256]))
model.learn(600)
began = time.perf_counter()
model.learn(updates, reset_num_timesteps=False)
print(updates / (time.perf_counter() - began))
"""


def sac_sbx(args):
    """An update a step in one environment, both; SBX in a process of its own, for it brings PyTorch."""
    jf = bench.prepare()
    import jax

    notes, updates = [], max(200, int(2000 * args.scale))
    algo = jf.SAC(num_envs=1, updates_per_iteration=1, learning_starts=300, batch_size=256, buffer_size=100_000)
    steps = updates + 300
    program = jax.jit(jf.make_train(algo, jf.make("Pendulum-v1"), total_steps=steps)).lower(jax.random.key(0)).compile()
    jax.block_until_ready(program(jax.random.key(0)))
    speeds = {"jaxrl_fast": [], "SBX": []}
    for turn in range(args.turns):
        for who in ("jaxrl_fast", "SBX") if turn % 2 == 0 else ("SBX", "jaxrl_fast"):
            if who == "SBX" and not args.sbx_python:
                continue
            if who == "SBX":
                done = subprocess.run([args.sbx_python, "-c", SBX, str(updates)], capture_output=True, text=True, timeout=900)
                if done.returncode:
                    raise SystemExit(done.stderr[-2000:])
                speeds[who].append(float(done.stdout.split()[-1]))
            else:
                began = time.perf_counter()
                jax.block_until_ready(program(jax.random.key(turn)))
                speeds[who].append(updates / (time.perf_counter() - began))
            bench.say(f"    turn {turn + 1}/{args.turns}  {who:<12} {speeds[who][-1]:>10,.0f} updates/s")
    row = {"machine": bench.machine(), "notes": notes, "speeds": speeds}
    if speeds["SBX"]:
        ratios = [a / b for a, b in zip(speeds["jaxrl_fast"], speeds["SBX"], strict=True)]
        row["ratio"] = statistics.median(ratios)
        bench.say(f"  speed of jaxrl_fast / SBX: {row['ratio']:.2f} ({' '.join(f'{x:.2f}' for x in ratios)})")
    else:
        notes.append("peer absent, SBX: no --sbx-python given")
    return row
