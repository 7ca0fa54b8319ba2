"""Environments stepped from the host, one call a step.

    python scripts/bench_host.py --json host.json

`to_gymnasium`: our CartPole as a `gymnasium.vector.VectorEnv` of 1,024 environments, beside Gymnasium's own vectorized
CartPole. `to_gymnasium_inline`: the same with JAX's asynchronous dispatch on the CPU switched off. `single`: one
environment, reset where it ends. All get the same actions, drawn before. "compile" is the first turn's time beyond a
later one's; contestants share programs. Runs on any device.
"""

from __future__ import annotations

import argparse
import dataclasses
import statistics
import sys
import time
from collections.abc import Callable
from typing import Any

import bench_common as bench


@dataclasses.dataclass
class Loop:
    """One contestant: `build()` gives a function that takes `steps` environment steps when it is called."""

    name: str
    steps: int
    build: Callable[[], Callable[[], Any]]


def race(loops: list[Loop], turns: int, log=bench.say) -> dict[str, Any]:
    """Every loop once unmeasured, then in turns; the form of `bench_common.race`."""
    plays, results = {}, {}
    for loop in loops:
        start = time.perf_counter()
        plays[loop.name] = loop.build()
        plays[loop.name]()
        first = time.perf_counter() - start
        results[loop.name] = {"steps": loop.steps, "first": first, "seconds": [], "scores": [], "load": []}
    for turn in range(turns):
        for loop in loops if turn % 2 == 0 else loops[::-1]:
            start = time.perf_counter()
            plays[loop.name]()
            seconds = time.perf_counter() - start
            results[loop.name]["seconds"].append(seconds)
            results[loop.name]["load"].append(bench.load()[:1])
            log(f"    turn {turn + 1}/{turns}  {loop.name:<28} {seconds:7.2f} s  {loop.steps / seconds:>12,.0f} steps/s")
    for result in results.values():
        median = result["median_seconds"] = statistics.median(result["seconds"])
        result["steps_per_second"] = result["steps"] / median
        result |= {"trace": 0.0, "lower": 0.0, "compile": max(0.0, result.pop("first") - median)}
    ratios = {}
    for ours, mine in results.items():
        for other, peer in results.items():
            if ours.startswith("jaxrl_fast") and not other.startswith("jaxrl_fast"):
                work = mine["steps"] / peer["steps"]
                pairs = [p / m * work for p, m in zip(peer["seconds"], mine["seconds"], strict=True)]
                ratios[f"{ours} / {other}"] = {"median": statistics.median(pairs), "turns": pairs}
    return {"contestants": results, "ratios": ratios}


def stepped(make: Callable[[], Any], steps: int) -> Callable[[], Callable[[], Any]]:
    """`build` of a loop that steps a Gymnasium vector by random actions."""
    import numpy as np

    def build():
        envs = make()
        actions = np.random.default_rng(0).integers(0, 2, (64, envs.num_envs))
        envs.reset(seed=0)

        def play():
            for i in range(steps):
                envs.step(actions[i % 64])

        return play

    return build


def vectors(args: argparse.Namespace) -> dict[str, Any]:
    jf = bench.prepare()
    import gymnasium

    num_envs, steps = 1024, max(1, int(4_000 * args.scale))
    env = jf.make("CartPole-v1")
    makes = {
        "jaxrl_fast same_step": lambda: jf.to_gymnasium(env, num_envs),
        "jaxrl_fast same_step views": lambda: jf.to_gymnasium(env, num_envs, copy=False),
        "jaxrl_fast next_step": lambda: jf.to_gymnasium(env, num_envs, autoreset_mode="next_step"),
        "gymnasium next_step": lambda: gymnasium.make_vec("CartPole-v1", num_envs, vectorization_mode="vector_entry_point"),
    }
    loops = [Loop(name, steps * num_envs, stepped(make, steps)) for name, make in makes.items()]
    return {"machine": bench.machine()} | race(loops, args.turns)


def inline(args: argparse.Namespace) -> dict[str, Any]:
    bench.prepare()
    import jax

    jax.config.update("jax_cpu_enable_async_dispatch", False)  # before the backend starts; not an environment variable
    return vectors(args) | {"notes": ["jax_cpu_enable_async_dispatch is False"]}


def single(args: argparse.Namespace) -> dict[str, Any]:
    jf = bench.prepare()
    import gymnasium
    import numpy as np

    steps = max(1, int(10_000 * args.scale))
    actions = np.random.default_rng(0).integers(0, 2, steps)

    def build(make):
        env = make()
        env.reset(seed=0)

        def play():
            for action in actions:
                _, _, terminated, truncated, _ = env.step(action)
                if terminated or truncated:
                    env.reset()

        return play

    makes = {
        "jaxrl_fast": lambda: jf.to_gymnasium(jf.make("CartPole-v1")),
        "gymnasium": lambda: gymnasium.make("CartPole-v1"),
    }
    loops = [Loop(name, steps, lambda make=make: build(make)) for name, make in makes.items()]
    return {"machine": bench.machine()} | race(loops, args.turns)


ROWS = {"to_gymnasium": vectors, "to_gymnasium_inline": inline, "single": single}


def main(argv):
    return bench.main(bench.parser(__doc__, ROWS).parse_args(argv), ROWS, argv)


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
