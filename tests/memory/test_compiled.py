"""XLA's program of the replay: a ring write in place, and no copy of the store."""

from __future__ import annotations

import dataclasses
import functools
import os
import re
import subprocess
import sys
from pathlib import Path

import jax
import jax.numpy as jnp
import numpy as np
import pytest

from helpers.matrix import family
from jaxrl_fast import tree
from jaxrl_fast.algorithms.dqn import DQN
from jaxrl_fast.engine import iteration
from jaxrl_fast.engine.population import Population
from jaxrl_fast.envs.probes.control import RewardAtEnd
from jaxrl_fast.memory import (
    PrioritizedMemory,
    PrioritizedSequenceMemory,
    Recurrent,
    Row,
    UniformMemory,
    fill,
    hold,
)
from jaxrl_fast.memory.ring import as_dataset
from jaxrl_fast.types import Clock

MEMORY = UniformMemory(capacity=4096, num_steps=2, num_envs=4, batch_size=8, n_step=3, stack=2)
POPULATION = 3
ENV = RewardAtEnd()


def rows(t, shape=(6,)):
    flags = jnp.zeros((2, 4), bool)
    obs = jnp.full((2, 4, *shape), t, jnp.uint8)
    return Row(obs, jnp.zeros((2, 4), jnp.int32), jnp.full((2, 4), 1.0 * t), flags, flags)


def chunk(memory, shape, mem, key, t0):
    """Writes and reads as `iterate.iterations` does: the block's number comes from outside, never
    from the state."""

    def one(mem, t):
        mem = memory.add(mem, rows(t, shape), t)
        x = memory.plan(jax.random.fold_in(key, t), 1, t + 1, Clock(t, t, jnp.float32(0)))
        window, handle = memory.fetch(mem, tree.take(x, 0))
        return memory.feedback(mem, handle, window.weight), window.reward.sum() + window.obs.sum()

    return jax.lax.scan(one, mem, t0 + jnp.arange(7, dtype=jnp.int32))


PIXELS = dict(capacity=2400, num_steps=2, num_envs=4, batch_size=8, n_step=3, stack=4)
STORES = {  # a memory, and an observation's shape; of pictures, four frames to an observation
    "small": (MEMORY, (6,)),
    "pixels": (UniformMemory(**PIXELS), (84, 84, 1)),
    "prioritized pixels": (PrioritizedMemory(**PIXELS), (84, 84, 1)),
}


# each store once, alone and in a population
FIRST = (("small", POPULATION), ("pixels", 0), ("prioritized pixels", POPULATION))


@pytest.fixture(scope="module", ids=str, params=family(
    [pytest.param((store, size)) for store in STORES for size in (0, POPULATION)],
    lambda case: case in FIRST))
def hlo(request):
    name, population = request.param
    memory, shape = STORES[name]
    mem = jax.eval_shape(memory.init, jax.eval_shape(lambda: rows(0, shape)))
    key = jax.eval_shape(lambda: jax.random.key(0))
    fn = functools.partial(chunk, memory, shape)
    if population:
        fn = jax.vmap(fn, in_axes=(0, 0, None))
        mem, key = jax.eval_shape(
            lambda m, k: jax.tree.map(lambda x: jnp.stack([x] * POPULATION), (m, k)), mem, key)
    lowered = jax.jit(fn, donate_argnums=0).lower(mem, key, jax.ShapeDtypeStruct((), jnp.int32))
    leading = f"{POPULATION}," if population else ""
    compiled = lowered.compile()
    assert_little_is_beside(compiled, mem)
    return compiled.as_text(), f"[{leading}{memory.length},4"


def copies(text, store):
    """Instructions whose result is a copy of the store."""
    return [line.strip()
            for line in text.splitlines() if re.search(
                r"= \S*" + re.escape(store) + r"\S* copy\(", line)]


def assert_little_is_beside(compiled, store):
    """The program needs less than half of the store beside its arguments: a copy has many
    spellings."""
    assert compiled.memory_analysis().temp_size_in_bytes < tree.nbytes(store) / 2


def slice_writes(text, store):
    return re.findall(r"= \S*" + re.escape(store) + r"\S* dynamic-update-slice\(", text)


