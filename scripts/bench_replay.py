"""Replay memories: add 8 rows, sample a batch, set its priorities, against flashbax.

    python scripts/bench_replay.py --json replay.json

Rows of 4 floats (100k of them, batches of 256) and pixels, 84x84 uint8 in stacks of 4 (20k, batches of 32), each
prioritized and uniform. One scan over full stores with the state donated, as in training. The whole batch is part of
the scan's carry, so no reader of it is timed and none of it can be left out. Ours stores single frames; flashbax stores
stacks, which is its way. Without flashbax only ours is measured. Runs on any device.
"""

from __future__ import annotations

import dataclasses
import sys
from collections.abc import Callable
from typing import Any

import bench_common as bench

ENVS = 8
BLOCK = 64  # iterations whose randomness is drawn at once, as `jaxrl_fast.engine.iteration` does


@dataclasses.dataclass(frozen=True)
class Work:
    rows: int  # the store's
    batch: int
    frame: tuple[int, ...]
    dtype: str
    stack: int
    prioritized: bool
    iterations: int

    def example(self, stack: int) -> dict[str, Any]:
        """One step of all environments; frames as the environment gave them (1) or stacked."""
        import numpy as np

        rng = np.random.default_rng(0)
        shape = (ENVS, *self.frame[:-1], self.frame[-1] * stack)
        return {
            "obs": rng.integers(0, 256, shape).astype(self.dtype),
            "action": rng.integers(0, 4, ENVS).astype(np.int32),
            "reward": rng.normal(size=ENVS).astype(np.float32),
            "terminated": np.zeros(ENVS, bool),
            "truncated": np.zeros(ENVS, bool),
        }


SMALL = Work(100_000, 256, (4,), "float32", 1, True, 20_000)
PIXELS = Work(20_000, 32, (84, 84, 1), "uint8", 4, True, 10_000)
WORKS = {
    "small_prioritized": SMALL,
    "pixel_prioritized": PIXELS,
    "small_uniform": dataclasses.replace(SMALL, prioritized=False, iterations=200_000),
    "pixel_uniform": dataclasses.replace(PIXELS, prioritized=False),
}


def loop(step: Callable, draw: Callable, iterations: int) -> Callable:
    """(mem, batch, example, key) -> (mem, last batch): `iterations` steps, randomness drawn for a block of them."""
    import jax
    import jax.numpy as jnp

    def program(mem, batch, example, key):
        def block(carry, first):
            ts = first + jnp.arange(BLOCK, dtype=jnp.int32)
            return jax.lax.scan(lambda c, x: (step(c[0], example, *x), None), carry, (draw(key, ts), ts))

        return jax.lax.scan(block, (mem, batch), jnp.arange(0, iterations, BLOCK, dtype=jnp.int32))[0]

    return program


def contestant(name: str, work: Work, iterations: int, parts: tuple) -> tuple[bench.Contestant, dict[str, int]]:
    """Parts (example, init, add(mem, rows, t), step, draw) of a memory as a contestant on a full store."""
    import jax
    import jax.numpy as jnp

    example, init, add, step, draw = parts
    writes = work.rows // ENVS

    @jax.jit
    def full(example):
        one = lambda t, mem: add(mem, example, jnp.int32(t))
        return jax.lax.fori_loop(0, writes, one, init(example))

    batch = jax.eval_shape(lambda e, k: step(full(e), e, jax.tree.map(lambda x: x[0], draw(k, jnp.arange(BLOCK))), 0)[1],
                           example, jax.random.key(0))  # fmt: skip

    def args(turn):
        empty = jax.tree.map(lambda x: jnp.zeros(x.shape, x.dtype), batch)
        return full(example), empty, example, jax.random.key(turn)

    size = lambda tree: sum(x.size * x.dtype.itemsize for x in jax.tree.leaves(tree))
    sizes = {"bytes": size(jax.eval_shape(full, example)), "batch_bytes": size(batch)}
    build = lambda: loop(step, draw, iterations)
    return bench.Contestant(name, iterations, build, args, donate=(0, 1)), sizes


