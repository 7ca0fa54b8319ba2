"""Every memory passes `check_memory`; and for each property, a memory that breaks it does not."""

from __future__ import annotations

import dataclasses
from typing import Any, NamedTuple

import jax
import jax.numpy as jnp
import numpy as np
import pytest

from helpers.matrix import family
from jaxrl_fast.memory import (
    Memory,
    PrioritizedMemory,
    PrioritizedSequenceMemory,
    RolloutMemory,
    Row,
    SequenceMemory,
    StartFrom,
    TransitionMemory,
    UniformMemory,
    fill,
)
from jaxrl_fast.memory.grouped import grouped
from jaxrl_fast.memory.ring import gather_obs
from jaxrl_fast.testing import check_memory

SEQUENCE = dict(seq_len=5, burn_in=2, carry_every=2)
GOOD = {
    "rollout": RolloutMemory(4, 3, 2),
    "rollout by environment": RolloutMemory(3, 4, 2, by_env=True),
    "uniform": UniformMemory(25, 2, 3, 16),
    "uniform windows of stacks": UniformMemory(24, 1, 3, 16, n_step=3, stack=2,
                                               truncation_interval=1),
    "prioritized": PrioritizedMemory(24, 2, 3, 16, truncation_interval=1),
    "prioritized windows of stacks": PrioritizedMemory(32, 2, 2, 16, n_step=2, stack=3,
                                                       truncation_interval=4),
    "prioritized, a little": PrioritizedMemory(24, 2, 3, 16, alpha=0.1),
    "prioritized, not at all": PrioritizedMemory(24, 2, 3, 16, alpha=0.0),
    "sequences": SequenceMemory(40, 4, 2, 8, **SEQUENCE),
    "sequences of stacks": SequenceMemory(60, 4, 2, 8, n_step=2, stack=4, truncation_interval=2,
                                          **SEQUENCE),
    "prioritized sequences": PrioritizedSequenceMemory(48, 2, 2, 8, n_step=3, **SEQUENCE),
    "groups": grouped(UniformMemory(48, 2, 4, 16, n_step=2), 2),
    "prioritized groups": grouped(PrioritizedMemory(48, 1, 4, 16, n_step=2, stack=2), 2),
    "groups of rollouts": grouped(RolloutMemory(4, 6, 2), 2),
    "transitions": TransitionMemory(24, 2, 3, 16),
    "groups of transitions": grouped(TransitionMemory(48, 1, 4, 16), 2),
}


# Each is a part of another one: the same class with windows, stacks or priorities too.
PARTS = ("uniform windows of stacks", "prioritized, a little", "sequences", "groups",
         "groups of rollouts")


# By default rollouts, sequences with priorities, and groups; the others differ in settings, and
# `test_unusual_but_valid_memories` has windows of uniform replay.
@pytest.mark.parametrize("name", family(
    [pytest.param(x, marks=pytest.mark.slow) if x in PARTS else x for x in GOOD],
    ["rollout by environment", "prioritized sequences", "groups of transitions"]))
def test_every_memory_conforms(name):
    memory = GOOD[name]
    report = check_memory(memory)
    one = getattr(memory, "memory", memory)
    block = one.num_steps * one.num_envs * getattr(memory, "groups", 1)
    assert block * getattr(one, "num_blocks", 1) < report.rows <= report.blocks * block


def starting(memory):
    """`memory` that starts with all its blocks written."""
    ones = lambda *s, dtype="int32": np.ones((5, 3, *s), dtype)
    obs, flags = {"a": ones(2), "pixels": ones(1, dtype="uint8")}, np.zeros((5, 3), bool)
    return fill(memory, Row(obs, ones(), ones(dtype="float32"), flags, flags))


