"""Measure what videos cost a run: PPO on CartPole with and without them.

    python scripts/bench_video.py [--rounds N] [--steps N] [--videos N]

Each round trains both ways, in turns, in one process that has compiled before. Prints steps/s of
all runs, the ratio of their medians, and the CPU time of the drawing thread as a share of the
process's.
"""

from __future__ import annotations

import argparse
import statistics
import time
from typing import Any

import jaxrl_fast as jf
from jaxrl_fast.logs.sinks import Clip, Sink
from jaxrl_fast.runs.videos import Videos


class Count(Sink):
    """Counts the videos."""

    videos = 0

    def video(self, clip: Clip) -> None:
        self.videos += 1


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__,
                                     formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--rounds", type=int, default=3)
    parser.add_argument("--steps", type=int, default=20_000_000, help="environment steps a run")
    parser.add_argument("--videos", type=int, default=10, help="videos a run")
    args = parser.parse_args()
    env, algo, spent, draw, sink = (
        jf.make("CartPole-v1"), jf.preset("ppo", "CartPole-v1"), [], Videos._draw, Count())

    def timed(*given: Any, **named: Any) -> Any:
        before = time.thread_time()
        found = draw(*given, **named)
        spent.append(time.thread_time() - before)
        return found

    def train(filmed: bool, steps: int = args.steps) -> Any:
        every = -(-steps // args.videos) if filmed else None
        return jf.train(algo, env, steps, progress=False, eval_every=0, eval_episodes=4,
                        video_every=every, sinks=[sink])

    Videos._draw = timed
    train(True, 200_000)  # compiles
    spent.clear()
    sink.videos, rates, cpu = 0, {False: [], True: []}, 0.0
    for i in range(args.rounds):
        for filmed in (i % 2 == 0, i % 2 == 1):
            before = time.process_time()
            rates[filmed].append(train(filmed).steps_per_second)
            cpu += (time.process_time() - before) if filmed else 0.0
    without, filmed = (statistics.median(rates[key]) for key in (False, True))
    print("without:", *(f"{x:,.0f}" for x in rates[False]), "steps/s")
    print("with:   ", *(f"{x:,.0f}" for x in rates[True]), "steps/s")
    share = f"{100 * sum(spent) / cpu:.2f}% of {cpu:.1f} s CPU time"
    print(f"with / without: {filmed / without:.3f}; {sink.videos} videos: {share}")


if __name__ == "__main__":
    main()
