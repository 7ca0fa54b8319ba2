"""Measure one accelerator: speed beside the peers, compile time, memory, seconds to scores.

    python scripts/gpu_report.py --out gpu.jsonl --minutes 9
    python scripts/gpu_report.py --out gpu.jsonl --purejaxrl DIR --rejax DIR --purejaxql DIR
    python scripts/gpu_report.py --show gpu.jsonl

Every finished row is a line of the JSON Lines file, so that the same command goes on where an
earlier one ended. A row that crashes its process is noted as failed and left out then. No row
begins after `--minutes`. Nothing is downloaded.

Speed rows: each program is compiled (all rows together, in threads: compile seconds are then those
    of a busy machine), run once
unmeasured, then contestants take turns. `graphs_off:` and `graphs_while:` repeat rows with other
CUDA graphs. Score rows: one run by preset, seconds counted from the start of its process. `compile`
rows compile one program at a time, without a cache.
"""

from __future__ import annotations

import time

BEGAN = time.perf_counter()  # before the imports: they count

import argparse  # noqa: E402
import concurrent.futures  # noqa: E402
import dataclasses  # noqa: E402
import json  # noqa: E402
import os  # noqa: E402
import statistics  # noqa: E402
import subprocess  # noqa: E402
import sys  # noqa: E402
from pathlib import Path  # noqa: E402
from typing import Any  # noqa: E402

import _gpu_rows as rows  # noqa: E402
import _peers  # noqa: E402
import bench_common as bench  # noqa: E402

COMPILE = ("ppo_4", "ppo_breakout", "dqn_cartpole")  # measured alone as well


def names() -> list[str]:
    return [*rows.SPEED, *rows.SCORES, *(f"compile:{name}" for name in COMPILE)]


def written(path: Path) -> list[dict[str, Any]]:
    """The rows of a report; a last line that was cut off is left out."""
    found = []
    for line in path.read_text().splitlines() if path.exists() else []:
        try:
            found.append(json.loads(line))
        except json.JSONDecodeError:
            continue
    return found


def write(path: Path, row: dict[str, Any]) -> None:
    with path.open("a") as file:
        file.write(json.dumps(row) + "\n")


def card() -> str:
    """Return name, memory, driver and clocks from nvidia-smi, "" without it."""
    fields = "name,memory.total,driver_version,clocks.sm,clocks.max.sm,power.limit"
    try:
        done = subprocess.run(["nvidia-smi", f"--query-gpu={fields}", "--format=csv,noheader"],
                              capture_output=True, text=True)
    except OSError:
        return ""
    return done.stdout.strip()


# In the child
# --------------------------------------------------------------------------------------------------


@dataclasses.dataclass
class Made:
    """One row's contestants by name, their programs, and the reasons of those without one."""

    contestants: dict[str, bench.Contestant]
    notes: list[str]
    programs: dict[str, bench.Compiled] = dataclasses.field(default_factory=dict)
    failed: dict[str, str] = dataclasses.field(default_factory=dict)

    def compile(self, name: str) -> None:
        one = self.contestants[name]
        try:
            self.programs[name] = bench.compile_apart(one.build(), one.args(0), one.donate)
        except Exception as error:  # a program that does not fit is a result of the report
            self.failed[name] = f"{type(error).__name__}: {str(error)[:300]}"


def made(name: str, args: argparse.Namespace) -> Made:
    notes: list[str] = []
    return Made({one.name: one for one in rows.SPEED[name].contestants(args, notes)}, notes)


def facts(program: bench.Compiled) -> dict[str, Any]:
    memory: Any = program.call.memory_analysis()
    seconds = {"trace": program.trace, "lower": program.lower, "compile": program.compile}
    return seconds | {"temporary_bytes": memory.temp_size_in_bytes,
                      "output_bytes": memory.output_size_in_bytes}


