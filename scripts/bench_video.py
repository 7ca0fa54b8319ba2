"""Measure what videos cost a run: PPO on CartPole without videos, with GIFs and with MP4s.

    python scripts/bench_video.py [--rounds N] [--steps N] [--videos N] [--formats gif,mp4]

Each round trains every way, in turns, in one process that has compiled before, and prints a line
for each run: steps/s, CPU time, and the CPU time of drawing (its thread and ffmpeg). The last lines
give, for each format, the ratio of the medians of steps/s, and drawing as a share of the CPU time,
which other load on the machine does not change. MP4 needs the extra [video].
"""

from __future__ import annotations

import argparse
import os
import statistics
import time
from typing import Any

import jaxrl_fast as jf
from jaxrl_fast.logs.sinks import Clip, Sink
from jaxrl_fast.runs.videos import Videos

WITHOUT = "without"


class Count(Sink):
    """Counts the videos."""

    videos = 0

    def video(self, clip: Clip) -> None:
        self.videos += 1


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__,
                                     formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--rounds", type=int, default=3)
    parser.add_argument("--steps", type=int, default=4_000_000, help="environment steps a run")
    parser.add_argument("--videos", type=int, default=2, help="videos a run, about")
    parser.add_argument("--formats", default="gif,mp4", help="of gif, mp4")
    args = parser.parse_args()
    env, algo, spent, draw, sink = (
        jf.make("CartPole-v1"), jf.preset("ppo", "CartPole-v1"), [], Videos._draw, Count())

    def timed(*given: Any, **named: Any) -> Any:
        before = time.thread_time() + _children()
        found = draw(*given, **named)
        spent.append(time.thread_time() + _children() - before)
        return found

    def train(way: str, steps: int = args.steps) -> tuple[float, float, float]:
        """Return steps/s, and the CPU time of the run and of its drawing."""
        filmed: dict[str, Any] = {}
        if way != WITHOUT:
            filmed = {"video_every": steps // (args.videos + 1), "video_format": way}
        spent.clear()
        before = time.process_time() + _children()
        run = jf.train(algo, env, steps, progress=False, eval_every=0, eval_episodes=4,
                       sinks=[sink], **filmed)
        return run.steps_per_second, time.process_time() + _children() - before, sum(spent)

    Videos._draw = timed
    ways = [WITHOUT, *args.formats.split(",")]
    for way in ways:
        train(way, 100_000)  # compiles
    found: dict[str, list[tuple[float, float, float]]] = {way: [] for way in ways}
    for i in range(args.rounds):
        for way in ways[i % len(ways):] + ways[:i % len(ways)]:
            sink.videos = 0
            found[way].append(train(way))
            rate, cpu, drawing = found[way][-1]
            print(f"{way:8} {rate:10,.0f} steps/s  {cpu:6.1f} s CPU time  "
                  f"{sink.videos} videos: {drawing:.2f} s", flush=True)
    without, *_ = _medians(found[WITHOUT])
    for way in ways[1:]:
        rate, cpu, drawing = _medians(found[way])
        print(f"{way}: {rate / without:.3f} times the steps/s; drawing is "
              f"{100 * drawing / cpu:.2f}% of the CPU time")


def _children() -> float:
    """Return the CPU time of processes that have ended (ffmpeg)."""
    return os.times().children_user + os.times().children_system


def _medians(runs: list[tuple[float, float, float]]) -> tuple[float, ...]:
    return tuple(statistics.median(column) for column in zip(*runs, strict=True))


if __name__ == "__main__":
    main()
