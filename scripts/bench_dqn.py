"""DQN on CartPole at PureJaxRL's settings, against PureJaxRL and rejax.

    python scripts/bench_dqn.py --purejaxrl ~/purejaxrl --rejax ~/rejax --json dqn.json

A peer without a checkout (or without flax, optax, distrax, flashbax, gymnax) is left out, and said to be. Runs on any
device.
"""

from __future__ import annotations

import sys

import _peers
import bench_common as bench


def cartpole(args):
    """10 environments, a batch of 128 for every 10 steps, 120 x 84 relu."""
    jf = bench.prepare()
    import jax

    notes, contestants = [], []
    config = bench.scaled(_peers.DQN_CARTPOLE, args.scale)
    steps = config["TOTAL_TIMESTEPS"]

    def key(turn):
        return (jax.random.key(turn),)

    if bench.usable(jf, "DQN", notes):
        contestants.append(bench.ours(jf, "DQN", config))
    try:
        make_train = _peers.purejaxrl(args.purejaxrl, "dqn")
        contestants.append(
            bench.Contestant(
                "PureJaxRL",
                steps,
                lambda: make_train(dict(config)),
                key,
                lambda out: _peers.final_return(out["metrics"]),
            )
        )
    except _peers.PeerAbsent as absent:
        notes.append(f"peer absent, {absent}")
    try:
        package = _peers.rejax(args.rejax)
        contestants.append(bench.Contestant("rejax", steps, lambda: _peers.rejax_dqn(package, config), key))
    except _peers.PeerAbsent as absent:
        notes.append(f"peer absent, {absent}")
    machine = bench.machine()
    return {"machine": machine, "notes": notes} | bench.race(contestants, args.turns)


ROWS = {"cartpole": cartpole}


def main(argv):
    parser = bench.parser(__doc__, ROWS)
    _peers.add_arguments(parser, "purejaxrl", "rejax")
    return bench.main(parser.parse_args(argv), ROWS, argv)


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