def test_the_ring_is_written_by_slices_never_by_a_scatter(hlo):
    text, store = hlo
    assert len(slice_writes(text, store)) == 5  # one a leaf
    assert not re.search(r"\bscatter\(", text)


def test_the_store_is_donated_and_never_copied(hlo):
    text, store = hlo
    assert "input_output_alias" in text
    assert copies(text, store) == []


def test_the_search_would_find_a_scatter_and_a_copy():
    """The same write with the block's number in the state, and without donation."""
    mem = jax.eval_shape(MEMORY.init, jax.eval_shape(lambda: rows(0)))
    mem = jax.eval_shape(lambda m: jax.tree.map(lambda x: jnp.stack([x] * POPULATION), m), mem)
    w = jax.ShapeDtypeStruct((POPULATION,), jnp.int32)
    text = jax.jit(jax.vmap(lambda mem, w: MEMORY.add(mem, rows(w), w))).lower(mem, w)
    # switched off to compile quickly; without them it is a loop
    emitters = "fusion_emitters" in os.environ["XLA_FLAGS"]
    text = text.compile({"xla_cpu_use_fusion_emitters": True} if emitters else None).as_text()
    store = f"[{POPULATION},{MEMORY.length},4"
    assert re.search(r"\bscatter\(", text) and not slice_writes(text, store)
    assert copies(text, store)


def test_the_memory_analysis_would_find_a_copy():
    """A donated store that is read, after the write, as it was before."""

    def late(mem, t0):
        def one(mem, t):
            x = tree.take(MEMORY.plan(jax.random.key(0), 1, t, Clock(t, t, jnp.float32(0))), 0)
            new = MEMORY.add(mem, rows(t), t)
            windows = [MEMORY.fetch(m, x)[0] for m in (new, mem)]
            return new, sum(w.obs.sum() + w.reward.sum() for w in windows)

        return jax.lax.scan(one, mem, t0 + jnp.arange(7, dtype=jnp.int32))

    mem = jax.eval_shape(MEMORY.init, jax.eval_shape(lambda: rows(0)))
    compiled = jax.jit(late, donate_argnums=0).lower(mem,
                                                     jax.ShapeDtypeStruct((), jnp.int32)).compile()
    with pytest.raises(AssertionError):
        assert_little_is_beside(compiled, mem)


@pytest.mark.parametrize("prioritized", family([False, True], [True]))
@pytest.mark.parametrize("population", family([0, POPULATION], [0]))
def test_dqn_keeps_its_replay_in_place(population, prioritized, updates=2):
    """The whole iteration, as the host loop runs it. Six times as slow at 10^5 rows when this
    fails."""
    sizes = dict(num_envs=3, buffer_size=6000, batch_size=8, hidden=(8,), learning_starts=30,
                 n_step=2)
    # two updates: a loop inside the loop carries the store
    algo = DQN(**sizes, updates_per_iteration=updates, prioritized=prioritized).bind(ENV.spec)
    run = tree.as_float32(iteration.Run(ENV, algo, 1000.0))
    init, fn = (
        lambda key: iteration.init(run, key), lambda s, t: iteration.iterations(run, s, t, 50, True)
    )
    key, leading = jax.eval_shape(lambda: jax.random.key(0)), ""
    if population:
        key, leading = (
            jax.eval_shape(lambda: jax.random.split(jax.random.key(0), population)),
            f"{population},"
        )
        init, fn = jax.vmap(init), jax.vmap(fn, in_axes=(0, None))
    state = jax.eval_shape(init, key)
    compiled = jax.jit(fn, donate_argnums=0).lower(state,
                                                   jax.ShapeDtypeStruct((), jnp.int32)).compile()
    assert_little_is_beside(compiled, state.memory)
    text = compiled.as_text()
    store = f"[{leading}2000,3"
    assert len(slice_writes(text, store)) == 5 and copies(text, store) == []
    assert not re.search(r"= \S*" + re.escape(store) + r"\S* scatter\(", text)
    if prioritized:  # nor is a level of the sum tree: 6000 leaves, 750 rows of 8
        assert f"[{leading}750,8]" in text and copies(text, f"[{leading}750,8]") == []
    # the target network's period stays a branch: its counter is not batched
    assert "conditional(" in text