# `MixedMemory` and `OfflineMemory` are no cases of it: the kit knows rows by the numbers that `add`
# wrote, and a dataset's, which nothing adds, would be "unwritten".
# tests/memory/test_mixed_memory.py judges them.
@pytest.mark.matrix("test_a_memory_that_starts_full_and_is_broken")
@pytest.mark.parametrize("cls", family([UniformMemory, PrioritizedMemory], 1))
def test_a_memory_that_starts_full_conforms(cls):
    """The check begins when the memory's own rows have overwritten its first ones."""
    memory = cls(24, 2, 3, 16, n_step=2)
    assert memory.num_blocks < check_memory(StartFrom(memory, starting(memory))).rows / 6


class Late(StartFrom):
    def add(self, mem, rows, w):
        return super().add(mem, rows, w - 1)


def test_a_memory_that_starts_full_and_is_broken():
    memory = UniformMemory(24, 2, 3, 16, n_step=2)
    with pytest.raises(AssertionError,
                       match="coverage: .* the newest row that comes out|write head: "):
        check_memory(Late(memory, starting(memory)))


def break_(base=UniformMemory, sizes=(24, 2, 3, 16), **methods):
    """`base` with other methods; each is given the right one first."""
    right = {name: getattr(base, name) for name in methods}
    wrong = {n: lambda self, *args, n=n, f=f: f(lambda *a: right[n](self, *a), self, *args)
             for n, f in methods.items()}
    return dataclasses.dataclass(frozen=True)(type("Broken", (base,), wrong))(*sizes)


def cast(right, self, mem, rows, w):
    return jax.tree.map(lambda x: x.astype(jnp.int16) if x.dtype == jnp.uint8 else x,
                        right(mem, rows, w))


def weak(right, self, rows):
    return right(rows)._replace(top=jnp.asarray(1.0))


def from_numpy(right, self, key, n, w, clock):
    row, env, whole = right(key, n, w, clock)
    return row, (env + np.random.randint(1000)) % self.num_envs, whole


def own_key(right, self, key, n, w, clock):
    return right(jax.random.fold_in(jax.random.key(7), w), n, w, clock)


def everywhere(right, self, key, n, w, clock):
    """A memory that samples the whole ring, written or not."""
    return right(key, n, jnp.int32(self.num_blocks), clock)


def across(right, self, key, n, w, clock):
    """A memory that starts at any row of a full ring, the newest too."""
    row, env, whole = right(key, n, w, clock)
    return jnp.where(w >= self.num_blocks, jax.random.randint(key, row.shape, 0, self.length),
                     row), env, whole


def one_environment(right, self, key, n, w, clock):
    row, env, whole = right(key, n, w, clock)
    return row, jnp.where(row % 4 == 0, 0, env), whole


def even_rows(right, self, key, n, w, clock):
    row, env, whole = right(key, n, w, clock)
    return row - (row % 4 == 1), env, whole


def only_old(right, self, key, n, w, clock):
    return right(key, n, jnp.where(w <= self.num_blocks, jnp.maximum(w - 1, 2), w), clock)


def one_old(right, self, key, n, w, clock):
    return right(key, n, jnp.maximum(w - 1, 1), clock)


def mixed(right, self, mem, x):
    window, handle = right(mem, x)
    return window._replace(action=jnp.roll(window.action, 1)), handle


def late_boot(right, self, mem, x):
    row, env, _ = x
    window, handle = right(mem, x)
    obs = jax.tree.map(lambda o: o[(row + self.n_step - 1) % self.length, env], mem.obs)
    return window._replace(boot_obs=obs), handle


def mixed_boots(right, self, mem, x):
    window, handle = right(mem, x)
    return window._replace(
        boot_obs=jax.tree.map(lambda o: jnp.roll(o, 1, axis=0), window.boot_obs)), handle


def as_floats(right, self, mem, x):
    window, handle = right(mem, x)
    return window._replace(obs=jax.tree.map(lambda o: o.astype(jnp.float32), window.obs)), handle


def deaf(right, self, mem, handle, priority):
    return mem


