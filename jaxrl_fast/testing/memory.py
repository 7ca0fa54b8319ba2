"""`check_memory(memory)`: check every property that the loop relies on, with numbered rows.

Every value of a row is the row's number. Two lives differ by an offset in all numbers: values of a
batch that differ by it came out of a row, others were never written. So any memory can be judged,
whatever its fields. A third life has ends of episodes (`testing.ends`). Each failure names the
property, the observation, and the change to make.
"""

from __future__ import annotations

import copy
from typing import Any, NamedTuple

import jax
import jax.numpy as jnp
import numpy as np

from jaxrl_fast import random, tree
from jaxrl_fast.envs.checks import describe
from jaxrl_fast.memory import (
    Memory,
    Recurrent,
    Ring,
    Row,
    SequenceMemory,
    StartFrom,
    Transition,
    TransitionMemory,
)
from jaxrl_fast.memory.grouped import Grouped
from jaxrl_fast.testing import ends, numbered
from jaxrl_fast.testing.conformance import require_equal, require_strong
from jaxrl_fast.testing.priorities import check_priorities
from jaxrl_fast.testing.purity import check_purity, compile_for_one_call, find_difference
from jaxrl_fast.types import Clock, Sequence, Window


class MemoryReport(NamedTuple):
    """Counts of a check."""

    blocks: int  # written in a row
    ready: int  # written before the first judged batch
    batches: int  # judged
    rows: int  # different rows that came out


