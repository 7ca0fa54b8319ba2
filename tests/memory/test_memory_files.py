"""Memories as files: they come back bit for bit, or not at all."""

from __future__ import annotations

import dataclasses
import json
from types import SimpleNamespace

import jax
import jax.numpy as jnp
import numpy as np
import pytest

import jaxrl_fast as jf
from helpers.experience import numbered, same
from jaxrl_fast.errors import ConfigError, WriteError
from jaxrl_fast.memory import (
    Filled,
    PrioritizedMemory,
    SequenceMemory,
    StartFrom,
    UniformMemory,
    fill,
    hold,
    load_memory,
    mix,
    offline,
    open_memory,
    rows_of,
    save_memory,
    transitions_to_rows,
)
from jaxrl_fast.memory.experience import files


def filled(kind: str) -> Filled:
    if kind == "transitions":
        obs = np.arange(10.0)[:, None]
        spec = jf.EnvSpec("test", jf.Box(0, 100, (1,)), jf.Discrete(10))
        rows = transitions_to_rows(obs, np.arange(10), np.arange(10), obs + 1, np.arange(10) % 2,
                                   spec)
        return hold(UniformMemory(100, 1, 1, 4), rows)
    cls = {"uniform": UniformMemory, "prioritized": PrioritizedMemory}[kind]
    data = fill(cls(60, 2, 2, 4, 2), numbered(0, 17))
    if kind == "prioritized":
        store = data.memory.feedback(data.store, jnp.arange(20, 24),
                                     jnp.array([0.1, 0.7, 3.0, 0.0]))
        data = dataclasses.replace(data, store=store)
    return data


@pytest.mark.parametrize("kind", ["uniform", "prioritized", "transitions"])
def test_a_memory_comes_back_bit_for_bit(kind, tmp_path):
    data = filled(kind)
    save_memory(tmp_path / "a" / "replay", data)
    other_batch = dataclasses.replace(data.memory, batch_size=7)
    back = load_memory(str(tmp_path / "a" / "replay"), other_batch)
    assert back.memory == other_batch and back.w == data.w
    same(back.store, data.store)


def test_priorities_are_converted_to_the_readers_exponent(tmp_path):
    data = filled("prioritized")
    save_memory(tmp_path / "replay", data)
    old = np.asarray(data.store.tree[0]).ravel()
    error = np.where(old > 0, old ** (1 / data.memory.alpha) - data.memory.epsilon, 0.0)
    assert len(np.unique(old)) > 3
    for alpha, epsilon in ((1.0, 0.01), (0.0, 1e-6)):
        memory = dataclasses.replace(data.memory, alpha=alpha, epsilon=epsilon)
        back = load_memory(tmp_path / "replay", memory)
        expected = np.where(old > 0, (np.maximum(error, 0) + epsilon) ** alpha, 0.0)
        np.testing.assert_allclose(np.asarray(back.store.tree[0]).ravel(), expected, rtol=1e-4,
                                   atol=1e-6)
        np.testing.assert_allclose(back.store.tree[-1].sum(), expected.sum(), rtol=1e-4)
        np.testing.assert_allclose(back.store.top, expected.max(), rtol=1e-4)
    save_memory(tmp_path / "uniform", back)  # exponent 0: who had which error is lost
    again = load_memory(tmp_path / "uniform", data.memory).store.tree[0]
    assert set(np.unique(again).round(4).tolist()) == {0.0, 1.0}


def test_exponents_are_no_sizes(tmp_path):
    """Nor are they where somebody writes them without a point."""
    memory = PrioritizedMemory(60, 2, 2, 4, 2, alpha=1)
    data = fill(memory, numbered(0, 17))
    save_memory(tmp_path / "replay", data)
    assert open_memory(tmp_path / "replay").memory == dataclasses.replace(memory, batch_size=1)
    for alpha in (1.0, 0.5):
        assert (
            load_memory(tmp_path / "replay", dataclasses.replace(memory, alpha=alpha)).memory.alpha
            == alpha
        )
    StartFrom(dataclasses.replace(memory, alpha=0.5, beta=1), data)


def test_bad_files_are_refused(tmp_path):
    data, path = filled("uniform"), tmp_path / "replay"
    with pytest.raises(ConfigError, match="path must be the folder of a saved memory, got None"):
        open_memory(None)
    with pytest.raises(ConfigError, match="a folder that save_memory has written"):
        load_memory(path, data.memory)
    save_memory(path, data)
    with pytest.raises(ConfigError, match="does not exist yet"):
        save_memory(path, data)
    mine = "got 'class PrioritizedMemory, capacity 90, num_steps 3, num_envs 2, n_step 2, stack 1'"
    theirs = (
        "memory must be class UniformMemory, capacity 60, num_steps 2, num_envs 2, n_step 2, stack "
        "1, as"
    )
    with pytest.raises(ConfigError, match=f"{theirs} .*{mine}.*resize=True"):
        load_memory(path, PrioritizedMemory(90, 3, 2, 4, 2))
    with pytest.raises(ConfigError,
                       match="memory must be .*got 'class UniformMemory, capacity 60, .* n_step 3"):
        load_memory(path, UniformMemory(1000, 1, 1, 4, 3), resize=True)
    same(load_memory(path, UniformMemory(1000, 1, 1, 4, 2), resize=True).store, data.store)
    about = json.loads((path / "layout.json").read_text())
    for change in ({"format": 9}, {"rows": {}}, {"kind": "nothing"}, {"written": 10**15}):
        (path / "layout.json").write_text(json.dumps(about | change))
        with pytest.raises(ConfigError, match="a whole memory, got .*; reading it failed"):
            load_memory(path, data.memory)
    (path / "layout.json").write_text("{")
    with pytest.raises(ConfigError,
                       match="the layout.json of a memory, got .*; this file is damaged"):
        load_memory(path, data.memory)


