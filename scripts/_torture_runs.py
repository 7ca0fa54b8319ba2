"""The runs that torture.py ends: start, resume, read and compare them."""

from __future__ import annotations

import json
import os
import shutil
import subprocess
import sys
import time
from pathlib import Path

import bench_common  # noqa: F401  (this folder on the path)

ROOT = Path(__file__).resolve().parents[1]
CODE = "import sys; from jaxrl_fast.cli.command import main; sys.exit(main(sys.argv[1:]))"
# as if the device had no more
SMALL = "from jaxrl_fast import runtime; runtime.device_memory = lambda device: {bytes}; "
RUN = [
    "dqn", "CartPole-v1", "--no-preset", "--seeds", "2", "--total-steps", "60000", "--log-every",
    "400", "--eval-every", "12000",
    "--eval-episodes", "8", "--algo.hidden", "32", "--algo.buffer-size", "4096",
    "--algo.learning-starts", "1000",
    "--algo.prioritized", "--checkpoint-minutes", "0.01", "--chunk-seconds", "0.2",
    "--no-tensorboard",
]  # fmt: skip
READ = """
import sys, numpy as np, jax
from jaxrl_fast.runs.checkpoints.store import Checkpoints
from pathlib import Path
import orbax.checkpoint as ocp
found = Checkpoints(Path(sys.argv[1]) / "checkpoints", read_only=True)
at = found.latest("last")
tree = found._manager("last").restore(
    at, args=ocp.args.Composite(state=ocp.args.StandardRestore()))["state"]
data = lambda x: np.asarray(
    jax.random.key_data(x) if jax.dtypes.issubdtype(x.dtype, jax.dtypes.prng_key) else x)
np.savez(sys.argv[2], rows=at,
         **{jax.tree_util.keystr(k): data(x) for k, x in jax.tree.leaves_with_path(tree)})
"""


PATH = {"PYTHONPATH": f"{ROOT}{os.pathsep}{os.environ.get('PYTHONPATH', '')}"}


class Failed(Exception):
    pass


def start(folder, *words, flags="", memory=None, **popen):
    env = os.environ | PATH | {"JAXRL_FAST_CACHE": str(folder / "cache")}
    if flags:
        env["XLA_FLAGS"] = flags
    code = CODE if memory is None else SMALL.format(bytes=memory) + CODE
    return subprocess.Popen([sys.executable, "-W", "ignore", "-c", code, *map(str, words)],
                            cwd=folder, env=env,
                            stdout=subprocess.DEVNULL, stderr=subprocess.PIPE, text=True,
                            **popen)  # fmt: skip


def finish(process, limit=600):
    try:
        _, err = process.communicate(timeout=limit)
    except subprocess.TimeoutExpired:
        process.kill()
        raise Failed(f"nothing within {limit} s") from None
    return process.returncode, err


def state(folder, run):
    out = folder / f"{run}.npz"
    line = [sys.executable, "-W", "ignore", "-c", READ, str(folder / run), str(out)]
    count = max(2, os.cpu_count() or 1)  # as many as it was saved with
    devices = {"XLA_FLAGS": f"--xla_force_host_platform_device_count={count}"}
    done = subprocess.run(line, env=os.environ | PATH | devices, capture_output=True, text=True)
    if done.returncode:
        raise Failed(f"the checkpoint of {run} cannot be read: {done.stderr[-500:]}")
    import numpy as np

    with np.load(out) as found:
        return dict(found)


def rows(folder, run):
    found = [json.loads(line) for line in (folder / run / "metrics.jsonl").read_text().splitlines()]
    return [{k: v for k, v in row.items() if k not in ("wall_seconds", "steps_per_second")}
            for row in found]


def compare(folder, run, exact=True):
    """Raises Failed where `run` is not what `whole` is."""
    a, b = state(folder, "whole"), state(folder, run)
    if a.keys() != b.keys():
        raise Failed("the checkpoints hold other arrays")
    for name in a:
        if exact and a[name].tobytes() != b[name].tobytes():
            raise Failed(f"{name} differs")
    if not exact and a["rows"] != b["rows"]:
        raise Failed("another number of rows")
    x, y = rows(folder, "whole"), rows(folder, run)
    if [r["env_steps"] for r in x] != [r["env_steps"] for r in y]:
        raise Failed(f"{len(y)} rows, not {len(x)}, or others")
    if exact and x != y:
        first = next(r["env_steps"] for r, s in zip(x, y, strict=True) if r != s)
        raise Failed(f"the row at {first} steps differs")
    if not (folder / run / "result.json").exists():
        raise Failed("no result.json")
    return "bit for bit" if exact else f"{len(y)} rows, as many as unbroken"


def checkpoints(folder, run):
    """The folders of a run's whole checkpoints, oldest first."""
    found = [p for p in (folder / run / "checkpoints" / "last").glob("*") if p.name.isdecimal()]
    return sorted(found, key=lambda p: int(p.name))


def has_checkpoint(folder, run):
    return bool(checkpoints(folder, run))


def writes_checkpoint(folder, run):
    """Orbax writes into a folder that gets its name when it is whole."""
    return any(".orbax-checkpoint-tmp" in p.name
               for p in (folder / run / "checkpoints" / "last").glob("*"))


def until(process, condition, limit=300, every=0.02):
    began = time.monotonic()
    while not condition():
        if process.poll() is not None:
            return False
        if time.monotonic() - began > limit:
            process.kill()
            raise Failed("did not come so far")
        time.sleep(every)
    return True


def go_on(folder, run, *more, flags=""):
    """Resume where there is a checkpoint, else start again as the user would."""
    if has_checkpoint(folder, run):
        return start(folder, "train", "--resume", run, "--no-tensorboard", *more, flags=flags)
    shutil.rmtree(folder / run, ignore_errors=True)
    return start(folder, "train", *RUN, "--out", run, flags=flags)