def check_memory(
    memory: Memory,
    rows: Any = None,
    *,
    blocks: int | None = None,
    ready: int | None = None,
    deterministic: bool = False,
    prioritized: bool | None = None,
) -> MemoryReport:
    """Raise AssertionError with the property of the protocol that `memory` breaks.

    Args:
        memory: Any `jaxrl_fast.memory.Memory`; a small one: every row is drawn about twenty times.
        rows: Arrays or shapes [T, B, ...] of what `Algorithm.prepare` returns, with an int32 or
            float32 leaf; `next_...` is a successor's. Default: a `Row` (or `Transition`) of the
            memory's `num_steps` and `num_envs`.
        blocks: Blocks to write, more than the memory holds (default: twice its `num_blocks`, or 4).
        ready: Blocks after which every batch must be real (default: its `dead_blocks` + 1, or 1).
        deterministic: For a memory without randomness.
        prioritized: Whether errors decide the draws and weights undo it (default: `alpha` above 0).

    Compiles three lives as a population with an unbatched `w`, one of them alone, and one for
    priorities.
    """
    assert isinstance(memory, Memory), (
        f"protocol: {type(memory).__name__} is not a jaxrl_fast.memory.Memory"
    )
    rows = (_example(memory) if rows is None
            else jax.tree.map(lambda x: jax.ShapeDtypeStruct(x.shape, x.dtype), rows))
    one = memory.memory if isinstance(memory, Grouped | StartFrom) else memory  # one group's
    num_blocks = getattr(one, "num_blocks", 1)
    blocks = blocks or 2 * num_blocks + 2
    # its first content has no numbers and is judged once overwritten
    ready = ready or (num_blocks if isinstance(memory, StartFrom)
                      else getattr(one, "dead_blocks", 0) + 1)
    assert ready < blocks, f"arguments: ready = {ready} leaves nothing to judge of {blocks} blocks"
    batch = _check_types(memory, rows)
    num_steps, num_envs = jax.tree.leaves(rows)[0].shape[:2]
    held = num_steps * num_envs * num_blocks
    weight = getattr(batch, "weight", jax.tree.leaves(batch)[0])
    fetches = -(-20 * held // weight.shape[0])
    assert blocks * held <= 100_000, (
        f"size: {held} rows in {blocks} blocks take too long; give `check_memory` a small memory"
    )

    ended = np.asarray(jax.random.randint(jax.random.key(1), (blocks, num_steps, num_envs),
                                          0, numbered.MOST + 1))
    never = np.zeros_like(ended)
    lives = [(0, never, 2), (numbered.OFFSET, never, 2), (0, ended, 3)]
    inputs = [(numbered.blocks(rows, blocks, number, flags), jax.random.key(seed))
              for number, flags, seed in lives]
    data, keys = zip(*inputs, strict=True)
    # in NumPy, here and below: each leaf of a shape of its own would be a program
    stacked = jax.tree.map(lambda *x: np.stack(x), *data), jnp.stack(keys)
    lanes = _lanes(memory, rows, stacked, fetches, ready)
    plain, moved, other = (tree.take(lanes, i) for i in range(3))

    for life in (plain, other):
        assert life.finite.all(), (
            f"watch: not finite after block {int(np.argmin(life.finite))}, though every row and "
            "every priority was; the NaN sentinel would end the run"
        )
    same = all(np.array_equal(a, b)
               for a, b in zip(*map(jax.tree.leaves, (plain.plan, other.plan)), strict=True))
    assert deterministic or not same, (
        "plan: two keys gave the same plan. Draw from the `key` that it is given (or pass "
        "deterministic=True)"
    )
    seen = numbered.judge(rows, plain.batch, moved.batch, ready)
    numbered.check_coverage(seen, ready, num_steps, num_envs, one)
    ends.judge(inputs[2][0], other.batch, plain.batch, moved.batch, ready)
    _check_alone(memory, rows, inputs[2], lanes, fetches, ready)
    if getattr(one, "alpha", 0) > 0 if prioritized is None else prioritized:
        check_priorities(memory, rows, inputs[0][0], fetches, getattr(one, "alpha", 1.0))
    return MemoryReport(blocks, ready, (blocks - ready + 1) * fetches,
                        len(np.unique(seen.everything[1])))


class _Life(NamedTuple):
    """One life: [blocks, fetches, ...]."""

    plan: Any
    batch: Any
    finite: jax.Array  # bool [blocks]


def _example(memory: Memory) -> Any:
    if isinstance(memory, Grouped):
        wide = lambda x: jax.ShapeDtypeStruct(
            (x.shape[0], x.shape[1] * memory.groups, *x.shape[2:]), x.dtype
        )
        return jax.tree.map(wide, _example(memory.memory))
    if isinstance(memory, StartFrom):
        return _example(memory.memory)
    assert hasattr(memory, "num_steps") and hasattr(memory, "num_envs"), (
        f"arguments: {type(memory).__name__} has no num_steps and num_envs; pass `rows`, shapes "
        "[T, B, ...]"
    )
    shape = lambda *s, dtype="int32": jax.ShapeDtypeStruct(
        (memory.num_steps, memory.num_envs, *s), dtype
    )
    obs = {"a": shape(2), "pixels": shape(1, dtype="uint8")}
    if isinstance(memory, TransitionMemory):
        return Transition(obs, shape(), shape(dtype="float32"), obs, shape(dtype="bool"))
    row = Row(obs, shape(), shape(dtype="float32"), shape(dtype="bool"), shape(dtype="bool"))
    row = row._replace(next_obs=obs) if isinstance(memory, Ring) else row
    if not isinstance(memory, SequenceMemory):
        return row
    carries = memory.num_steps // memory.carry_every
    return Recurrent(row, jax.ShapeDtypeStruct((carries, memory.num_envs, 3), jnp.float32))


def _check_types(memory: Memory, rows: Any) -> Any:
    """Check shapes, dtypes and weak types through one iteration -> the batch's shapes."""
    w = jax.ShapeDtypeStruct((), jnp.int32)
    key = jax.eval_shape(lambda: jax.random.key(0))
    clock = Clock(w, w, jax.ShapeDtypeStruct((), jnp.float32))
    try:
        start = jax.eval_shape(lambda: memory.init(rows))
        added = jax.eval_shape(memory.add, start, rows, w)
        for n in (1, 3):
            plan = jax.eval_shape(lambda key, w, clock, n=n: memory.plan(key, n, w, clock),
                                  key, w, clock)
            for x in jax.tree.leaves(plan):
                assert x.shape[:1] == (n,), (
                    f"plan: for {n} fetches it has a leaf {describe(x)}; its first axis is fetches"
                )
        x = jax.tree.map(lambda x: jax.ShapeDtypeStruct(x.shape[1:], x.dtype), plan)
        batch, _ = jax.eval_shape(memory.fetch, added, x)
        fed = jax.eval_shape(lambda mem, x: _feed(memory, mem, *memory.fetch(mem, x)), added, x)
        kept = jax.eval_shape(memory.retain, fed)
    except jax.errors.JAXTypeError as error:
        raise AssertionError("tracing: a method needs a value that is traced, such as `w` "
                             f"({error})") from None
    for what, value in (("init", start), ("add", added), ("feedback", fed)):
        require_strong(f"the store after `{what}`", value)
    require_equal("feedback: the store must stay what `add` made it", fed, added)
    retains = type(memory).retain is not Memory.retain
    what = "retain: the part kept across iterations" if retains else "add: the store"
    require_equal(f"{what} must stay what `init` made it (the loop carries it)", kept, start)
    dtypes = {Window: {"use": "bool", "steps": "int32", "boot": "float32", "weight": "float32"},
              Sequence: {"use": "bool", "weight": "float32"}}  # fmt: skip
    for name, dtype in dtypes.get(type(batch), {}).items():
        x = getattr(batch, name)
        assert x.dtype == dtype, (
            f"dtype: {type(batch).__name__}.{name} is {describe(x)}, not {dtype}"
        )
    if hasattr(batch, "weight") and hasattr(memory, "batch_size"):
        shape, want = batch.weight.shape, (memory.batch_size,)
        assert shape == want, f"batch: its weight is {list(shape)}; `batch_size` says {list(want)}"
    return batch


def _feed(memory: Memory, mem: Any, batch: Any, handle: Any) -> Any:
    """Feed back one priority a batch element; all equal, because a row may occur twice."""
    priority = jnp.full(batch.weight.shape, 0.7, jnp.float32) if hasattr(batch, "weight") else ()
    return memory.feedback(mem, handle, priority)


def _life(memory: Memory, rows: Any, data: Any, key: jax.Array,
          ws: jax.Array, fetches: int, ready: int) -> _Life:
    """Write every block and draw `fetches` batches after each, as `iteration` does."""

    def block(mem, x):
        new, w = x
        mem = memory.add(mem, new, w)
        clock = Clock(w, w * fetches, (w / ws.shape[0]).astype(jnp.float32))
        plan = memory.plan(jax.random.fold_in(key, w), fetches, w + 1, clock)

        def draw(mem, x):
            batch, handle = memory.fetch(mem, x)
            return _feed(memory, mem, batch, handle), batch

        learned, batch = jax.lax.scan(draw, mem, plan)
        # warm-up only adds
        mem = jax.tree.map(lambda a, b: jnp.where(w >= ready - 1, a, b), learned, mem)
        return memory.retain(mem), _Life(plan, batch, tree.all_finite(memory.watch(mem)))

    return jax.lax.scan(block, memory.init(rows), (data, ws))[1]


def _compile(memory: Memory, rows: Any, inputs: Any, fetches: int,
             ready: int, population: bool) -> Any:
    """Compile the program with the block numbers outside the population: `w` is never batched."""

    def trace(memory):
        run = lambda data, key, ws: _life(memory, rows, data, key, ws, fetches, ready)
        fn = jax.vmap(run, in_axes=(0, 0, None)) if population else run
        blocks = jax.tree.leaves(inputs[0])[0].shape[1 if population else 0]
        ws = jnp.arange(blocks, dtype=jnp.int32)
        return jax.jit(fn).trace(*inputs, ws), ws

    traced, ws = trace(memory)
    if population:
        check_purity(traced.jaxpr, trace(copy.copy(memory))[0].jaxpr, "memory")
    compiled = compile_for_one_call(traced)
    as_numpy = lambda x: np.asarray(random.as_data(x))
    return lambda inputs: jax.tree.map(as_numpy, compiled(*inputs, ws))


def _lanes(memory: Memory, rows: Any, stacked: Any, fetches: int, ready: int) -> _Life:
    """Run three lives as a population; a member may depend on neither neighbours nor calls."""
    run = _compile(memory, rows, stacked, fetches, ready, population=True)
    turn = np.array([2, 0, 1])
    lanes, turned = run(stacked), run(tree.take(stacked, turn))
    where = find_difference(tree.take(lanes, turn), turned)
    assert where is None, (
        f"population: under `vmap` a member's {where} depends on its neighbours or on the call. "
        "Keys of a kind that draws a whole batch from one lane, or something kept between calls?"
    )
    return lanes


def _check_alone(memory: Memory, rows: Any, inputs: Any, lanes: _Life,
                 fetches: int, ready: int) -> None:
    alone = _compile(memory, rows, inputs, fetches, ready, population=False)(inputs)
    for (path, a), b in zip(jax.tree_util.tree_leaves_with_path(alone),
                            jax.tree.leaves(lanes), strict=True):
        b = b[2]
        close = (np.allclose(a, b, rtol=1e-4, equal_nan=True) if a.dtype.kind == "f"
                 else np.array_equal(a, b))
        assert close, (
            f"population: a member's {jax.tree_util.keystr(path)} differs from that of its single "
            "run"
        )
