"""Teach an ant to run within five minutes of wall clock, compiling included.

python scripts/ant_in_five_minutes.py [--minutes 5] [--seed 0] [--num-envs 256] [--num-steps 16]
[--out runs/ant]
python scripts/ant_in_five_minutes.py --environment envpool:Ant-v5   # MuJoCo's, on the host
"""

import time

BEGAN = time.perf_counter()  # before the imports: they count

import argparse  # noqa: E402
from typing import Any  # noqa: E402

import jax  # noqa: E402

import jaxrl_fast as jf  # noqa: E402
from jaxrl_fast import runtime  # noqa: E402

REST = 30  # seconds for the evaluation (its program too), the picture and the files at the end
# environments, steps of each in a rollout, steps at most: what a CPU does in the time, and an
# accelerator, which wants width
CPU, ACCELERATOR, HOST = (256, 16, 4_500_000), (4096, 8, 50_000_000), (64, 64, 1_500_000)
ANTS_A_CORE = 128  # a core for fewer is not worth what the cores have to tell each other


def arguments():
    first = argparse.ArgumentParser(add_help=False)
    first.add_argument("--environment", default="brax/ant",
                       help="whose ant; spring is the backend of brax's")
    environment = first.parse_known_args()[0].environment
    parser = argparse.ArgumentParser(parents=[first])
    if environment.startswith("brax/"):
        runtime.request_host_devices(runtime.cpu_count())  # before anything asks JAX what there is
    on_device = CPU if jax.default_backend() == "cpu" else ACCELERATOR
    envs, steps, total = on_device if environment.startswith("brax/") else HOST
    parser.add_argument("--minutes", type=float, default=5.0, help="of wall clock in all")
    parser.add_argument("--seed", type=int, default=0)
    parser.add_argument("--num-envs", type=int, default=envs, help="ants")
    parser.add_argument("--num-steps", type=int, default=steps, help="of each between two updates")
    parser.add_argument("--total-steps", type=int, default=total,
                        help="at most; the learning rate falls over them")
    parser.add_argument("--out", default="runs/ant", help="run directory, new or empty")
    return parser.parse_args()


def show(row):
    """One line of a log row: when it was, in steps and in minutes of the process."""
    elapsed, score = time.perf_counter() - BEGAN, row.metrics["episode_return"].mean()
    print(f"after {elapsed / 60:4.1f} min   {row.env_steps:>11,} steps   return in training "
          f"{score:7.1f}", flush=True)


def clock(minutes):
    """A hook, called after every chunk with its log rows: a line a minute, and the end in time."""
    minute = 1

    def hook(session, rows):
        nonlocal minute
        elapsed = time.perf_counter() - BEGAN
        over = elapsed > 60 * minutes - REST or session.rows >= session.grid.rows
        if elapsed > 60 * minute or over:  # the last one too, wherever in a minute it falls
            show(rows[-1])
            minute = int(elapsed / 60) + 1
        if over:
            session.stop()

    return hook


if __name__ == "__main__":
    args = arguments()
    brax = args.environment.startswith("brax/")
    most = (
        min(jax.device_count(), args.num_envs // ANTS_A_CORE) if jax.default_backend() == "cpu"
        else 1
    )
    cores = max(n for n in range(1, max(1, most) + 1) if args.num_envs % n == 0)
    layout: dict[str, Any] = {"mesh": {"population": 1, "env": cores}} if brax else {"actors": 2}
    session = jf.train(
        jf.preset("ppo", args.environment, num_envs=args.num_envs, num_steps=args.num_steps),
        jf.make(args.environment, **({"backend": "spring"} if brax else {})), args.total_steps,
        seed=args.seed, eval_every=0, eval_episodes=32, checkpoint_minutes=60.0, out=args.out,
        hooks=[clock(args.minutes)], **layout,
    )  # fmt: skip
    seconds = time.perf_counter() - BEGAN
    print(f"evaluation {session.eval_return.mean():.0f} after {session.env_steps:,} steps and "
          f"{seconds:.0f} s in all")
    print(f"{session.steps_per_second:,.0f} steps/s; the curve is {args.out}/curve.png, the ant "
          f"{args.out}/rollout.gif")