def unweighed(right, self, mem, x):
    window, handle = right(mem, x)
    return window._replace(weight=(window.weight > 0).astype(jnp.float32)), handle


def forgets_the_tree(right, self, mem, handle, priority):
    return right(mem, handle, priority).rows


def poisoned(right, self, mem):
    return jnp.float32(jnp.nan)


def blind(right, self, mem, x):
    """A memory blind to ends: windows and stacks go across them, and nothing terminates."""
    window, handle = right(
        mem._replace(terminated=mem.terminated & False, truncated=mem.truncated & False), x)
    return window._replace(weight=right(mem, x)[0].weight), handle


def blind_sequences(right, self, mem, x):
    return right(mem._replace(row=mem.row._replace(terminated=mem.row.terminated & False)), x)


def learns_truncated(right, self, mem, x):
    sequence, handle = right(mem, x)
    return dataclasses.replace(sequence, use=sequence.use | sequence.steps.truncated), handle


def changed(**fields):
    """Windows with these fields made anew from the right window."""

    def fetch(right, self, mem, x):
        window, handle = right(mem, x)
        return window._replace(**{name: change(window) for name, change in fields.items()}), handle

    return fetch


def stacks_across(right, self, mem, x):
    return right(mem, x)[0]._replace(obs=blind(right, self, mem, x)[0].obs), right(mem, x)[1]


def boots_across(right, self, mem, x):
    window, handle = right(mem, x)
    frames = mem._replace(terminated=mem.terminated & False, truncated=mem.truncated & False)
    row, env, _ = x
    return window._replace(
        boot_obs=gather_obs(frames, (row + window.steps) % self.length, env, self.stack)), handle


def reads_w(right, self, mem, rows, w):
    return right(mem, rows, w) if int(w) >= 0 else mem


