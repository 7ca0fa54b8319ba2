"""Print what a run survives: kill -9, SIGTERM, a full disk, a cut checkpoint, other devices.

    python scripts/torture.py                   # everything, 20 kills: 15 minutes on two cores
    python scripts/torture.py --kills 5 --only kill sigterm

Every case ends a run in some way, resumes it as often as it takes, and compares with a run that was
    never stopped: the
final state (every array of the checkpoint, bit for bit, or to rounding on other devices) and the
log, row by row, but for its wall-clock fields.
"""

from __future__ import annotations

import argparse
import random
import shutil
import signal
import sys
import tempfile
import time
from pathlib import Path

from _torture_runs import (
    RUN,
    Failed,
    checkpoints,
    compare,
    finish,
    go_on,
    has_checkpoint,
    rows,
    start,
    until,
    writes_checkpoint,
)  # fmt: skip

WAVES = 1_300_000  # bytes: more than two members of this run need, fewer than four


def kill(folder, args, rng):
    """kill -9 at random moments, again and again, then once to the end."""
    killed, before = 0, 0
    process = start(folder, "train", *RUN, "--out", "killed")
    while killed < args.kills:
        log = folder / "killed" / "metrics.jsonl"
        begun = log.stat().st_size if log.exists() else -1
        # it trains
        until(process, lambda log=log, begun=begun: log.exists() and log.stat().st_size != begun)
        # long enough for a first checkpoint to be committed, now and then
        time.sleep(rng.uniform(0, 3.0))
        if process.poll() is not None:  # it came to its end first: begin a new one
            compare(folder, "killed")
            shutil.rmtree(folder / "killed")
            process = start(folder, "train", *RUN, "--out", "killed")
            continue
        process.send_signal(signal.SIGKILL)
        finish(process)
        killed += 1
        before += not has_checkpoint(folder, "killed")
        process = go_on(folder, "killed")
    code, err = finish(process)
    if code:
        raise Failed(f"exit code {code}: {err[-300:]}")
    if before == killed:
        raise Failed(f"all {killed} kills came before the first checkpoint, so nothing was resumed")
    return f"{killed} kills ({before} before the first checkpoint); " + compare(folder, "killed")


def sigterm(folder, args, rng):
    """SIGTERM between and inside chunks and checkpoints: exit code 143 and a saved state each time.

    Before the run begins (Python is importing) it ends the process as it ends any: there is nothing
    to save.
    """
    process, times, early = start(folder, "train", *RUN, "--out", "sigterm"), 0, 0
    while times < 5:
        if not until(process, lambda: (folder / "sigterm" / "metrics.jsonl").exists()):
            break
        # on a busy machine Python takes long to import everything
        time.sleep(rng.uniform(0.0, 6.0 + early))
        process.send_signal(signal.SIGTERM)
        code, err = finish(process)
        if code == 0:
            break
        if code not in (143, -signal.SIGTERM):
            raise Failed(f"exit code {code}: {err[-300:]}")
        times, early = times + (code == 143), early + (code != 143)
        process = go_on(folder, "sigterm")
    else:
        code, err = finish(process)
        if code:
            raise Failed(f"exit code {code}: {err[-300:]}")
    return f"{times} times 143, {early} before it began; " + compare(folder, "sigterm")


def sigterm_in_checkpoint(folder, args, rng):
    """SIGTERM while a checkpoint is being written: exit code 143, and a whole one on disk."""
    process, inside = start(folder, "train", *RUN, "--out", "inside"), 0
    while inside < 5:
        if not until(process, lambda: writes_checkpoint(folder, "inside"), every=0.001):
            break  # it ended first
        process.send_signal(signal.SIGTERM)
        inside += writes_checkpoint(folder, "inside")  # still
        code, err = finish(process)
        if code != 143:
            raise Failed(f"exit code {code}: {err[-300:]}")
        if writes_checkpoint(folder, "inside"):
            raise Failed("half a checkpoint is left")
        process = go_on(folder, "inside")
    code, err = finish(process)
    if code:
        raise Failed(f"exit code {code}: {err[-300:]}")
    if not inside:
        raise Failed("no checkpoint was being written at any of the signals")
    return f"{inside} times 143; " + compare(folder, "inside")


