"""DQN on CartPole at PureJaxRL's settings, against PureJaxRL and rejax.

    python scripts/bench_dqn.py --purejaxrl ~/purejaxrl --rejax ~/rejax --json dqn.json

A peer without a checkout (or without flax, optax, distrax, flashbax, gymnax) is left out, and said
to be. Runs on any device.
"""

from __future__ import annotations

import sys

import _peers
import _populations as populations
import bench_common as bench

from jaxrl_fast.bench import ours, theirs


def cartpole(args):
    """10 environments, a batch of 128 for every 10 steps, 120 x 84 relu."""
    jf = bench.prepare()
    notes, contestants = [], []
    config = ours.scaled(theirs.DQN_CARTPOLE, args.scale)
    if populations.usable(jf, "DQN", notes):
        contestants.append(ours.run(jf, "DQN", config))
    contestants += theirs.purejaxrl(args.purejaxrl, "dqn", config, notes)
    contestants += theirs.rejax(args.rejax, "dqn", config, notes)
    return {"machine": bench.machine(), "notes": notes} | bench.race(contestants, args.turns)


ROWS = {"cartpole": cartpole}


def main(argv):
    parser = bench.parser(__doc__, ROWS)
    _peers.add_arguments(parser, "purejaxrl", "rejax")
    return bench.main(parser.parse_args(argv), ROWS, argv)


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
