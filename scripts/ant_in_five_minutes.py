"""brax's ant learns to run within five minutes of wall clock, from the start of the process to the end of it.

python scripts/ant_in_five_minutes.py [--minutes 5] [--seed 0] [--out runs/ant]
"""

import time

BEGAN = time.perf_counter()  # before the imports: they count

import argparse  # noqa: E402

import jaxrl_fast as jf  # noqa: E402

parser = argparse.ArgumentParser()
parser.add_argument("--minutes", type=float, default=5.0, help="of wall clock in all")
parser.add_argument("--seed", type=int, default=0)
parser.add_argument("--total-steps", type=int, default=2_000_000, help="horizon of the schedules: about what fits")
parser.add_argument("--out", default="runs/ant", help="run directory, new or empty")
args = parser.parse_args()

REST = 45  # seconds for the evaluation, the picture and the files at the end
minute = 1


def clock(session, rows):
    """A hook: called after every chunk with its log rows."""
    global minute
    elapsed = time.perf_counter() - BEGAN
    if elapsed > 60 * minute:
        score, steps = rows[-1].metrics["episode_return"].mean(), session.env_steps
        print(f"after {elapsed / 60:4.1f} min   {steps:>9,} steps   return in training {score:7.1f}", flush=True)
        minute += 1
    if elapsed > 60 * args.minutes - REST:
        session.stop()


if __name__ == "__main__":
    session = jf.train(
        jf.preset("ppo", "brax/ant"), jf.make("brax/ant", backend="spring"), args.total_steps, seed=args.seed,
        eval_every=0, eval_episodes=32, checkpoint_minutes=60.0, out=args.out, hooks=[clock],
    )  # fmt: skip
    seconds = time.perf_counter() - BEGAN
    print(f"evaluation {session.eval_return.mean():.0f} after {session.env_steps:,} steps and {seconds:.0f} s in all")
    print(f"{session.steps_per_second:,.0f} steps/s; the curve is {args.out}/curve.png, the ant {args.out}/rollout.gif")