def measure(row: Made, turns: int) -> dict[str, Any]:
    """Contestants in turns; seconds of each turn, and our speed over each peer's."""
    import jax

    results: dict[str, dict[str, Any]] = {}
    for name, program in row.programs.items():
        one = row.contestants[name]
        try:
            out = jax.block_until_ready(program.call(*one.args(0)))
        except Exception as error:
            row.failed[name] = f"{type(error).__name__}: {str(error)[:300]}"
            continue
        results[name] = (
            {"steps": one.count(out) if one.count else one.steps, "seconds": [], "scores": []}
            | facts(program)
        )
        del out
    for turn in range(turns):
        for name in results if turn % 2 == 0 else reversed(results):
            one, program = row.contestants[name], row.programs[name]
            values = one.args(turn)
            jax.block_until_ready(values)
            began = time.perf_counter()
            out = jax.block_until_ready(program.call(*values))
            results[name]["seconds"].append(time.perf_counter() - began)
            if one.score:
                results[name]["scores"].append(one.score(jax.device_get(out)))
            del out
    for result in results.values():
        result["steps_per_second"] = result["steps"] / statistics.median(result["seconds"])
    return {"contestants": results, "ratios": bench.ratios_of(results), "failed": row.failed,
            "notes": row.notes}


def speed_rows(args: argparse.Namespace, wanted: list[str]) -> None:
    """Compile the programs of all rows in threads, then measure row by row."""
    table = {name: made(name, args) for name in wanted}  # peers are loaded by one thread
    # and no compiler works beside a measurement
    with concurrent.futures.ThreadPoolExecutor(args.threads) as pool:
        list(pool.map(lambda pair: pair[0].compile(pair[1]), [
            (row, who) for row in table.values() for who in row.contestants]))
    bench.say(f"  compiled {len(wanted)} rows after {time.perf_counter() - BEGAN:.0f} s")
    for name in wanted:
        if time.time() > args.until:
            return
        begin(args, name)
        finish(args, {"row": name} | measure(table.pop(name), rows.SPEED[name].turns))


def compile_row(args: argparse.Namespace, name: str) -> None:
    begin(args, name)
    row = made(name.removeprefix("compile:"), args)
    for who in row.contestants:
        row.compile(who)
    programs = {who: facts(program) for who, program in row.programs.items()}
    finish(args, {"row": name, "contestants": programs, "failed": row.failed, "notes": row.notes})


def finish(args: argparse.Namespace, row: dict[str, Any]) -> None:
    """Write a row and print it."""
    write(args.out, row | about())
    bench.say(line_of(row))


def score_row(args: argparse.Namespace, name: str) -> None:
    begin(args, name)
    finish(args, {"row": name} | rows.reach(rows.SCORES[name], BEGAN))


def begin(args: argparse.Namespace, name: str) -> None:
    """Say in the report which row is at work: a process that dies leaves its name."""
    write(args.out, {"begin": name})


def about() -> dict[str, Any]:
    import jax

    stats = jax.devices()[0].memory_stats() or {}
    return {"machine": bench.machine(), "peak_bytes": stats.get("peak_bytes_in_use")}


def child(args: argparse.Namespace) -> int:
    bench.prepare()
    wanted = args.child.split(",")
    if wanted[0] in rows.SPEED:
        speed_rows(args, wanted)
    elif wanted[0] in rows.SCORES:
        score_row(args, wanted[0])
    else:
        for name in wanted:
            compile_row(args, name)
    return 0


# In the parent
# --------------------------------------------------------------------------------------------------


def batches(wanted: list[str]) -> list[list[str]]:
    """Rows that share a process: neighbours of equal flags, each score by itself, compile rows
    together."""
    kind = (
        lambda name: rows.SPEED[name].flags if name in rows.SPEED else name if name in rows.SCORES
        else "compile"
    )
    found: list[list[str]] = []
    for name in wanted:
        if found and kind(found[-1][-1]) == kind(name):
            found[-1].append(name)
        else:
            found.append([name])
    return found