AS_USERS_HAVE_IT = """
import itertools, os
import test_compiled as here

here.test_the_search_would_find_a_scatter_and_a_copy()
here.test_the_memory_analysis_would_find_a_copy()
for case in itertools.product((0, here.POPULATION), (False, True), (1, 2)):
    here.test_dqn_keeps_its_replay_in_place(*case)
print(os.environ.get("XLA_FLAGS", ""))
"""


@pytest.mark.slow
@pytest.mark.timeout(600)
def test_dqn_keeps_its_replay_in_place_in_the_code_that_users_run():
    """The flags of tests/conftest.py are off: XLA then fuses more, and may copy the fused store."""
    environment = {name: value for name, value in os.environ.items() if name != "XLA_FLAGS"}
    ended = subprocess.run(
        [sys.executable, "-c", AS_USERS_HAVE_IT], cwd=Path(__file__).parent, env=environment,
        timeout=590, capture_output=True, text=True,
    )  # fmt: skip
    assert ended.returncode == 0, ended.stderr[-3000:]
    assert not any(name in ended.stdout
                   for name in ("optimization_level", "expensive_passes", "fusion_emitters"))


@pytest.mark.parametrize(("what", "prioritized"), family([
    ("groups", True), ("mixed", True), ("start", True), ("offline", True), ("offline", False),
    *(pytest.param(what, False, marks=pytest.mark.slow) for what in ("groups", "mixed", "start")),
], lambda what, prioritized: what == "offline" and not prioritized))  # fmt: skip
def test_other_stores_are_not_copied_either(what, prioritized):
    """Groups side by side, a run that starts full, and a dataset, which is an argument beside the
    state, in half of every batch or in all of it.
    """
    sizes = dict(num_envs=3, buffer_size=6000, batch_size=9, hidden=(8,), learning_starts=30,
                 n_step=2)
    algo = DQN(**sizes, updates_per_iteration=2, prioritized=prioritized).bind(ENV.spec)
    run = tree.as_float32(iteration.Run(ENV, algo, 1000.0, groups=3 if what == "groups" else 1))
    data, store = None, "[3,2000,1" if what == "groups" else "[2000,3"
    if what != "groups":
        shapes = jax.eval_shape(lambda: iteration.init(run, jax.random.key(0))).memory
        rows = as_dataset(getattr(shapes, "rows", shapes))
        rows = jax.tree.map(lambda x: np.zeros((1500, *x.shape[1:]), x.dtype), rows)
        data = (fill if what == "start" else hold)(algo.memory(), rows)
        run = dataclasses.replace(run, experience=data,
                                  fraction={"mixed": 0.5, "start": 0.0, "offline": 1.0}[what])
    state = jax.eval_shape(iteration.init, run, jax.random.key(0))
    fn = jax.jit(lambda run, s, t: iteration.iterations(run, s, t, 50, True), donate_argnums=1)
    compiled = fn.lower(run, state, jax.ShapeDtypeStruct((), jnp.int32)).compile()
    text = compiled.as_text()
    beside = data.store if what == "offline" else state.memory
    assert_little_is_beside(compiled, beside)
    if what != "offline":  # which writes nothing
        assert len(slice_writes(text, store)) == 5
        assert not re.search(r"= \S*" + re.escape(store) + r"\S* scatter\(", text)
        assert copies(text, store) == []
    if what in ("mixed", "offline"):
        dataset = f"[{len(data.rows.reward)},3"
        assert dataset in text and copies(text, dataset) == []


@pytest.mark.parametrize("prioritized", family([False, True], [True]))
def test_members_in_turns_keep_their_replay_in_place(prioritized):
    """One member's state is in flight beside those of all; `lax.map` would have all the new beside
    all the old."""
    algo = DQN(num_envs=3, buffer_size=6000, batch_size=8, hidden=(8,), learning_starts=30,
               prioritized=prioritized)
    run = tree.as_float32(iteration.Run(ENV, algo.bind(ENV.spec), 1000.0))
    keys = jax.eval_shape(lambda: jax.random.split(jax.random.key(0), POPULATION))
    state = jax.eval_shape(jax.vmap(lambda key: iteration.init(run, key)), keys)
    fn = Population(POPULATION, "map", (jax.devices()[0],)).lift(
        lambda run, s, t: iteration.iterations(run, s, t, 50, True))
    compiled = jax.jit(fn, donate_argnums=1).lower(run, state,
                                                   jax.ShapeDtypeStruct((), jnp.int32)).compile()
    assert_little_is_beside(compiled, state.memory)
    assert copies(compiled.as_text(), f"[{POPULATION},2000,3") == []