SEQUENCES = (40, 4, 2, 8, 1, 1, *SEQUENCE.values())
BROKEN = {
    "add": (break_(add=cast), r"add: the store must stay what `init` made it.*int16.*not uint8"),
    "weak": (break_(PrioritizedMemory, init=weak), r"weak type: the store after `init`\.top"),
    "tracing": (break_(add=reads_w), "tracing: a method needs a value that is traced, such as `w`"),
    "purity": (break_(plan=from_numpy), "purity: tracing the memory twice gives two programs"),
    "key": (break_(plan=own_key), "plan: two keys gave the same plan"),
    "axis": (break_(plan=lambda right, self, key, n, w, clock: right(key, n + 1, w, clock)),
             "plan: for 1 fetches"),
    "unwritten": (break_(plan=everywhere),
                  "unwritten: .* values that no `add` wrote .first after block 1"),
    "write head": (break_(plan=across, sizes=(24, 2, 3, 16, 3)),
                   "write head: in reward after block .* is followed by row"),
    "boot": (break_(fetch=late_boot), r"row: boot_obs\['a'\] is row .*'s where obs\['a'\] is row"),
    "row": (break_(fetch=mixed), r"row: action is row .*'s where obs\['a'\] is row"),
    "stack": (break_(plan=across, sizes=(24, 2, 3, 16, 1, 3)),
              r"stack: obs\['a'\] is made of rows"),
    "dtype": (break_(fetch=as_floats),
              r"dtype: `fetch` gives obs\['a'\] as float32, its rows are int32"),
    "environment": (break_(plan=one_environment),
                    "coverage: .* no batch starts at .time, environment."),
    "times": (break_(plan=even_rows), "coverage: .* those in between never come out"),
    "newest": (break_(plan=only_old), "coverage: .* the newest row that comes out is of time 3"),
    "feedback": (break_(PrioritizedMemory, feedback=forgets_the_tree),
                 "feedback: the store must stay what `add` made it"),
    "priorities": (break_(PrioritizedMemory, feedback=deaf), r"priorities: .* of the draws"),
    "weight": (break_(PrioritizedMemory, fetch=unweighed),
               "weight: rows that are drawn more often"),
    "retain": (break_(RolloutMemory, (2, 3, 1), retain=lambda right, self, mem: mem),
               "retain: the part kept across iterations"),
    "episode": (break_(fetch=blind, sizes=(24, 1, 3, 16, 3)),
                r"episode: of the window of rows .* are in `use`, not \["),
    "truncated start": (
        break_(fetch=changed(weight=lambda x: x.weight + 1.0)),
        r"episode: of the window of rows .*'truncated': \[[0-9]+\]}, \[\] are in `use`",
    ),
    "terminal": (break_(fetch=changed(boot=lambda x: x.boot * 0 + 1)),
                 "boot: 1.0 for the window of rows .*'terminated': .[0-9]"),
    "steps": (break_(fetch=changed(steps=lambda x: x.steps * 0 + 3), sizes=(24, 1, 3, 16, 3)),
              "steps: 3 for the window"),
    "stack of an episode": (break_(fetch=stacks_across, sizes=(24, 1, 3, 16, 1, 2)),
                            r"stack: obs\['a'\] is made of rows"),
    "stack after": (break_(fetch=boots_across, sizes=(24, 1, 3, 16, 2, 3)),
                    r"stack: boot_obs\['a'\] is made of rows"),
    "flags": (break_(SequenceMemory, SEQUENCES, fetch=blind_sequences),
              "episode: row .* another `terminated`"),
    "truncated row": (break_(SequenceMemory, SEQUENCES, fetch=learns_truncated),
                      "episode: row .* is in `use`"),
    "no successor": (break_(TransitionMemory, fetch=changed(boot_obs=lambda x: x.obs)),
                     "row: boot_obs.* is row .*; expected"),
    "another's successor": (break_(TransitionMemory, fetch=mixed_boots),
                            "row: boot_obs.* is row .*; expected"),
    "terminal transition": (break_(TransitionMemory, fetch=changed(boot=lambda x: x.boot * 0 + 1)),
                            "boot: 1.0 for the window"),
    "newest transition": (break_(TransitionMemory, (24, 1, 3, 16), plan=one_old),
                          "coverage: .* the newest row .* of time 0"),
    "watch": (break_(watch=poisoned), "watch: not finite after block 0"),
    "protocol": (object(), "protocol: object is not a jaxrl_fast.memory.Memory"),
    "size": (UniformMemory(10**5, 2, 3, 16), "size: .* give `check_memory` a small memory"),
}  # fmt: skip


# The property is that of another row, of a window in place of a transition.
TWINS = ("terminal transition", "newest transition", "another's successor", "stack after", "times")
# The check is that of another row, in another field or class of memory.
SAME_CHECK = ("episode", "flags", "stack of an episode", "newest", "boot", "no successor",
              "truncated row")


@pytest.mark.parametrize("name", family(
    [pytest.param(x, marks=pytest.mark.slow) if x in TWINS else x for x in BROKEN],
    lambda name: name not in SAME_CHECK))
def test_a_broken_memory_is_named(name):
    memory, message = BROKEN[name]
    with pytest.raises(AssertionError, match=message):
        check_memory(memory)


def shorter(right, self, mem, x):
    """Windows of one environment have one row, not n_step."""
    row, env, _ = x
    window, handle = right(mem, x)
    use = window.use & ((jnp.arange(self.n_step) < 1)[:, None] | (env > 0))
    steps = use.sum(0, dtype=jnp.int32)
    ended = use & mem.terminated[(row + jnp.arange(self.n_step)[:, None]) % self.length, env]
    boot_obs = jax.tree.map(lambda o: o[(row + steps) % self.length, env], mem.obs)
    return window._replace(use=use, steps=steps, boot=1.0 - ended.any(0).astype(jnp.float32),
                           boot_obs=boot_obs), handle


def scaled(right, self, mem, x):
    window, handle = right(mem, x)
    return window._replace(reward=10.0 * window.reward), handle