def half_a_checkpoint(folder, args, rng):
    """Half of the largest file is gone: of the two newest checkpoints, and a resume is refused; of
    the newest, and it goes on."""
    process = start(folder, "train", *RUN, "--out", "half")
    until(process, lambda: len(checkpoints(folder, "half")) > 1)
    process.send_signal(signal.SIGTERM)
    finish(process)
    older, newest = checkpoints(folder, "half")[-2:]
    whole, log = halve(older) | halve(newest), (folder / "half" / "metrics.jsonl").read_bytes()
    code, err = finish(go_on(folder, "half"))
    if code != 2 or "checkpoint" not in err or "Traceback" in err:
        raise Failed(f"exit code {code}: {err[-300:]}")
    if (folder / "half" / "metrics.jsonl").read_bytes() != log:
        raise Failed("the log was changed")
    for path, content in whole.items():
        if older in path.parents:
            path.write_bytes(content)
    code, err = finish(go_on(folder, "half"))
    if code:
        raise Failed(f"exit code {code} with the older one whole: {err[-300:]}")
    return "two: refused in one line; the newest: from the one before, " + compare(folder, "half")


def halve(checkpoint):
    """Cut the largest file of a checkpoint in half; returns what it held, by path."""
    largest = max((p for p in checkpoint.rglob("*") if p.is_file()), key=lambda p: p.stat().st_size)
    whole = largest.read_bytes()
    largest.write_bytes(whole[: len(whole) // 2])
    return {largest: whole}


def full_disk(folder, args, rng):
    """Limit the size of every file, as a full disk does: the run ends with 1 and one line; with
    room it goes on."""
    process = start(folder, "train", *RUN, "--out", "full")
    until(process, lambda: has_checkpoint(folder, "full"))
    process.send_signal(signal.SIGTERM)
    finish(process)
    import resource

    size = (folder / "full" / "metrics.jsonl").stat().st_size + 400

    def limit():
        signal.signal(signal.SIGXFSZ, signal.SIG_IGN)
        resource.setrlimit(resource.RLIMIT_FSIZE, (size, size))

    process = start(folder, "train", "--resume", "full", "--no-tensorboard", preexec_fn=limit)
    code, err = finish(process)
    # around our line orbax's thread may complain of its event loop
    if code != 1 or sum(line.startswith("jaxrl-fast: error: ") for line in err.splitlines()) != 1:
        raise Failed(f"exit code {code}: {err[-300:]}")
    process = go_on(folder, "full")
    code, err = finish(process)
    if code:
        raise Failed(f"exit code {code} with room again: {err[-300:]}")
    return "exit code 1, our line; with room: " + compare(folder, "full")


def other_devices(folder, args, rng):
    """Begun on the cores' devices, resumed on one."""
    process = start(folder, "train", *RUN, "--out", "devices",
                    flags="--xla_force_host_platform_device_count=2")
    until(process, lambda: has_checkpoint(folder, "devices"))
    process.send_signal(signal.SIGTERM)
    finish(process)
    seam = len(rows(folder, "devices"))
    code, err = finish(go_on(folder, "devices", flags="--xla_force_host_platform_device_count=1"))
    if code:
        raise Failed(f"exit code {code}: {err[-300:]}")
    return f"{compare(folder, 'devices', exact=False)}; {at_the_seam(folder, 'devices', seam)}"


def at_the_seam(folder, run, seam):
    """The first row on other devices against that of the unbroken run: equal to rounding. Later
    ones drift apart."""
    a, b = rows(folder, "whole")[seam], rows(folder, run)[seam]
    pairs = [(x, y) for name in a if isinstance(a[name], list)
             for x, y in zip(a[name], b[name], strict=True)]
    if any((x is None) != (y is None) for x, y in pairs):
        raise Failed(f"row {seam}: {a} and {b}")
    off = max(abs(x - y) / max(1e-6, abs(x)) for x, y in pairs if x is not None)
    if off > 1e-3:
        raise Failed(f"row {seam} differs by {off:.1e}")
    return f"its first row there differs by at most {off:.0e}, relatively"


def longer(folder, args, rng):
    """Resumed with a raised --total-steps: the rows before are those of the shorter run."""
    shutil.copytree(folder / "whole", folder / "longer")
    code, err = finish(
        start(folder, "train", "--resume", "longer", "--no-tensorboard", "--total-steps", "80000"))
    if code:
        raise Failed(f"exit code {code}: {err[-300:]}")
    a, b = rows(folder, "whole"), rows(folder, "longer")
    if b[: len(a) - 1] != a[:-1] or b[-1]["env_steps"] < 80000 or len(
        {r["env_steps"] for r in b}
    ) != len(b):
        raise Failed("its rows are not those of the shorter run, and more")
    return f"{len(b)} rows, the first {len(a) - 1} the same"


def swept(folder, args, rng):
    """A sweep of two groups in two waves each, killed at random moments: its table is that of an
    unbroken one."""
    words = ["sweep", *RUN[:-1], "--grid", "algo.learning-rate=1e-4,1e-3", "--grid",
             "algo.n-step=1,2"]
    code, err = finish(start(folder, *words, "--out", "sweep-whole", memory=args.memory))
    if code:
        raise Failed(f"exit code {code}: {err[-300:]}")
    parts = len(list((folder / "sweep-whole" / "parts").glob("*")))
    if parts != 4:
        raise Failed(f"{parts} parts, not two groups of two waves: {args.memory:,} bytes are not "
                     f"the memory to try this with")
    process, killed = start(folder, *words, "--out", "sweep", memory=args.memory), 0
    while killed < max(3, args.kills // 4):
        if not until(process, lambda: (folder / "sweep" / "sweep.json").exists()):
            break
        time.sleep(rng.uniform(1, args.seconds))
        if process.poll() is not None:
            break
        process.send_signal(signal.SIGKILL)
        finish(process)
        killed += 1
        process = start(folder, "sweep", "--resume", "sweep", memory=args.memory)
    code, err = finish(process)
    if code:
        raise Failed(f"exit code {code}: {err[-300:]}")
    tables = [(folder / name / "table.csv").read_bytes() for name in ("sweep", "sweep-whole")]
    if tables[0] != tables[1]:
        raise Failed("another table")
    return f"{parts} parts, {killed} kills; the same table.csv"


CASES = {
    "kill": kill, "sigterm": sigterm, "sigterm in a checkpoint": sigterm_in_checkpoint,
    "half a checkpoint": half_a_checkpoint,
    "full disk": full_disk, "other devices": other_devices, "longer": longer, "sweep": swept,
}  # fmt: skip


def main(argv):
    parser = argparse.ArgumentParser(description=__doc__,
                                     formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--kills", type=int, default=20, help="kill -9 so often (default 20)")
    parser.add_argument("--seed", type=int, default=0, help="of the random moments")
    parser.add_argument("--only", nargs="+", choices=list(CASES), default=list(CASES),
                        help="default: all")
    parser.add_argument("--memory", type=int, default=WAVES,
                        help="bytes in which the sweep needs waves (default %(default)s)")
    args = parser.parse_args(argv)
    failed = 0
    with tempfile.TemporaryDirectory() as place:
        folder = Path(place)
        # fills the compile cache
        code, err = finish(start(folder, "train", *RUN, "--out", "whole"))
        if code:
            raise SystemExit(err)
        shutil.rmtree(folder / "whole")
        began = time.monotonic()
        finish(start(folder, "train", *RUN, "--out", "whole"))
        args.seconds = time.monotonic() - began
        print(f"an unbroken run: {args.seconds:.1f} s, {len(rows(folder, 'whole'))} rows",
              flush=True)
        for name in args.only:
            began = time.monotonic()
            try:
                result = "ok      " + CASES[name](folder, args, random.Random(args.seed))
            except Failed as error:
                failed, result = failed + 1, f"FAILED  {error}"
            print(f"{name:25}{result}  ({time.monotonic() - began:.0f} s)", flush=True)
    return 1 if failed else 0


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
