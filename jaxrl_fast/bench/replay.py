"""Replay memories: add 8 rows, sample a batch, set its priorities; ours and flashbax's.

One scan over full stores with the state donated, as in training. The whole batch is part of the
scan's carry, so no reader of it is timed and none of it can be left out. Ours stores single frames;
flashbax stores stacks, which is its way.
"""

from __future__ import annotations

import dataclasses
from collections.abc import Callable
from typing import Any

from jaxrl_fast.bench.race import Contestant

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
    """Return (mem, batch, example, key) -> (mem, last batch), of `iterations` steps."""
    import jax
    import jax.numpy as jnp

    def program(mem, batch, example, key):
        def block(carry, first):
            ts = first + jnp.arange(BLOCK, dtype=jnp.int32)
            one = lambda carry, x: (step(carry[0], example, *x), None)
            return jax.lax.scan(one, carry, (draw(key, ts), ts))

        starts = jnp.arange(0, iterations, BLOCK, dtype=jnp.int32)
        return jax.lax.scan(block, (mem, batch), starts)[0]

    return program


def contestant(
    name: str, work: Work, iterations: int, parts: tuple
) -> tuple[Contestant, dict[str, int]]:
    """Return a memory on a full store, and its bytes.

    parts: (example, init, add(mem, rows, t), step, draw).
    """
    import jax
    import jax.numpy as jnp

    example, init, add, step, draw = parts
    writes = work.rows // ENVS

    @jax.jit
    def full(example):
        one = lambda t, mem: add(mem, example, jnp.int32(t))
        return jax.lax.fori_loop(0, writes, one, init(example))

    def last(example, key):
        first = jax.tree.map(lambda x: x[0], draw(key, jnp.arange(BLOCK)))
        return step(full(example), example, first, 0)[1]

    batch = jax.eval_shape(last, example, jax.random.key(0))

    def args(turn):
        empty = jax.tree.map(lambda x: jnp.zeros(x.shape, x.dtype), batch)
        return full(example), empty, example, jax.random.key(turn)

    size = lambda tree: sum(x.size * x.dtype.itemsize for x in jax.tree.leaves(tree))
    sizes = {"bytes": size(jax.eval_shape(full, example)), "batch_bytes": size(batch)}
    build = lambda: loop(step, draw, iterations)
    return Contestant(name, iterations, build, args, donate=(0, 1)), sizes


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
    import flashbax
    import jax
    import jax.numpy as jnp

    sizes = dict(
        max_length=work.rows, min_length=work.batch, sample_batch_size=work.batch,
        add_batch_size=ENVS,
    )
    if work.prioritized:
        device = jax.devices()[0].platform
        more = {"priority_exponent": 0.6, "device": device}
        buffer = flashbax.make_prioritised_flat_buffer(**sizes, **more)
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
        mem = buffer.set_priorities(mem, sample.indices, priorities)
        return mem, (sample.experience, weight / weight.max())

    init = lambda rows: buffer.init(jax.tree.map(lambda x: x[0], rows))
    add = lambda mem, rows, t: buffer.add(mem, rows)
    return example, init, add, step, jax.vmap(jax.random.fold_in, (None, 0))
