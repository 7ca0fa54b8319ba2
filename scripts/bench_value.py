"""Measure DQN and PQN against their peers at the peers' settings, alone and as populations.

    python scripts/bench_value.py --purejaxrl ~/purejaxrl --rejax ~/rejax --purejaxql ~/purejaxql
    --json value.json

Rows: DQN on CartPole against PureJaxRL and rejax, DQN on Breakout-MinAtar against rejax, PQN on
    both against purejaxql,
and 16 seeds of prioritized DQN against 16 times one seed. `dqn_breakout` and `pqn_breakout` train a
CNN: on a CPU give them a --scale of 0.01 and 0.002. A peer without a checkout (or without
flax, optax, distrax, flashbax, gymnax) is left out, and said to be. Runs on any device.
"""

from __future__ import annotations

import sys

import _peers
import _populations as populations
import bench_common as bench
import bench_dqn

from jaxrl_fast.bench import ours, theirs


def dqn_breakout(args):
    """One environment, a batch of 100 for every step."""
    jf = bench.prepare()
    config = ours.scaled(_peers.REJAX_BREAKOUT, args.scale)
    notes = ["rejax's yaml names a ConvQNetwork that its package lacks: both have MinAtar's CNN",
             "targets are copied"]
    contestants = [ours.run(jf, "DQN", config)] if populations.usable(jf, "DQN", notes) else []
    contestants += theirs.rejax(args.rejax, "dqn", config, notes)
    return {"machine": bench.machine(), "notes": notes} | bench.race(contestants, args.turns)


def pqn(args, config, program):
    jf = bench.prepare()
    config = ours.scaled(config, args.scale)
    notes = []
    contestants = [ours.run(jf, "PQN", config)] if populations.usable(jf, "PQN", notes) else []
    contestants += theirs.purejaxql(args.purejaxql, program, config, notes)
    return {"machine": bench.machine(), "notes": notes} | bench.race(contestants, args.turns)


def population(args):
    """The ratio is steps a second of all members to those of one: 1.0 on one device is an axis that
    costs nothing."""
    jf = bench.prepare(host_devices=bench.cores())
    import jax

    config = (
        ours.scaled(theirs.DQN_CARTPOLE
                    | {"TOTAL_TIMESTEPS": 100_000, "EPSILON_ANNEAL_TIME": 50_000}, args.scale)
    )
    notes, contestants = [], []
    if populations.usable(jf, "DQN", notes):
        one = ours.run(jf, "DQN", config, "one seed", prioritized=True)
        how = populations.population_mode()
        contestants = (
            [populations.members(
                one, args.members, how, f"jaxrl_fast, {args.members} seeds by {how}"), one]
        )
    notes.append(f"{args.members} members of {config['TOTAL_TIMESTEPS']} steps on "
                 f"{len(jax.local_devices())} device(s)")
    return {"machine": bench.machine(), "notes": notes} | bench.race(contestants, args.turns)


ROWS = {
    "dqn_cartpole": bench_dqn.cartpole,
    "dqn_breakout": dqn_breakout,
    "pqn_cartpole": lambda args: pqn(args, theirs.PQN_CARTPOLE, "pqn_gymnax"),
    "pqn_breakout": lambda args: pqn(args, _peers.PQN_MINATAR, "pqn_minatar"),
    "population": population,
}


def main(argv):
    parser = bench.parser(__doc__, ROWS)
    _peers.add_arguments(parser, "purejaxrl", "rejax", "purejaxql")
    parser.add_argument("--members", type=int, default=16,
                        help="seeds of the population row (default 16)")
    return bench.main(parser.parse_args(argv), ROWS, argv)


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
