"""Train DQN on Breakout-MinAtar with logs, checkpoints and a run directory; a file to copy.

python scripts/dqn_minatar.py [--total-steps 1000000] [--out runs/dqn-breakout]
"""

import argparse

import jaxrl_fast as jf

parser = argparse.ArgumentParser()
parser.add_argument("--total-steps", type=int, default=1_000_000)
parser.add_argument("--seed", type=int, default=0)
parser.add_argument("--out", default="runs/dqn-breakout", help="run directory, new or empty")
args = parser.parse_args()


def best_so_far(session, rows):
    """A hook: called after every chunk with its log rows; `session.stop()` would end the run."""
    if "eval_return" in rows[-1].metrics:
        print(f"{session.env_steps:>10,} steps   evaluation "
              f"{rows[-1].metrics['eval_return'].mean():6.2f}", flush=True)


if __name__ == "__main__":
    session = jf.train(
        jf.preset("dqn", "Breakout-MinAtar"),
        jf.make("Breakout-MinAtar"),
        total_steps=args.total_steps,
        seed=args.seed,
        out=args.out,
        hooks=[best_so_far],
    )
    agent = jf.load(args.out)  # the best checkpoint, as anybody would load it later
    episodes = agent.evaluate(episodes=128, seed=1)
    print(f"mean return {episodes.ret.mean():.2f} over 128 episodes, "
          f"{session.steps_per_second:,.0f} steps/s")
    print(f"next: jaxrl-fast eval {args.out}; jaxrl-fast plot {args.out}; tensorboard --logdir "
          f"{args.out}")
