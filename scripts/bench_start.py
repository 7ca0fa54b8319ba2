"""Measure the seconds to PPO's first update on CartPole: cold, and from the compile cache.

    python scripts/bench_start.py --json start.json

`library` is a script that imports jaxrl_fast and runs one iteration; `command` is `jaxrl-fast train
ppo CartPole-v1`, until the first row of its metrics.jsonl; `imports` is what Python, jax and
jaxrl_fast take alone. "cold" has an empty compile cache (Python's own bytecode and the system's
file cache are warm); "cached" starts again on the cache that a cold start has left.
"""

from __future__ import annotations

import json
import os
import shutil
import statistics
import subprocess
import sys
import tempfile
import time
from pathlib import Path

import bench_common as bench

from jaxrl_fast.bench import ours, theirs

LIMIT = 300.0  # seconds that one start may take
# else every start would compile the package's sources anew: 0.25 s
ENVIRONMENT = {k: v for k, v in os.environ.items() if k != "PYTHONDONTWRITEBYTECODE"}


def child():
    """The measured process: prints the seconds since its start at each stage."""
    born = float(os.environ["BENCH_BORN"])
    stages = {"python": time.time() - born}

    def mark(name):
        stages[name] = time.time() - born

    import jaxrl_fast as jf

    mark("import jaxrl_fast")
    import jax

    mark("import jax")
    jax.devices()
    mark("backend")
    if os.environ["BENCH_CHILD"] == "library":
        cache = os.environ["JAXRL_FAST_CACHE"]
        if not jax.config.values["jax_compilation_cache_dir"]:
            jax.config.update("jax_compilation_cache_dir", cache)
            jax.config.update("jax_persistent_cache_min_compile_time_secs", 0.2)
            jax.config.update("jax_persistent_cache_min_entry_size_bytes", -1)
        config = theirs.PPO_CARTPOLE
        one_iteration = config["NUM_ENVS"] * config["NUM_STEPS"]
        contestant = ours.run(jf, "PPO", config | {"TOTAL_TIMESTEPS": one_iteration})
        train = contestant.build()
        key = contestant.args(0)
        mark("environment, algorithm, key")
        program = bench.compile_apart(train, key)
        mark("trace, lower, compile")
        jax.block_until_ready(program.call(*key))
        mark("first update")
        stages |= {"(trace)": program.trace, "(lower)": program.lower, "(compile)": program.compile}
    print(json.dumps(stages))


def start_child(kind, cache):
    env = ENVIRONMENT | {"BENCH_CHILD": kind, "BENCH_BORN": repr(time.time()),
                        "JAXRL_FAST_CACHE": cache}
    done = subprocess.run(
        [sys.executable, os.path.abspath(__file__)], env=env, capture_output=True, text=True,
        timeout=LIMIT
    )
    if done.returncode:
        raise RuntimeError(done.stderr[-2000:])
    return json.loads(done.stdout.strip().splitlines()[-1])


def start_command(cache):
    """Seconds until `jaxrl-fast train` has written its first row; the process is then ended."""
    program = (
        shutil.which("jaxrl-fast", path=os.path.dirname(sys.executable))
        or shutil.which("jaxrl-fast")
    )
    command = [program] if program else [sys.executable, "-m", "jaxrl_fast"]
    with tempfile.TemporaryDirectory() as folder:
        out = Path(folder) / "run"
        begin = time.time()
        process = subprocess.Popen(
            [*command, "train", "ppo", "CartPole-v1", "--out", str(out)],
            env=ENVIRONMENT | {"JAXRL_FAST_CACHE": cache},
            stdout=subprocess.DEVNULL,
            stderr=subprocess.PIPE,
            text=True,
        )
        try:
            while time.time() - begin < LIMIT:
                rows = out / "metrics.jsonl"
                if rows.exists() and rows.stat().st_size:
                    return {"first row": time.time() - begin}
                if process.poll() is not None:
                    said = process.communicate()[1][-2000:]
                    raise RuntimeError(
                        f"{' '.join(command)} ended with {process.returncode}: {said}")
                time.sleep(0.01)
            raise RuntimeError(f"no row within {LIMIT:.0f} s")
        finally:
            if process.poll() is None:
                process.terminate()
                try:
                    process.wait(30)
                except subprocess.TimeoutExpired:
                    process.kill()
                    process.wait()


def row(args, kind):
    starts = {"cold": [], "cached": []}
    go = start_command if kind == "command" else (lambda cache: start_child(kind, cache))
    with tempfile.TemporaryDirectory() as folder:
        go(str(Path(folder) / "warm"))  # unmeasured: Python's bytecode and the files in memory
        for turn in range(args.turns):
            cache = str(Path(folder) / str(turn))
            for state in starts:
                starts[state].append(go(cache))
                stages = ", ".join(f"{k} {v:.2f}" for k, v in starts[state][-1].items())
                bench.say(f"    turn {turn + 1}/{args.turns}  {state:<7} {stages}")
    medians = {s: {k: statistics.median(x[k] for x in runs) for k in runs[0]}
               for s, runs in starts.items() if runs}
    for state, stages in medians.items():
        print(f"  {kind}, {state}:", ", ".join(f"{k} {v:.2f} s" for k, v in stages.items()))
    bench.prepare()
    return {"machine": bench.machine(), "starts": starts, "medians": medians}


ROWS = {
    "imports": lambda args: row(args, "imports"),
    "library": lambda args: row(args, "library"),
    "command": lambda args: row(args, "command"),
}


def main(argv):
    return bench.main(bench.parser(__doc__, ROWS).parse_args(argv), ROWS, argv)


if __name__ == "__main__":
    if os.environ.get("BENCH_CHILD"):
        child()
    else:
        sys.exit(main(sys.argv[1:]))
