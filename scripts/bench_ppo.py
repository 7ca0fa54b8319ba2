"""PPO against PureJaxRL: CartPole with one seed and with 64, Breakout-MinAtar.

    python scripts/bench_ppo.py --purejaxrl ~/purejaxrl --json ppo.json
    NPROC=1 python scripts/bench_ppo.py --rows cartpole --purejaxrl ~/purejaxrl        # one thread

Without a checkout of PureJaxRL (and flax, optax, distrax, gymnax for it) only ours is measured.
Runs on any device.
"""

from __future__ import annotations

import sys

import _peers
import _populations as populations
import bench_common as bench

from jaxrl_fast.bench import ours, theirs


def single(args, config):
    """One seed, both at PureJaxRL's settings."""
    jf = bench.prepare()
    notes, contestants = [], []
    config = ours.scaled(config, args.scale)
    if populations.usable(jf, "PPO", notes):
        contestants.append(ours.run(jf, "PPO", config))
    contestants += theirs.purejaxrl(args.purejaxrl, "ppo", config, notes)
    if args.rejax:
        contestants += theirs.rejax(args.rejax, "ppo", config, notes)
    return {"machine": bench.machine(), "notes": notes} | bench.race(contestants, args.turns)


def population(args):
    """Many seeds in one program: ours as the library places them, PureJaxRL vmapped as its README
    does."""
    jf = bench.prepare(host_devices=bench.cores())
    import jax

    config = ours.scaled(theirs.PPO_CARTPOLE | {"TOTAL_TIMESTEPS": 100_000}, args.scale)
    notes, contestants = [], []
    if populations.usable(jf, "PPO", notes):
        one = ours.run(jf, "PPO", config)
        auto = populations.population_mode()
        for how in {"auto": [auto], "both": ["map", "vmap"]}.get(args.population,
                                                                 [args.population]):
            contestants.append(populations.members(one, args.members, how, f"jaxrl_fast, {how}"))
    for peer in theirs.purejaxrl(args.purejaxrl, "ppo", config, notes):
        contestants.append(populations.members(peer, args.members, "vmap", "PureJaxRL vmapped"))
        if args.spread_peer:
            contestants.append(
                populations.members(peer, args.members, "map", "PureJaxRL, spread our way"))
    notes.append(f"{args.members} members of {config['TOTAL_TIMESTEPS']} steps on "
                 f"{len(jax.local_devices())} device(s)")
    return {"machine": bench.machine(), "notes": notes} | bench.race(contestants, args.turns)


ROWS = {
    "cartpole": lambda args: single(args, theirs.PPO_CARTPOLE),
    "population": population,
    "breakout": lambda args: single(args, _peers.PPO_MINATAR),
}


def main(argv):
    parser = bench.parser(__doc__, ROWS)
    _peers.add_arguments(parser, "purejaxrl", "rejax")
    parser.add_argument("--members", type=int, default=64,
                        help="seeds of the population row (default 64)")
    parser.add_argument(
        "--population",
        choices=["auto", "vmap", "map", "both"],
        default="auto",
        help="how our members are laid out: vmap on one device, or map: over all devices, one "
             "after the other on each "
        "(default: map on CPU cores, vmap on an accelerator)",
    )
    parser.add_argument("--spread-peer", action="store_true",
                        help="measure PureJaxRL laid out by map too")
    return bench.main(parser.parse_args(argv), ROWS, argv)


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
