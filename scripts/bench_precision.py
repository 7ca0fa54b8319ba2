"""Learning with the torsos' products in TF32 and bfloat16 beside float32, emulated on a CPU.

    python scripts/bench_precision.py --rows dqn ppo --seeds 24 --json precision.json
    python scripts/bench_precision.py --show precision.json

A row is one algorithm at its preset, one program of all seeds for each precision. The emulation
rounds the operands of every product that `precision` marks to 10 or 7 bits of mantissa, to nearest,
forward and backward, and adds in float32. Rows and precisions that the file holds are left out.
"""

from __future__ import annotations

import argparse
import functools
import json
import sys
import time
from pathlib import Path

import bench_common as bench

ROWS = {  # environment, environment steps; None: the preset's
    "dqn": ("CartPole-v1", None),
    "ppo": ("CartPole-v1", None),
    "sac": ("Pendulum-v1", None),
    "ppo-brax": ("brax/inverted_pendulum", None),
}
PRECISIONS = ("highest", "tf32", "bf16")
SCORES = {"final": "evaluation at the end", "training": "mean return in training"}


def emulate() -> None:
    """Make programs for a CPU round what a GPU would; before anything is traced."""
    import jax
    from jax._src.lax import lax
    from jax.extend.core.primitives import dot_general_p
    from jax.interpreters import mlir

    bits = {(jax.lax.Precision.HIGH,) * 2: 10, jax.lax.DotAlgorithmPreset.BF16_BF16_F32: 7}
    plain = functools.partial(lax._dot_general_lower, platform="cpu")

    def rounded(x, y, *, precision, **params):
        x, y = (jax.lax.reduce_precision(a, exponent_bits=8, mantissa_bits=bits[precision])
                for a in (x, y))
        return dot_general_p.bind(x, y, precision=None, **params)

    def lower(ctx, *operands, precision, **params):
        rule = mlir.lower_fun(rounded, multiple_results=False) if precision in bits else plain
        return rule(ctx, *operands, precision=precision, **params)

    mlir.register_lowering(dot_general_p, lower, platform="cpu")


def check_emulation() -> None:
    """Raise AssertionError unless products are rounded as they are marked."""
    import jax
    import jax.numpy as jnp

    from jaxrl_fast.ops.precision import products

    def error(precision):
        with products(precision):  # 1 + 2^-9 needs 9 bits, 1 + 2^-13 needs 13
            return jax.jit(lambda x: jnp.dot(x, jnp.ones(2)) - 2)(
                jnp.float32([1 + 2**-9, 1 + 2**-13]))

    found = [float(error(p)) for p in PRECISIONS]
    assert found == [2**-9 + 2**-13, 2**-9, 0.0], found


def train(jf, row: str, precision: str, seeds: int, first: int, scale: float) -> dict:
    """Train all seeds of one precision; return the scores by seed."""
    import numpy as np

    name, steps = ROWS[row]
    algo = row.partition("-")[0]
    steps = int((steps or bench.preset_run(algo, name)["total_steps"]) * scale)
    began = time.perf_counter()
    run = jf.train(jf.preset(algo, name, precision=precision), jf.make(name), steps, seeds=seeds,
                   seed=first, progress=False,
                   eval_every=0, pictures=False)  # fmt: skip
    _, returns = run.curve("episode_return")
    training = np.nanmean(np.asarray(returns, np.float64).reshape(len(returns), seeds), axis=0)
    scores = {"final": np.asarray(run.eval_return, np.float64), "training": training}
    return {"environment": name, "steps": steps, "first_seed": first,
            "seconds": round(time.perf_counter() - began, 1),
            "machine": bench.machine()} | {k: [round(float(x), 2) for x in v]
                                           for k, v in scores.items()}  # fmt: skip


def table(found: dict) -> str:
    """Return the means with their 95% intervals, and those of the differences to float32 by
    seed."""
    import numpy as np

    from jaxrl_fast.ops.aggregate import interval

    shown = lambda x: "{:.1f} [{:.1f}, {:.1f}]".format(*interval(x))
    lines = []
    for row, by_precision in found.items():
        for score, title in SCORES.items():
            base = np.asarray(by_precision["highest"][score])
            for precision, result in by_precision.items():
                values = np.asarray(result[score])
                change = "" if precision == "highest" else shown(values - base)
                lines.append(
                    f"{row:10}{result['environment']:16}{precision:10}{title:26}{len(values):4} "
                    f"seeds  {shown(values):28}{change}"
                )
    return "\n".join(lines)


def main(argv: list[str]) -> int:
    parser = argparse.ArgumentParser(description=__doc__,
                                     formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--rows", nargs="+", choices=list(ROWS), default=list(ROWS))
    parser.add_argument("--precisions", nargs="+", choices=PRECISIONS, default=list(PRECISIONS))
    parser.add_argument("--seeds", type=int, default=24)
    parser.add_argument("--first-seed", type=int, default=100)
    parser.add_argument("--scale", type=float, default=1.0,
                        help="fraction of the environment steps, to try the script out")
    parser.add_argument("--json", type=Path, default=Path("precision.json"))
    parser.add_argument("--show", type=Path, help="print the table of a file")
    args = parser.parse_args(argv)
    if args.show:
        print(table(json.loads(args.show.read_text())))
        return 0
    jf = bench.prepare()
    emulate()
    check_emulation()
    found = json.loads(args.json.read_text()) if args.json.exists() else {}
    for row in args.rows:
        for precision in args.precisions:
            if precision in found.get(row, {}):
                continue
            result = train(jf, row, precision, args.seeds, args.first_seed, args.scale)
            found.setdefault(row, {})[precision] = result
            args.json.write_text(json.dumps(found, indent=1) + "\n")
            bench.say(f"{row} {precision}: {result['seconds']} s, {result['final']}")
    print(table(found))
    return 0


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
