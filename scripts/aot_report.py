"""Compile programs for a GPU or TPU without one: launches, syncs, memory, precision.

    pip install -e '.[cuda12]'                   # or [tpu]; the compiler needs no accelerator
    python scripts/aot_report.py --purejaxrl DIR --rejax DIR --purejaxql DIR
    python scripts/aot_report.py --programs ppo_4 dqn_cartpole --against older.jsonl
    python scripts/aot_report.py --algo ppo --env CartPole-v1 --num-envs 2048 --target a100 h200
    python scripts/aot_report.py --algo ppo --seeds 64 --what chunk --target h100:4 v5e:2x2

Counts are those of one iteration: a rollout and its updates. `syncs`: how often the host waits for
a result. `graphs`: CUDA graphs launched; `loose`: launches outside of them. docs/accelerators.md
says how to read the rest. Exit code 1 if a program launches or waits more than in `--against`.
"""

from __future__ import annotations

import argparse
import json
import sys
from pathlib import Path
from typing import Any

import _aot_targets as targets
import _peers

if __name__ == "__main__":
    targets.prepare()  # before JAX starts

import _aot_compile
import _aot_programs as programs
import _aot_rows as rows
import _aot_table as table
import jax

import jaxrl_fast as jf
from jaxrl_fast.errors import UserError


def measure(
    name: str, row: table.Row, target: targets.Target, args: argparse.Namespace, before: dict
) -> rows.Measured:
    """Compile a watched program and its peers'; peers without a checkout come from `before`."""
    notes: list[str] = []
    work = row.work()
    found = _aot_compile.compiled(programs.build(row.kind, work, target), target, args.keep)
    mine = rows.row(
        name, row.what, row.kind, target, found, f"python scripts/aot_report.py --programs {name}"
    )
    known = before.get((name, target.name), {})
    peers = {
        one.name: _aot_compile.compiled(
            programs.peer(one, work.seeds, row.iterations, target), target, args.keep
        )
        for one in (table.peers_of(row, args, notes) if target.platform == "cuda" else ())
    }
    if row.than and (than := before.get((row.than, target.name))):
        peers = {than["what"]: {"launches": than["launches"]}}
    for note in () if "peers" in known else notes:
        print(f"    {note}", flush=True)
    return rows.beside(mine, known.get("peers", {}) | peers, row.wanted)


def measure_one(args: argparse.Namespace, target: targets.Target) -> rows.Measured:
    """Compile the program of `--algo` and `--env`."""
    settings = dict(args.set) | ({"num_envs": args.num_envs} if args.num_envs else {})
    algo: Any = jf.preset(args.algo, args.env, **settings)
    work = programs.Work(algo, jf.make(args.env), args.total_steps, args.seeds, args.env_devices)
    found = _aot_compile.compiled(programs.build(args.what, work, target), target, args.keep)
    own = [
        f"num_envs={algo.num_envs}",
        *(f"{k}={v}" for k, v in args.set),
        *([f"seeds={args.seeds}"] * (args.seeds > 1)),
    ]
    what = f"{args.algo} {args.env}, {args.what}, {', '.join(own)}"
    return rows.row(
        f"{args.algo}/{args.env}",
        what,
        args.what,
        target,
        found,
        f"python scripts/aot_report.py --algo {args.algo}",
    )


def setting(text: str) -> tuple[str, Any]:
    name, _, value = text.partition("=")
    try:
        return name, json.loads(value)
    except json.JSONDecodeError:
        return name, value


def parsed(argv: list[str]) -> argparse.Namespace:
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    names = list(table.TABLE)
    parser.add_argument(
        "--programs",
        nargs="+",
        choices=names,
        metavar="NAME",
        help=f"of {', '.join(names)}; default: all",
    )
    parser.add_argument("--algo", help="a program of this algorithm instead, by preset")
    parser.add_argument(
        "--env", default="CartPole-v1", help="its environment (default CartPole-v1)"
    )
    parser.add_argument("--num-envs", type=int, help="its environments (default: the preset's)")
    parser.add_argument(
        "--set",
        nargs="+",
        type=setting,
        default=[],
        metavar="NAME=VALUE",
        help="more of its settings",
    )
    parser.add_argument(
        "--total-steps", type=int, default=500_000, help="its length (default 500,000)"
    )
    parser.add_argument("--seeds", type=int, default=1, help="members (default 1)")
    parser.add_argument(
        "--env-devices", type=int, default=1, help="devices of one member, for a chunk (default 1)"
    )
    parser.add_argument(
        "--what", default="run", help=f"one of {', '.join(programs.KINDS)} (default run)"
    )
    parser.add_argument(
        "--target",
        nargs="+",
        default=["h100"],
        help="a100, h100, h200, h100:4, v5e, v6e:2x2 (default h100)",
    )
    parser.add_argument(
        "--out", type=Path, help="JSON Lines file; rows of the same program and target are replaced"
    )
    parser.add_argument(
        "--against", type=Path, metavar="FILE", help="an earlier --out to compare with"
    )
    parser.add_argument(
        "--keep",
        type=Path,
        metavar="DIR",
        help="keep compiled texts here, and compile nothing twice",
    )
    parser.add_argument(
        "--tree", action="store_true", help="print every loop of each program (with --keep)"
    )
    _peers.add_arguments(parser, "purejaxrl", "rejax", "purejaxql")
    return parser.parse_args(argv)


def report(args: argparse.Namespace) -> int:
    """Measure, print and write; the exit code."""
    chosen = [targets.parse(name) for name in args.target]
    against, recorded = (rows.read(path) if path else {} for path in (args.against, args.out))
    known = recorded | against
    print(rows.heading(), flush=True)
    bad = 0
    for target in chosen:
        for name in [None] if args.algo else args.programs or table.TABLE:
            one = (
                measure(name, table.TABLE[name], target, args, known)
                if name
                else measure_one(args, target)
            )
            old = against.get(rows.key(one))
            one["before"] = old["value"] if old else recorded.get(rows.key(one), {}).get("before")
            known[rows.key(one)] = one
            print("\n".join([rows.line(one, old), *rows.remarks(one, old)]), flush=True)
            if args.tree and args.keep and "launches" in one:
                print("\n".join(_aot_compile.tree(args.keep / one["digest"])), flush=True)
            if args.out:
                rows.write(args.out, [one])
            bad += len(rows.worse(one, old)) if old else 0
            jax.clear_caches()
    return int(bad > 0)


def main(argv: list[str]) -> int:
    try:
        return report(parsed(argv))
    except UserError as error:
        print(f"error: {error}", file=sys.stderr)
        return error.exit_code


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
