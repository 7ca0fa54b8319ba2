"""Measure what videos cost a run: PPO on CartPole without videos, with GIFs and with MP4s.

    python scripts/bench_video.py [--rounds N] [--steps N] [--every N] [--share S] [--ways ...]

Each round trains every way, in turns, in one process that has compiled before, and prints a line
for each run: steps/s, CPU time, the videos drawn during the training and the CPU time of drawing
them (its thread and ffmpeg), and the video at the end. The last lines give, for each format, the
ratio of the medians of steps/s, and drawing during the training as a share of the CPU time, which
other load on the machine does not change. MP4 needs the extra [video].
"""

from __future__ import annotations

import argparse
import statistics
import time
from typing import Any

import jaxrl_fast as jf
from jaxrl_fast.engine.config import RunConfig
from jaxrl_fast.runs.share import Share, cpu_seconds

WITHOUT = "without"


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__,
                                     formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--rounds", type=int, default=3)
    parser.add_argument("--steps", type=int, default=20_000_000, help="environment steps a run")
    parser.add_argument("--every", type=int, default=1, help="environment steps between videos")
    parser.add_argument("--share", type=float, default=RunConfig.video_share)
    parser.add_argument("--ways", default="without,gif,mp4", help="of without, gif, mp4")
    args = parser.parse_args()
    env, algo, spent, timed = (
        jf.make("CartPole-v1"), jf.preset("ppo", "CartPole-v1"), [], Share.timed)

    def measured(self: Share, draw: Any) -> Any:
        begun = cpu_seconds()
        found = timed(self, draw)
        spent.append(cpu_seconds() - begun)
        return found

    def train(way: str, steps: int = args.steps) -> tuple[float, float, float]:
        """Return steps/s, and the CPU time of the run and of drawing during the training."""
        filmed: dict[str, Any] = {}
        if way != WITHOUT:
            filmed = {"video_every": args.every, "video_format": way, "video_share": args.share}
        spent.clear()
        before = time.process_time() + cpu_seconds() - time.thread_time()
        run = jf.train(algo, env, steps, progress=False, pictures=False, eval_every=0,
                       eval_episodes=4, **filmed)
        cpu = time.process_time() + cpu_seconds() - time.thread_time() - before
        drawing = sum(spent[:-1])  # the last video comes after the training
        print(f"{way:8} {run.steps_per_second:10,.0f} steps/s  {cpu:6.1f} s CPU time  "
              f"{len(spent[:-1])} videos: {drawing:.2f} s, at the end {sum(spent[-1:]):.2f} s",
              flush=True)
        return run.steps_per_second, cpu, drawing

    Share.timed = measured
    ways = args.ways.split(",")
    for way in ways:
        train(way, 100_000)  # compiles
    found: dict[str, list[tuple[float, float, float]]] = {way: [] for way in ways}
    for i in range(args.rounds):
        for way in ways[i % len(ways):] + ways[:i % len(ways)]:
            found[way].append(train(way))
    for way in ways:
        rate, cpu, drawing = _medians(found[way])
        without = _medians(found.get(WITHOUT, found[way]))[0]
        print(f"{way}: {rate / without:.3f} times the steps/s; drawing is "
              f"{100 * drawing / cpu:.2f}% of the CPU time")


def _medians(runs: list[tuple[float, float, float]]) -> tuple[float, ...]:
    return tuple(statistics.median(column) for column in zip(*runs, strict=True))


if __name__ == "__main__":
    main()
