"""Experience in the layout that a run takes: every window that can be drawn is one of the data's
own."""

from __future__ import annotations

import dataclasses

import jax
import jax.numpy as jnp
import numpy as np
import pytest

from helpers.experience import ZERO, numbered, same
from helpers.matrix import family
from jaxrl_fast import tree
from jaxrl_fast.errors import ConfigError
from jaxrl_fast.memory import (
    MixedMemory,
    OfflineMemory,
    PrioritizedMemory,
    StartFrom,
    Transition,
    TransitionMemory,
    UniformMemory,
    fill,
    hold,
    load_experience,
    open_memory,
    outline_experience,
    save_memory,
    with_experience,
)
from jaxrl_fast.memory.experience.adapted import in_columns

KINDS = {0.0: StartFrom, 0.5: MixedMemory, 1.0: OfflineMemory}


def loaded(path, memory, fraction):
    """The experience of `load_experience`, whose outline was the same without its arrays."""
    aside = (path / "store").rename(path / "aside")
    outline = outline_experience(path, memory, fraction)
    aside.rename(path / "store")
    found = load_experience(path, memory, fraction)
    shape = lambda x: jax.tree.map(lambda x: (x.shape, x.dtype), x)
    assert outline.memory == found.memory and shape(outline.store) == shape(found.store)
    return found


def drawn(memory, mem, w: int, n: int = 8):
    """Windows that count, of n batches: (action, reward of each step, where it bootstraps,
    steps)."""

    @jax.jit
    def windows(mem):
        xs = memory.plan(jax.random.key(0), n, jnp.int32(w), ZERO)
        return jax.vmap(lambda x: memory.fetch(mem, x)[0])(xs)

    window = jax.device_get(windows(mem))
    real = np.asarray(window.weight) > 0
    one = lambda x: np.asarray(x)[real]
    reward = np.moveaxis(np.asarray(window.reward) * np.asarray(window.use), 1, -1)[real]
    return one(window.action), reward, one(window.boot_obs[..., 0]), one(window.steps)


@pytest.mark.parametrize("fraction", KINDS)
@pytest.mark.parametrize("cls", family([UniformMemory, PrioritizedMemory], 1))
@pytest.mark.parametrize("n_step", family([1, 3], [3]))
def test_another_layout_gives_the_same_windows(tmp_path, cls, n_step, fraction):
    """Written by one that draws single steps of two environments; taken by others, of four."""
    save_memory(tmp_path / "x", fill(UniformMemory(400, 2, 2, 8), numbered(0, 40)))
    own = cls(400, 1, 4, 64, n_step)
    data = loaded(tmp_path / "x", own, fraction)
    memory = with_experience(own, data, fraction)
    assert type(memory) is KINDS[fraction]
    mem = memory.init(
        jax.tree.map(lambda x: jax.ShapeDtypeStruct((1, 4, *x.shape[2:]), x.dtype), data.rows))
    if fraction == 0.5:  # what is fresh is there too
        mem = memory.add(mem, jax.tree.map(jnp.asarray, numbered(10_000, 1, 4)), jnp.int32(0))
    action, reward, boot, steps = drawn(memory, mem, 0 if fraction != 0.5 else 1)
    old = action < 10_000
    action, reward, boot, steps = action[old], reward[old], boot[old], steps[old]
    assert len(set(action.tolist())) > 50 and (steps <= n_step).all() and steps.max() == n_step
    np.testing.assert_array_equal(boot, action + 2 * steps)  # two environments, numbered row by row
    np.testing.assert_array_equal(reward[:, 0], action)
    if n_step > 1:
        np.testing.assert_array_equal(reward[:, 1], np.where(steps > 1, action + 2, 0))


def test_equal_layouts_keep_priorities(tmp_path):
    memory = PrioritizedMemory(40, 1, 2, 8)
    data = fill(memory, numbered(0, 10))
    data = dataclasses.replace(data,
                               store=memory.feedback(data.store, jnp.arange(8), jnp.arange(8.0)))
    save_memory(tmp_path / "x", data)
    for fraction in KINDS:
        found = loaded(tmp_path / "x", memory, fraction)
        same(found.store, data.store)
        # another member can take it as well
        other = dataclasses.replace(memory, alpha=1.0, beta=0.9)
        assert load_experience(tmp_path / "x", other, fraction).memory == found.memory
    opened = open_memory(tmp_path / "x")
    assert opened.memory == dataclasses.replace(memory, batch_size=1) and opened.w == data.w