def ours(work: Work) -> tuple:
    import jax
    import jax.numpy as jnp

    from jaxrl_fast import random
    from jaxrl_fast.memory import PrioritizedMemory, Row, UniformMemory
    from jaxrl_fast.types import Clock

    kind = PrioritizedMemory if work.prioritized else UniformMemory
    memory = kind(work.rows, 1, ENVS, work.batch, n_step=1, stack=work.stack)
    example = Row(**{name: jnp.asarray(x)[None] for name, x in work.example(1).items()})
    start = memory.num_blocks  # the store is full: iterations go on from there

    def draw(key, ts):
        clock = lambda t: Clock(t, t, jnp.float32(0.5))
        plan = lambda t: memory.plan(random.fold_in(key, t), 1, start + t + 1, clock(t))
        return jax.tree.map(lambda x: x[:, 0], jax.vmap(plan)(ts))

    def step(mem, rows, plan, t):
        mem = memory.add(mem, rows, start + t)
        batch, handle = memory.fetch(mem, plan)
        return memory.feedback(mem, handle, jnp.abs(batch.reward[0])), batch

    return example, memory.init, memory.add, step, draw


def flashbax(work: Work) -> tuple:
    """Raises ImportError where it is not installed."""
    import flashbax  # pyright: ignore[reportMissingImports]
    import jax
    import jax.numpy as jnp

    sizes = dict(
        max_length=work.rows, min_length=work.batch, sample_batch_size=work.batch, add_batch_size=ENVS
    )
    if work.prioritized:
        device = jax.devices()[0].platform
        buffer = flashbax.make_prioritised_flat_buffer(**sizes, priority_exponent=0.6, device=device)
    else:
        buffer = flashbax.make_flat_buffer(**sizes)
    example = {name: jnp.asarray(x) for name, x in work.example(work.stack).items()}

    def step(mem, rows, key, t):
        mem = buffer.add(mem, rows)
        sample = buffer.sample(mem, key)
        if not work.prioritized:
            return mem, sample.experience
        priorities = jnp.abs(sample.experience.first["reward"]) + 1e-6
        # the importance weights that a learner needs and ours come with
        weight = (1.0 / sample.probabilities) ** 0.5
        return buffer.set_priorities(mem, sample.indices, priorities), (sample.experience, weight / weight.max())

    init = lambda rows: buffer.init(jax.tree.map(lambda x: x[0], rows))
    return example, init, lambda mem, rows, t: buffer.add(mem, rows), step, jax.vmap(jax.random.fold_in, (None, 0))


def measure(args, work: Work):
    jf = bench.prepare()
    notes, contestants, sizes = [], [], {}
    iterations = max(BLOCK, int(work.iterations * args.scale) // BLOCK * BLOCK)
    if jf is None:
        notes.append("jaxrl_fast is absent: measured without it")
    for name, make in {"jaxrl_fast": ours, "flashbax": flashbax}.items():
        if name == "jaxrl_fast" and jf is None:
            continue
        try:
            one, sizes[name] = contestant(name, work, iterations, make(work))
            contestants.append(one)
        except ImportError as error:
            if name == "jaxrl_fast":
                raise
            notes.append(f"peer absent, {error}")
    notes.append("steps are iterations: one add, one sample" + (", priorities set" if work.prioritized else ""))
    row = {"machine": bench.machine(), "notes": notes} | bench.race(contestants, args.turns)
    for name, result in row["contestants"].items():
        result |= sizes[name] | {"microseconds": 1e6 * result["median_seconds"] / result["steps"]}
        bench.say(f"    {name:<12} {result['microseconds']:8.1f} us an iteration, store {result['bytes'] / 1e6:.1f} MB")
    if len(sizes) == 2:
        row["bytes_ratio"] = sizes["jaxrl_fast"]["bytes"] / sizes["flashbax"]["bytes"]
        times = [row["contestants"][name]["microseconds"] for name in ("jaxrl_fast", "flashbax")]
        row["time_ratio"] = times[0] / times[1]
        bench.say(f"    jaxrl_fast / flashbax: {row['time_ratio']:.2f} of the time, {row['bytes_ratio']:.2f} of the bytes")
    return row


ROWS = {name: lambda args, work=work: measure(args, work) for name, work in WORKS.items()}


def main(argv):
    return bench.main(bench.parser(__doc__, ROWS).parse_args(argv), ROWS, argv)


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
