"""Sweep learning rates and seeds of PPO over every chip of a TPU slice; a file to copy.

On every machine of the slice (docs/tpu.md), with a folder that all of them share; after a
preemption the same command goes on:

    python scripts/tpu_sweep.py --distributed --out /mnt/shared/sweeps/cartpole
"""

import argparse

import jaxrl_fast as jf
from jaxrl_fast import distributed

parser = argparse.ArgumentParser()
parser.add_argument("--out", required=True,
                    help="folder of the sweep, on a disk that all machines share")
parser.add_argument("--environment", default="CartPole-v1")
parser.add_argument("--total-steps", type=int, default=500_000,
                    help="environment steps of each member")
parser.add_argument("--seeds", type=int, default=64, help="of each learning rate")
parser.add_argument("--rates", type=int, default=16,
                    help="learning rates, evenly in their logarithm")
parser.add_argument("--distributed", action="store_true",
                    help="this is one of several processes, which JAX finds")
args = parser.parse_args()

if args.distributed:
    distributed.start()  # before anything else of JAX

rates = [10 ** (-4.5 + 2.5 * i / max(1, args.rates - 1)) for i in range(args.rates)]
try:
    found = jf.sweep(
        jf.preset("ppo", args.environment),
        jf.make(args.environment),
        args.total_steps,
        grid={"algo.learning_rate": rates},
        seeds=args.seeds,
        out=args.out,  # logs, checkpoints, table.csv, best.json, pictures
        progress=True,
    )
except (
    KeyboardInterrupt
) as stopped:  # SIGTERM too: everything is saved, and the same command goes on
    raise SystemExit(getattr(stopped, "exit_code", 130)) from stopped
if distributed.is_first():
    print(found)