@pytest.mark.matrix(
    "test_another_layout_gives_the_same_windows")
def test_offline_batches_use_the_run_s_exponents():
    memory = PrioritizedMemory(40, 1, 2, 8, alpha=0.5)
    data = fill(memory, numbered(0, 10))
    data = dataclasses.replace(
        data, store=jax.jit(memory.feedback)(data.store, jnp.arange(2, 6), jnp.full(4, 4.0)))
    own = dataclasses.replace(memory, alpha=1.0, beta=0.7, batch_size=16)
    offline = with_experience(own, data, 1.0)
    assert (
        (offline.data.memory.beta, offline.data.memory.alpha, offline.data.memory.batch_size)
        == (0.7, 1.0, 16)
    )

    @jax.jit
    def learned(mem):
        x = tree.take(offline.plan(jax.random.key(0), 1, jnp.int32(0), ZERO), 0)
        batch, handle = offline.fetch(mem, x)
        after = offline.feedback(mem, handle, jnp.full(16, 9.0))
        return batch, after, offline.watch(after)

    mem = jax.jit(offline.init)(data.rows)
    assert not jax.tree.leaves(mem.rows)  # the rows are no part of the state
    assert float(mem.top) == pytest.approx(4.0, rel=1e-4)
    np.testing.assert_allclose(np.asarray(mem.tree[0]).ravel()[2:6], 4.0, rtol=1e-4)
    batch, after, watched = learned(mem)
    assert batch.action.shape == (16,)
    assert float(watched) == pytest.approx(9.0, rel=1e-4) and not jax.tree.leaves(after.rows)
    assert float(after.tree[-1].sum()) > float(mem.tree[-1].sum())


def shuffled(count: int = 30) -> Transition:
    x = np.arange(count, dtype=np.float32)[:, None]
    return Transition(x[..., None], x.astype(np.int32), x, x[..., None] + 1000,
                      np.zeros((count, 1), bool))


@pytest.mark.parametrize("fraction", KINDS)
@pytest.mark.parametrize("cls", family([UniformMemory, PrioritizedMemory], [PrioritizedMemory]))
def test_shuffled_transitions(tmp_path, cls, fraction):
    save_memory(tmp_path / "x", hold(UniformMemory(8, 1, 1, 1), shuffled()))
    own = cls(400, 1, 4, 64)
    data = loaded(tmp_path / "x", own, fraction)
    assert (type(data.memory) is TransitionMemory) == (cls is UniformMemory and fraction > 0)
    memory = with_experience(own, data, fraction)
    rows = numbered(10_000, 1, 4)
    mem = memory.init(rows)
    if fraction == 0.5:
        mem = memory.add(mem, jax.tree.map(jnp.asarray, rows), jnp.int32(0))
    action, reward, boot, _ = drawn(memory, mem, 0 if fraction != 0.5 else 1, 16)
    old = action < 10_000
    # four cuts at most
    assert set(action[old].tolist()) <= set(range(30)) and len(set(action[old].tolist())) >= 26
    np.testing.assert_array_equal(boot[old], action[old] + 1000)
    np.testing.assert_array_equal(reward[old, 0], action[old])
    for take in (load_experience, outline_experience):
        with pytest.raises(ConfigError, match="n_step must be 1 for shuffled.*got 2"):
            take(tmp_path / "x", dataclasses.replace(own, n_step=2), fraction)
        if fraction == 0:
            with pytest.raises(ConfigError, match="in order"):
                take(tmp_path / "x", dataclasses.replace(own, stack=2), fraction)


