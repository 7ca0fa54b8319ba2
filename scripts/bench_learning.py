"""What is learned: mean return at the end of training over several seeds, ours and PureJaxRL at its settings, in turns.

    python scripts/bench_learning.py --purejaxrl ~/purejaxrl --seeds 5 --json learning.json

The score of a seed is the mean return of the episodes that ended in the last tenth of the run, under the training
policy. Ours is run at the same settings; for the presets see `jaxrl-fast train`, which evaluates apart from training.
"""

from __future__ import annotations

import math
import statistics
import sys

import _peers
import bench_common as bench

# 97.5% quantiles of Student's t by degrees of freedom
T = [math.nan, 12.71, 4.30, 3.18, 2.78, 2.57, 2.45, 2.36, 2.31, 2.26]


def interval(scores):
    """Half width of the 95% interval of the mean."""
    n = len(scores)
    if n < 2:
        return math.nan
    return (T[n - 1] if n <= len(T) else 1.96) * statistics.stdev(scores) / math.sqrt(n)


def learn(args, algorithm, config):
    jf = bench.prepare()
    import jax

    config = bench.scaled(config, args.scale)
    notes, contestants = [], []
    if bench.usable(jf, algorithm, notes):
        contestants.append(bench.ours(jf, algorithm, config))
    try:
        make_train = _peers.purejaxrl(args.purejaxrl, algorithm.lower())
        contestants.append(
            bench.Contestant(
                "PureJaxRL",
                _peers.purejaxrl_steps(config),
                lambda: make_train(dict(config)),
                lambda turn: (jax.random.key(turn),),
                lambda out: _peers.final_return(out["metrics"]),
            )
        )
    except _peers.PeerAbsent as absent:
        notes.append(f"peer absent, {absent}")
    machine = bench.machine()
    row = {"machine": machine, "notes": notes} | bench.race(contestants, args.seeds)
    for name, result in row["contestants"].items():
        scores = result["scores"]
        result["mean"], result["interval"] = statistics.fmean(scores), interval(scores)
        shown = " ".join(f"{x:.2f}" for x in scores)
        print(f"  {config['ENV_NAME']}, {name}: {result['mean']:.2f} +- {result['interval']:.2f} (95%, seeds {shown})")
    return row


def ppo(name, config):
    return lambda args: learn(args, "PPO", config | {"ENV_NAME": name})


ROWS = {
    "cartpole": ppo("CartPole-v1", _peers.PPO_CARTPOLE),
    "acrobot": ppo("Acrobot-v1", _peers.PPO_CARTPOLE),
    "breakout": ppo("Breakout-MinAtar", _peers.PPO_MINATAR),
    "asterix": ppo("Asterix-MinAtar", _peers.PPO_MINATAR),
    "freeway": ppo("Freeway-MinAtar", _peers.PPO_MINATAR),
    "space_invaders": ppo("SpaceInvaders-MinAtar", _peers.PPO_MINATAR),
    "dqn_cartpole": lambda args: learn(args, "DQN", _peers.DQN_CARTPOLE),
}


def main(argv):
    parser = bench.parser(__doc__, ROWS)
    _peers.add_arguments(parser, "purejaxrl")
    parser.add_argument("--seeds", type=int, default=5, help="seeds 0, 1, ... (default 5)")
    return bench.main(parser.parse_args(argv), ROWS, argv)


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
