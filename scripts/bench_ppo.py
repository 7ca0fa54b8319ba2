"""PPO against PureJaxRL: CartPole with one seed and with 64, Breakout-MinAtar.

    python scripts/bench_ppo.py --purejaxrl ~/purejaxrl --json ppo.json
    NPROC=1 python scripts/bench_ppo.py --rows cartpole --purejaxrl ~/purejaxrl        # one thread

Without a checkout of PureJaxRL (and flax, optax, distrax, gymnax for it) only ours is measured. Runs on any device.
"""

from __future__ import annotations

import sys

import _peers
import bench_common as bench


def single(args, config):
    """One seed, both at PureJaxRL's settings."""
    jf = bench.prepare()
    import jax

    notes, contestants = [], []
    config = bench.scaled(config, args.scale)
    if bench.usable(jf, "PPO", notes):
        contestants.append(bench.ours(jf, "PPO", config))
    try:
        make_train = _peers.purejaxrl(args.purejaxrl, "ppo")
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
    if args.rejax:
        try:
            package = _peers.rejax(args.rejax)
            contestants.append(
                bench.Contestant(
                    "rejax",
                    config["TOTAL_TIMESTEPS"],
                    lambda: _peers.rejax_ppo(package, config),
                    lambda turn: (jax.random.key(turn),),
                )
            )
        except _peers.PeerAbsent as absent:
            notes.append(f"peer absent, {absent}")
    machine = bench.machine()
    return {"machine": machine, "notes": notes} | bench.race(contestants, args.turns)


def population(args):
    """Many seeds in one program: ours as the library places them, PureJaxRL vmapped as its README does."""
    members = args.members
    jf = bench.prepare(host_devices=bench.cores())
    import jax

    config = bench.scaled(_peers.PPO_CARTPOLE | {"TOTAL_TIMESTEPS": 100_000}, args.scale)
    steps, peer_steps = members * config["TOTAL_TIMESTEPS"], members * _peers.purejaxrl_steps(config)
    notes, contestants, devices = [], [], jax.local_devices()
    cpu = devices[0].platform == "cpu"

    def keys(turn):
        return (jax.vmap(jax.random.key)(jax.numpy.arange(members, dtype=jax.numpy.uint32) + turn * members),)

    def member(out, i):
        return jax.tree.map(lambda x: x[i], out)

    def mean_score(score):
        return lambda out: sum(score(member(out, i)) for i in range(members)) / members

    def spreads(fn, how):
        return bench.spread(fn, how, devices if members % len(devices) == 0 else devices[:1])

    if bench.usable(jf, "PPO", notes):
        one = bench.ours(jf, "PPO", config)
        modes = {"auto": ["map" if cpu else "vmap"], "both": ["map", "vmap"]}.get(args.population, [args.population])
        for how in modes:
            contestants.append(
                bench.Contestant(
                    f"jaxrl_fast, {how}",
                    steps,
                    lambda how=how: spreads(one.build(), how),
                    keys,
                    mean_score(lambda out: bench.final_return(out[1])),
                    bench.env_steps,
                )
            )
    try:
        make_train = _peers.purejaxrl(args.purejaxrl, "ppo")
        for how in ["vmap", "map"] if args.spread_peer else ["vmap"]:
            name = "PureJaxRL vmapped" if how == "vmap" else "PureJaxRL, spread our way"
            contestants.append(
                bench.Contestant(
                    name,
                    peer_steps,
                    lambda how=how: spreads(make_train(dict(config)), how),
                    keys,
                    mean_score(lambda out: _peers.final_return(out["metrics"])),
                )
            )
    except _peers.PeerAbsent as absent:
        notes.append(f"peer absent, {absent}")
    notes.append(f"{members} members of {config['TOTAL_TIMESTEPS']} steps on {len(devices)} device(s)")
    machine = bench.machine()
    return {"machine": machine, "notes": notes} | bench.race(contestants, args.turns)


ROWS = {
    "cartpole": lambda args: single(args, _peers.PPO_CARTPOLE),
    "population": population,
    "breakout": lambda args: single(args, _peers.PPO_MINATAR),
}


def main(argv):
    parser = bench.parser(__doc__, ROWS)
    _peers.add_arguments(parser, "purejaxrl", "rejax")
    parser.add_argument("--members", type=int, default=64, help="seeds of the population row (default 64)")
    parser.add_argument(
        "--population",
        choices=["auto", "vmap", "map", "both"],
        default="auto",
        help="how our members are laid out: vmap on one device, or map: over all devices, one after the other on each "
        "(default: map on CPU cores, vmap on an accelerator)",
    )
    parser.add_argument("--spread-peer", action="store_true", help="measure PureJaxRL laid out by map too")
    return bench.main(parser.parse_args(argv), ROWS, argv)


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