class Shape:
    """A part of a state's structure that is an array, whose `==` has no truth value; each made
    anew."""

    def __init__(self):
        self.value = np.zeros(3)

    def __eq__(self, other):
        return self.value == other.value

    def __hash__(self):
        return 0


@functools.partial(jax.tree_util.register_dataclass, data_fields=["count"], meta_fields=["shape"])
@dataclasses.dataclass(frozen=True)
class Odd:
    count: jax.Array
    shape: Shape


def test_turns_do_not_look_at_a_states_structure():
    step = lambda run, s, n: (Odd(s.count + n, Shape()), {"before": s.count})
    state = Odd(jnp.arange(3.0), Shape())
    after, metrics = Population(3, "map", (jax.devices()[0],)).lift(step)(0.0, state, 10.0)
    np.testing.assert_array_equal(after.count, [10, 11, 12])
    np.testing.assert_array_equal(metrics["before"], [0, 1, 2])
    once = (
        Population(3, "map",
                   (jax.devices()[0],)).lift(lambda run, s, n: s.count * n)(0.0, state, 10.0)
    )
    np.testing.assert_array_equal(once, [0, 10, 20])


@pytest.mark.parametrize("population", family([0, POPULATION], [0]))
def test_prioritized_sequences_stay_in_place(population):
    """The loop of `chunk`, with a tree whose leaves are every second row of 3 environments."""
    sizes = dict(seq_len=6, burn_in=2, carry_every=2)
    memory = PrioritizedSequenceMemory(6000, num_steps=4, num_envs=3, batch_size=8, n_step=2,
                                       stack=2, **sizes)

    def block(t):
        flags = jnp.zeros((4, 3), bool)
        row = Row(
            jnp.full((4, 3, 6), t, jnp.uint8), jnp.zeros((4, 3), jnp.int32),
            jnp.full((4, 3), 1.0 * t), flags, flags
        )
        return Recurrent(row, jnp.full((2, 3, 5), 1.0 * t))

    def one(mem, x):
        plan, t = x
        mem = memory.add(mem, block(t), t)
        sequence, handle = memory.fetch(mem, plan)
        error = jnp.abs(sequence.steps.reward).mean(axis=0)
        return memory.feedback(mem, handle, error), sequence.steps.obs.sum() + sequence.carry.sum()

    def loop(mem, key, t0):
        ts = t0 + jnp.arange(7, dtype=jnp.int32)
        plans = jax.vmap(
            lambda t: memory.plan(jax.random.fold_in(key, t), 1, t + 1, Clock(t, t, jnp.float32(0)))
        )(ts)
        return jax.lax.scan(one, mem, (jax.tree.map(lambda x: x[:, 0], plans), ts))

    fn, leading = loop, ""
    mem, key = jax.eval_shape(
        lambda: (memory.init(jax.eval_shape(lambda: block(0))), jax.random.key(0)))
    if population:
        fn, leading = jax.vmap(loop, in_axes=(0, 0, None)), f"{population},"
        mem, key = jax.eval_shape(
            lambda m, k: jax.tree.map(lambda x: jnp.stack([x] * population), (m, k)), mem, key)
    compiled = jax.jit(fn, donate_argnums=0).lower(mem, key,
                                                   jax.ShapeDtypeStruct((), jnp.int32)).compile()
    assert_little_is_beside(compiled, mem)
    text = compiled.as_text()
    for store, writes in (("2000,3", 5), ("1000,3,5", 1)):  # rows and carries
        assert len(slice_writes(text, f"[{leading}{store}")) == writes and copies(
            text, f"[{leading}{store}") == []
        assert not re.search(r"= \S*" + re.escape(f"[{leading}{store}") + r"\S* scatter\(", text)
    # 3000 leaves, 375 rows of 8
    assert f"[{leading}375,8]" in text and copies(text, f"[{leading}375,8]") == []
