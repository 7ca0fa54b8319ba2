"""Replay memories: add 8 rows, sample a batch, set its priorities, against flashbax.

    python scripts/bench_replay.py --json replay.json

Rows of 4 floats (100k of them, batches of 256) and pixels, 84x84 uint8 in stacks of 4 (20k, batches
of 32), each prioritized and uniform. One scan over full stores with the state donated, as in
training. The whole batch is part of the scan's carry, so no reader of it is timed and none of it
can be left out. Ours stores single frames; flashbax stores stacks, which is its way. Without
flashbax only ours is measured. Runs on any device.
"""

from __future__ import annotations

import sys

import bench_common as bench

from jaxrl_fast.bench import replay


def measure(args, work: replay.Work):
    jf = bench.prepare()
    notes, contestants, sizes = [], [], {}
    iterations = max(replay.BLOCK, int(work.iterations * args.scale) // replay.BLOCK * replay.BLOCK)
    if jf is None:
        notes.append("jaxrl_fast is absent: measured without it")
    for name, make in {"jaxrl_fast": replay.ours, "flashbax": replay.flashbax}.items():
        if name == "jaxrl_fast" and jf is None:
            continue
        try:
            one, sizes[name] = replay.contestant(name, work, iterations, make(work))
            contestants.append(one)
        except ImportError as error:
            if name == "jaxrl_fast":
                raise
            notes.append(f"peer absent, {error}")
    notes.append("steps are iterations: one add, one sample"
                 + (", priorities set" if work.prioritized else ""))
    row = {"machine": bench.machine(), "notes": notes} | bench.race(contestants, args.turns)
    for name, result in row["contestants"].items():
        result |= sizes[name] | {"microseconds": 1e6 * result["median_seconds"] / result["steps"]}
        bench.say(f"    {name:<12} {result['microseconds']:8.1f} us an iteration, store "
                  f"{result['bytes'] / 1e6:.1f} MB")
    if len(sizes) == 2:
        row["bytes_ratio"] = sizes["jaxrl_fast"]["bytes"] / sizes["flashbax"]["bytes"]
        times = [row["contestants"][name]["microseconds"] for name in ("jaxrl_fast", "flashbax")]
        row["time_ratio"] = times[0] / times[1]
        bench.say(f"    jaxrl_fast / flashbax: {row['time_ratio']:.2f} of the time, "
                  f"{row['bytes_ratio']:.2f} of the bytes")
    return row


ROWS = {name: lambda args, work=work: measure(args, work) for name, work in replay.WORKS.items()}


def main(argv):
    return bench.main(bench.parser(__doc__, ROWS).parse_args(argv), ROWS, argv)


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