@pytest.mark.parametrize("fetch", family([shorter, scaled], 1))
def test_unusual_but_valid_memories(fetch):
    own = break_(fetch=fetch, sizes=(24, 1, 3, 16, 2))
    check_memory(own)


@pytest.mark.matrix("test_every_memory_conforms")
def test_rows_of_unknown_fields():
    """Rewards too narrow for a number, and ends by other names."""
    shape = lambda *s, dtype="int32": jax.ShapeDtypeStruct((1, 3, *s), dtype)
    row = Row(shape(2), shape(), shape(dtype="float16"), shape(dtype="bool"), shape(dtype="bool"))
    check_memory(UniformMemory(24, 1, 3, 16, 2), row)

    class Mine(NamedTuple):
        obs: Any
        action: Any
        reward: Any
        done: Any
        truncated: Any
        extras: Any = ()

    as_row = lambda mem: Row(mem.obs, mem.action, mem.reward, mem.done, mem.truncated)
    memory = break_(fetch=lambda right, self, mem, x: right(as_row(mem), x),
                    sizes=(24, 1, 3, 16, 2))
    check_memory(memory,
                 Mine(shape(2), shape(), shape(dtype="float32"), shape(dtype="bool"),
                      shape(dtype="bool")))


def test_ends_are_seen_among_many_flags():
    shape = lambda *s, dtype="int32": jax.ShapeDtypeStruct((1, 3, *s), dtype)
    obs = {"a": shape(2)} | {f"flag{i}": shape(dtype="bool") for i in range(8)}
    rows = Row(obs, shape(), shape(dtype="float32"), shape(dtype="bool"), shape(dtype="bool"))
    learns_from_cuts = break_(fetch=changed(weight=lambda x: x.weight + 1.0), sizes=(24, 1, 3, 16))
    with pytest.raises(AssertionError, match="weight: that of the window of rows"):
        check_memory(learns_from_cuts, rows)


@pytest.mark.matrix("test_every_memory_conforms")
def test_rows_with_stored_successors_may_be_returned_unchanged():
    """Whatever the answer is; and a memory that makes them up is told."""
    row = lambda *s, dtype="int32": jax.ShapeDtypeStruct((3, 2, *s), dtype)
    rows = {"obs": row(4), "next_obs": row(4), "flag": row(dtype="bool")}
    assert check_memory(Queue(), rows, deterministic=True).rows == 4 * 3 * 2

    class Lost(Queue):
        def fetch(self, mem, x):
            batch, _ = super().fetch(mem, x)
            return batch | {"next_obs": batch["obs"]}, ()

    with pytest.raises(AssertionError,
                       match=r"row: \['next_obs'\] is row 0's where .* expected row 2"):
        check_memory(Lost(), rows, deterministic=True)


class Queue(Memory):
    """A user's own, without a field and with rows of its own: the last block, in order."""

    def init(self, rows):
        return jax.tree.map(lambda x: jnp.zeros(x.shape, x.dtype), rows)

    def add(self, mem, rows, w):
        return rows

    def plan(self, key, n, w, clock):
        return jnp.arange(n, dtype=jnp.int32) % 3

    def fetch(self, mem, x):
        return jax.tree.map(lambda leaf: leaf[x], mem), ()


def test_user_defined_memory():
    rows = {"x": jnp.zeros((3, 2, 4)), "flag": jnp.zeros((3, 2), bool)}
    assert check_memory(Queue(), rows, deterministic=True).rows == 4 * 3 * 2
    with pytest.raises(AssertionError, match="plan: two keys gave the same plan"):
        check_memory(Queue(), rows)
    with pytest.raises(AssertionError,
                       match="arguments: Queue has no num_steps and num_envs; pass `rows`"):
        check_memory(Queue())
    with pytest.raises(AssertionError,
                       match="arguments: ready = 9 leaves nothing to judge of 4 blocks"):
        check_memory(Queue(), rows, ready=9)
