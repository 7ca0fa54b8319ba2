"""Measure populations: the axis, the devices, a sweep and selection, in turns with peers.

    python scripts/bench_population.py --purejaxrl ~/purejaxrl --json population.json
    python scripts/bench_population.py --rows agents   # 2,048 agents: for an accelerator

seeds    64 seeds of PPO CartPole on all cores against PureJaxRL's vmapped (`population` of
         bench_ppo.py)
devices  one seed on each of two devices against one seed on one: 2.0 is perfect
sweep    16 learning rates as one `jaxrl-fast sweep` against 16 commands `jaxrl-fast train`, each
         from the start of its process to its end, with an empty compile cache of their own
pbt      the host loop with PBT against the same population without, compile left out
agents   2,048 PPO agents on CartPole, 5e5 steps each, compile apart
"""

from __future__ import annotations

import os
import statistics
import subprocess
import sys
import tempfile
import time
from pathlib import Path

import _peers
import _populations as populations
import bench_common as bench
import bench_ppo

from jaxrl_fast.bench import ours, theirs


def devices(args):
    jf = bench.prepare(host_devices=2)
    import jax

    config = ours.scaled(theirs.PPO_CARTPOLE, args.scale)
    one = ours.run(jf, "PPO", config, "one seed on one device")
    both = populations.members(one, 2, populations.population_mode(),
                               "jaxrl_fast, one seed on each of two")
    notes = [
        f"{len(jax.local_devices())} devices; the ratio is steps a second of both to those of one"]
    return {"machine": bench.machine(), "notes": notes} | bench.race([both, one], args.turns)


def command(folder, cache, *words):
    """Seconds of a command from the start of its process to its end."""
    start = time.perf_counter()
    environment = os.environ | {"JAXRL_FAST_CACHE": str(cache)}
    code = "import sys; from jaxrl_fast.cli.command import main; sys.exit(main(sys.argv[1:]))"
    line = [sys.executable, "-c", code, *map(str, words)]
    done = subprocess.run(line, cwd=folder, env=environment, capture_output=True, text=True)
    if done.returncode:
        raise SystemExit(f"{' '.join(map(str, words))} failed:\n{done.stderr[-2000:]}")
    return time.perf_counter() - start


def sweep(args):
    """One sweep against single runs one after the other."""
    bench.prepare()
    steps = max(1, int(100_000 * args.scale))
    rates = [10 ** (-4 + 2 * i / (args.rates - 1)) for i in range(args.rates)]
    run = ["ppo", "CartPole-v1", "--total-steps", steps, "--eval-every", 0]
    row = {"machine": bench.machine(), "notes": [f"{args.rates} learning rates of {steps:,} steps"]}
    with tempfile.TemporaryDirectory() as folder:
        whole = command(folder, Path(folder) / "a", "sweep", *run, "--grid",
                        "algo.learning-rate=" + ",".join(map(str, rates)))
        bench.say(f"    one sweep: {whole:.1f} s")
        singles = []
        for rate in rates:
            singles.append(command(folder, Path(folder) / "b", "train", *run, "--no-tensorboard",
                                   "--algo.learning-rate", rate))
            bench.say(f"    a single run: {singles[-1]:.1f} s")
    apart = len(rates) * singles[0]
    bench.say(f"  {whole:.1f} s against {sum(singles):.1f} s: {sum(singles) / whole:.2f} times "
              f"sooner ({apart / whole:.2f} times, were nothing cached between the single runs)")
    return row | {"sweep_seconds": whole, "single_seconds": singles, "ratio": sum(singles) / whole}


def pbt(args):
    """Host loop, so that what selection costs the host is in it; seconds from the first chunk to
    the last."""
    jf = bench.prepare(host_devices=bench.cores())
    config = ours.scaled(theirs.PPO_CARTPOLE, args.scale)
    steps, members = config["TOTAL_TIMESTEPS"], args.members
    algo, env = jf.PPO(**ours.ppo_settings(config)), jf.make("CartPole-v1")
    selection = jf.PBT({"algo.learning_rate": "loguniform:1e-4,1e-2"})
    rates = selection.draw(0, members)

    seconds = {"with PBT": [], "without": []}
    for turn in range(args.turns):
        for name in list(seconds)[:: 1 if turn % 2 == 0 else -1]:
            began = time.perf_counter()
            chosen = selection if name == "with PBT" else None
            made = jf.train(algo, env, steps, population=rates, selection=chosen, eval_every=0,
                            eval_episodes=16)
            whole = time.perf_counter() - began - made.lanes.programs.clock.spent("compile")
            seconds[name].append(whole)
            bench.say(f"    turn {turn + 1}: {name} {whole:.2f} s (load {bench.load()[:1]})")
    ratios = [a / b for a, b in zip(*seconds.values(), strict=True)]
    turns = " ".join(f"{r:.3f}" for r in ratios)
    bench.say(
        f"  with PBT {statistics.median(ratios):.3f} times the time of without (turns {turns})")
    return {"machine": bench.machine(),
            "notes": [f"{members} members of {steps:,} steps, 19 selections"], "seconds": seconds,
            "ratio": statistics.median(ratios)}  # fmt: skip


def agents(args):
    jf = bench.prepare(host_devices=bench.cores())
    config = ours.scaled(theirs.PPO_CARTPOLE, args.scale)
    one = ours.run(jf, "PPO", config)
    many = populations.members(one, args.agents, populations.population_mode(),
                               f"jaxrl_fast, {args.agents} agents")
    notes = (
        [f"{args.agents} agents of {config['TOTAL_TIMESTEPS']:,} steps; PureJaxRL's README: 2,048 "
         f"in 98 s on an A100"]
    )
    return {"machine": bench.machine(), "notes": notes} | bench.race([many], 1)


ROWS = {"seeds": bench_ppo.population, "devices": devices, "sweep": sweep, "pbt": pbt,
        "agents": agents}


def main(argv):
    parser = bench.parser(__doc__, ROWS, turns=3)
    _peers.add_arguments(parser, "purejaxrl")
    parser.add_argument("--members", type=int, default=64,
                        help="members of the rows seeds and pbt (default 64)")
    parser.add_argument("--rates", type=int, default=16,
                        help="learning rates of the row sweep (default 16)")
    parser.add_argument("--agents", type=int, default=2048,
                        help="agents of that row (default 2,048)")
    parser.set_defaults(population="auto", spread_peer=False)
    return bench.main(parser.parse_args(argv), ROWS, argv)


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