@pytest.mark.parametrize("fraction", [0.5, 1.0])
@pytest.mark.parametrize("cls", family([UniformMemory, PrioritizedMemory], [PrioritizedMemory]))
def test_shuffled_transitions_of_whole_stacks(tmp_path, cls, fraction):
    """A replay of single frames lies beside them: the windows of both have observations of two."""
    rows = shuffled()
    both = lambda x: np.concatenate([x - 0.5, x], axis=-1)
    save_memory(tmp_path / "x", hold(UniformMemory(8, 1, 1, 1), rows._replace(obs=both(rows.obs),
        next_obs=both(rows.next_obs))))
    own = cls(400, 1, 4, 64, 1, 2)
    memory = with_experience(own, loaded(tmp_path / "x", own, fraction), fraction)
    fresh = numbered(10_000, 1, 4)
    mem, add = memory.init(fresh), jax.jit(memory.add)
    for w in range(4 if fraction < 1 else 0):
        row = numbered(10_000 + 4 * w, 1, 4)._replace(truncated=np.zeros((1, 4), bool))
        mem = add(mem, row, w)

    @jax.jit
    def draw(mem):
        plan = memory.plan(jax.random.key(0), 1, jnp.int32(4), ZERO)
        return memory.fetch(mem, tree.take(plan, 0))[0]

    batch = draw(mem)
    obs, action = np.asarray(batch.obs), np.asarray(batch.action)
    assert obs.shape == (64, 2) and np.asarray(batch.boot_obs).shape == (64, 2)
    old = action < 10_000
    assert old.sum() == 64 * fraction
    np.testing.assert_array_equal(obs[old], np.stack([action[old] - 0.5, action[old]], axis=-1))


def test_the_newest_rows_are_kept(tmp_path):
    save_memory(tmp_path / "x", fill(UniformMemory(400, 1, 2, 8), numbered(0, 150)))
    own = UniformMemory(100, 1, 2, 64)
    with pytest.warns(UserWarning, match="the newest 94 of 302 rows fit the replay"):
        data = loaded(tmp_path / "x", own, 0.0)
    action, *_ = drawn(with_experience(own, data, 0.0), data.store, 0)
    assert action.min() >= 200 and action.max() >= 290


def test_lost_experience_is_a_warning(tmp_path):
    """80 steps of one environment, in 27 columns of three that each lose their last."""
    save_memory(tmp_path / "x", fill(UniformMemory(400, 1, 1, 8), numbered(0, 80, 1)))
    with pytest.warns(UserWarning, match="53 of 79 steps are left, divided among 40"):
        load_experience(tmp_path / "x", UniformMemory(4000, 1, 40, 8), 0.0)
    with pytest.raises(ConfigError,
                       match="num_envs must be fewer, got 128: nothing is left of 79 steps"):
        load_experience(tmp_path / "x", UniformMemory(4000, 1, 128, 8), 0.0)
    with pytest.raises(ConfigError, match="buffer_size must be more, got 6: "):
        load_experience(tmp_path / "x", UniformMemory(6, 1, 2, 8, n_step=1), 0.0)


@pytest.mark.parametrize("columns", [1, 3, 4, 7])
def test_rows_in_other_columns_keep_their_order(columns):
    rows = numbered(0, 10, 2)  # ten rows of two environments
    found = in_columns(rows, columns)
    assert found.reward.shape[1] == columns
    real = found.obs[..., 0] >= 0
    line = found.obs[..., 0].swapaxes(0, 1).ravel()[:20]
    np.testing.assert_array_equal(line, np.concatenate([np.arange(0, 20, 2), np.arange(1, 20, 2)]))
    assert real.all() and found.truncated[-1].all()
    ends = found.truncated.swapaxes(0, 1).ravel()[:20]
    length = found.reward.shape[0]
    np.testing.assert_array_equal(np.flatnonzero(ends),
                                  sorted({9, 19} | set(range(length - 1, 20, length))))
    assert in_columns(rows, 2) is rows


def test_bad_experience_is_refused(tmp_path):
    with pytest.raises(ConfigError, match="layout.json"):
        outline_experience(tmp_path / "none", UniformMemory(40, 1, 2, 8), 0.5)
    with pytest.raises(ConfigError, match="layout.json"):
        load_experience(tmp_path / "none", UniformMemory(40, 1, 2, 8), 0.5)