def left(path: Path, wanted: list[str]) -> list[str]:
    """Return the rows that are neither measured nor were at work when a process died."""
    seen = {row.get("row") for row in written(path)}
    return [name for name in wanted if name not in seen]


def line_of(row: dict[str, Any]) -> str:
    """One row of the report as text."""
    text = f"{row['row']:26}"
    if "wanted" in row:
        reached = (
            f"{row['seconds_to_score']} s, {row['steps_to_score']:,} steps"
            if row["seconds_to_score"] else "not reached"
        )
        return (
            f"{text} return {row['wanted']:g}: {reached}; evaluation {row['evaluation']}; last "
            f"{row['curve'][-1]}"
        )
    for name, one in row.get("contestants", {}).items():
        seconds = sum(one[part] for part in ("trace", "lower", "compile"))
        speed = f"{one['steps_per_second']:,.0f} steps/s, " if "seconds" in one else ""
        took = f"{statistics.median(one['seconds']):.2f} s, " if "seconds" in one else ""
        text += f" {name} {speed}{took}compiled in {seconds:.1f} s;"
    for name, ratio in row.get("ratios", {}).items():
        text += f" {name} {ratio['median']:.2f};"
    for name, why in row.get("failed", {}).items():
        text += f" {name} FAILED {why[:160]};"
    return text + " ".join(f" ({note})" for note in row.get("notes", ()))


def show(path: Path) -> None:
    for row in written(path):
        if "row" in row:
            print(line_of(row))


def parsed(argv: list[str]) -> argparse.Namespace:
    parser = argparse.ArgumentParser(description=__doc__,
                                     formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--out", type=Path, default=Path("gpu_report.jsonl"),
                        help="JSON Lines file; continued if there")
    parser.add_argument("--rows", nargs="+", choices=names(), default=names(), metavar="ROW",
                        help=f"of {', '.join(names())}")
    parser.add_argument("--minutes", type=float, default=9.0,
                        help="no row begins later (default 9)")
    parser.add_argument("--threads", type=int, default=max(1, bench.cores()),
                        help="compilers at a time (default: cores)")
    parser.add_argument("--show", type=Path, help="print the rows of a report and end")
    parser.add_argument("--child", help=argparse.SUPPRESS)
    parser.add_argument("--until", type=float, help=argparse.SUPPRESS)
    _peers.add_arguments(parser, "purejaxrl", "rejax", "purejaxql")
    return parser.parse_args(argv)


def main(argv: list[str]) -> int:
    args = parsed(argv)
    if args.show:
        show(args.show)
        return 0
    if args.child:
        return child(args)
    until = time.time() + 60 * args.minutes
    bench.say(f"card: {card() or 'none'}")
    wanted = left(args.out, args.rows)
    failed = 0
    while (wanted := left(args.out, wanted)) and time.time() < until:
        batch = batches(wanted)[0]
        flags = rows.SPEED[batch[0]].flags if batch[0] in rows.SPEED else ""
        environment = os.environ | {
            "XLA_FLAGS": f"{os.environ.get('XLA_FLAGS', '')} {flags}".strip()}
        bench.say(f"{', '.join(batch)}")
        command = [sys.executable, os.path.abspath(__file__), *argv, "--child", ",".join(batch),
                   "--until", str(until)]
        try:
            code: Any = subprocess.run(command, env=environment,
                                       timeout=max(60.0, until + 30 - time.time())).returncode
        except subprocess.TimeoutExpired:
            code = "out of time"
        if code:
            begun = [row["begin"] for row in written(args.out) if "begin" in row]
            culprit = begun[-1] if begun and begun[-1] in left(args.out, batch) else batch[0]
            write(args.out, {"row": culprit, "failed": {"process": str(code)}})
            bench.say(f"  {culprit} FAILED: {code}")
            failed += 1
    if missing := left(args.out, args.rows):
        bench.say(f"no time for {', '.join(missing)}: the same command goes on with them")
    return 1 if failed else 0


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
