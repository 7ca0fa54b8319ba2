"""Measure tracing, lowering and compiling of PPO and DQN against PureJaxRL.

    python scripts/bench_compile.py --purejaxrl ~/purejaxrl --json compile.json

Rows `ppo` and `dqn` compile afresh, in turns, without any cache; `ppo_cached` and `dqn_cached` read
what an earlier compile left in the persistent cache. The first turn, which pays for lazy imports,
is not counted.
"""

from __future__ import annotations

import statistics
import sys
import tempfile

import _peers
import _populations as populations
import bench_common as bench

from jaxrl_fast.bench import ours, peers, theirs

STAGES = ("trace", "lower", "compile")


def programs(args, jf, algorithm, notes):
    """{name: build} of a whole training run at PureJaxRL's CartPole settings."""
    config = ours.scaled(theirs.PPO_CARTPOLE if algorithm == "PPO" else theirs.DQN_CARTPOLE,
                         args.scale)
    found = {}
    if populations.usable(jf, algorithm, notes):
        found["jaxrl_fast"] = ours.run(jf, algorithm, config).build
    try:
        make_train = peers.purejaxrl(args.purejaxrl, algorithm.lower())
        found["PureJaxRL"] = lambda: make_train(dict(config))
    except peers.PeerAbsent as absent:
        notes.append(f"peer absent, {absent}")
    return found


def compile_row(args, algorithm, cached):
    with tempfile.TemporaryDirectory() as folder:
        jf = bench.prepare(cache=folder if cached else None)
        import jax

        notes, key = [], (jax.random.key(0),)
        found = programs(args, jf, algorithm, notes)
        machine = bench.machine()
        times = {name: {stage: [] for stage in STAGES} for name in found}
        for turn in range(args.turns + 1):
            for name, build in found.items():
                jax.clear_caches()
                program = bench.compile_apart(build(), key)
                if turn:  # the first turn pays for lazy imports, and fills the cache
                    for stage in STAGES:
                        times[name][stage].append(getattr(program, stage))
                label = f"turn {turn}/{args.turns}" if turn else "unmeasured"
                print(f"    {label:<12} {name:<12}",
                      *(f"{s} {getattr(program, s):.2f} s" for s in STAGES), flush=True)
                del program
        medians = {name: {s: statistics.median(t[s]) for s in STAGES}
                   for name, t in times.items() if t["trace"]}
        row = {"machine": machine, "notes": notes, "cached": cached, "times": times,
               "medians": medians}
        if len(medians) == 2:
            mine, peer = times["jaxrl_fast"], times["PureJaxRL"]
            row["ours_to_peer"] = {
                s: statistics.median(m / p for m, p in zip(mine[s], peer[s], strict=True))
                for s in STAGES
            }
        for name, median in medians.items():
            print(f"  {name:<14}", *(f"{s} {median[s]:.2f} s" for s in STAGES),
                  f"sum {sum(median.values()):.2f} s")
        for stage, ratio in row.get("ours_to_peer", {}).items():
            print(f"  ours / PureJaxRL, {stage}: {ratio:.2f}")
        return row


ROWS = {
    "ppo": lambda args: compile_row(args, "PPO", cached=False),
    "ppo_cached": lambda args: compile_row(args, "PPO", cached=True),
    "dqn": lambda args: compile_row(args, "DQN", cached=False),
    "dqn_cached": lambda args: compile_row(args, "DQN", cached=True),
}


def main(argv):
    parser = bench.parser(__doc__, ROWS)
    _peers.add_arguments(parser, "purejaxrl")
    return bench.main(parser.parse_args(argv), ROWS, argv)


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