def test_a_folder_appears_when_complete(tmp_path, monkeypatch):
    data, path = filled("uniform"), tmp_path / "replay"

    def full(*args, **kwargs):
        raise OSError("no space left on device")

    with monkeypatch.context() as patched:
        patched.setattr(files, "json", SimpleNamespace(dumps=full))
        with pytest.raises(WriteError, match="cannot write .*No space left"):
            save_memory(path, data)
    assert not path.exists()
    save_memory(path, data)  # what was left does not stand in its way
    same(load_memory(path, data.memory).store, data.store)
    assert [file.name for file in tmp_path.iterdir()] == ["replay"]


def test_sequences_are_not_made_of_rows(tmp_path):
    sequences, windows = (
        SequenceMemory(64, 4, 2, 2, seq_len=4, burn_in=0, carry_every=4), UniformMemory(64, 4, 2, 2)
    )
    data = fill(windows, numbered(0, 9))
    for refused in (
        lambda: fill(sequences, numbered(0, 9)),
        lambda: hold(sequences, numbered(0, 9)),
        lambda: mix(sequences, data),
        lambda: mix(windows, Filled(sequences, (), 1)),
        lambda: offline(sequences, data),
        lambda: save_memory(tmp_path / "x", Filled(sequences, (), 1)),
    ):
        with pytest.raises(ConfigError,
                           match="got 'SequenceMemory': .* rows, which have no carries"):
            refused()
    assert not list(tmp_path.iterdir())


def test_other_values_are_refused(tmp_path):
    with pytest.raises(ConfigError, match="Row or Transition"):
        save_memory(tmp_path / "x", Filled(UniformMemory(10, 1, 1, 1), {"a": jnp.zeros((2, 2))}, 1))
    assert not (tmp_path / "x").exists()


def transitions(rows) -> set[tuple]:
    """(observation, action, the next observation, terminated) of every row of an episode that goes
    on or terminates."""
    number, time = rows.obs[..., 0], np.arange(len(rows.reward))
    learned = [(t, b) for t in time
               for b in range(rows.reward.shape[1]) if not rows.truncated[t, b]]
    after = (
        lambda t, b: None if rows.terminated[t, b] else number[t + 1, b] if t + 1 < len(time)
        else "unknown"
    )
    found = {(number[t, b], int(rows.action[t, b]), after(t, b), bool(rows.terminated[t, b]))
             for t, b in learned}
    return {x for x in found if x[2] != "unknown"}


@pytest.mark.parametrize("blocks", [3, 11])
def test_truncated_successors_become_rows(blocks, rng, tmp_path):
    """Columns with 0, 1 and many cuts; out of a ring that is not full and one that has gone round;
    after a save, too."""
    memory = UniformMemory(30, 2, 3, 4, truncation_interval=1)
    rows = numbered(0, 2 * blocks, 3)
    ends = rng.choice(3, (2 * blocks, 3), p=[0.4, 0.2, 0.4]) * np.array([1, 0, 1])
    ends[:, 1], ends[-3, 1] = 0, 2
    rows = rows._replace(terminated=ends == 1, truncated=ends == 2)
    next_obs = np.where((ends == 2)[..., None], rows.obs + 1000,
                        np.concatenate([rows.obs[1:], rows.obs[:1]]))
    rows, mem, add = rows._replace(next_obs=next_obs), None, jax.jit(memory.add)
    for w in range(blocks):
        block = jax.tree.map(lambda x, w=w: jnp.asarray(x[2 * w : 2 * w + 2]), rows)
        mem = add(memory.init(block) if mem is None else mem, block, w)
    held = slice(max(0, 2 * blocks - memory.length), 2 * blocks)
    want = {
        (rows.obs[t, b, 0], int(rows.action[t, b]), None if ends[t, b] == 1 else next_obs[t, b, 0],
         bool(ends[t, b] == 1))
        for t in range(held.start, held.stop) for b in range(3) if t + 1 < held.stop or ends[t, b]
    }  # fmt: skip
    found = Filled(memory, mem, blocks)
    assert transitions(rows_of(found)) == want
    save_memory(tmp_path / "m", found)
    same(open_memory(tmp_path / "m").store, mem)
    again = hold(UniformMemory(6, 1, 3, 4), rows_of(load_memory(tmp_path / "m", memory)))
    assert transitions(rows_of(again)) == want
