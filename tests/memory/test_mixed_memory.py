"""Experience from elsewhere in an online run: mixed batches, and a replay that starts full."""

from __future__ import annotations

import dataclasses
from typing import Any, ClassVar

import jax
import jax.numpy as jnp
import numpy as np
import pytest

import jaxrl_fast as jf
from helpers.experience import DQN, ZERO, numbered, random_episodes, same
from helpers.matrix import family
from jaxrl_fast import tree
from jaxrl_fast.errors import ConfigError
from jaxrl_fast.memory import (
    Filled,
    MixedMemory,
    PrioritizedMemory,
    StartFrom,
    UniformMemory,
    episodes_to_rows,
    fill,
    hold,
    mix,
    rows_of,
)


@pytest.mark.parametrize("cls", family([UniformMemory, PrioritizedMemory], [PrioritizedMemory]))
def test_mixed_batches_have_both_parts(cls):
    own, data = cls(200, 1, 2, 12), hold(cls(200, 1, 2, 5), numbered(1000, 9))
    memory = mix(own, data, 0.25)
    assert (
        isinstance(memory, MixedMemory) and memory.online.batch_size == 9
        and memory.offline.memory.batch_size == 3
    )
    online = fill(memory.online, numbered(0, 20))
    seen = set()
    windows, handles = jax.jit(lambda key, store, w: jax.vmap(memory.fetch, (None, 0))(
        store, memory.plan(key, 30, w, ZERO)))(jax.random.key(0), online.store, jnp.int32(online.w))
    action = np.asarray(windows.action)
    assert action.shape == (30, 12) and (action[:, :9] < 1000).all()
    real = np.asarray(windows.weight) > 0
    # the last of each lane is no start
    assert set(action[:, 9:][real[:, 9:]].tolist()) <= set(range(1000, 1016))
    seen = set(action[:, :9][real[:, :9]].tolist())
    assert len(seen) > 30 and windows.reward.shape == (30, 1, 12)
    np.testing.assert_array_equal(np.asarray(windows.reward)[:, 0], action)
    after = memory.feedback(online.store, tree.take(handles, 0), jnp.arange(12.0))
    expected = memory.online.feedback(online.store, tree.take(handles, 0), jnp.arange(9.0))
    same(after, expected)


@pytest.mark.parametrize("cls", family([UniformMemory, PrioritizedMemory], [PrioritizedMemory]))
def test_a_run_starts_from_a_memory_and_no_window_crosses_the_seam(cls):
    memory = cls(60, 1, 2, 512, 2)
    start = fill(memory, numbered(0, 10))
    rows = jax.tree.map(np.asarray, start.rows)
    seam = 8  # as a run's replay is: it stops where nothing has ended
    start = Filled(memory, start.store, seam)
    warm = StartFrom(memory, start)
    fresh = numbered(1000, 6)
    mem = warm.init(jax.tree.map(lambda x: x[:1], fresh))
    add = jax.jit(warm.add)
    for t in range(6):
        mem = add(mem, jax.tree.map(lambda x, t=t: jnp.asarray(x[t : t + 1]), fresh), jnp.int32(t))
    window, _ = jax.jit(lambda key, mem: warm.fetch(mem, tree.take(
        warm.plan(key, 1, jnp.int32(6), ZERO), 0)))(jax.random.key(0), mem)
    real = np.asarray(window.weight) > 0
    action, boot, steps = (np.asarray(x)[real]
                           for x in (window.action, window.boot_obs[:, 0], window.steps))
    old = action < 1000
    assert set(action[old].tolist()) >= set(range(2, 2 * (seam - 1))) - {0, 1}
    assert set(action.tolist()) <= set(range(2 * (seam - 1))) | set(range(1000, 1008))
    assert (boot[old] < 2 * seam).all() and (boot[~old] >= 1000).all()
    np.testing.assert_array_equal(boot, action + 2 * steps)
    same(jax.tree.map(np.asarray, start.rows), rows)  # what it started from is as it was


def test_foreign_experience_is_refused():
    data = hold(UniformMemory(100, 1, 2, 4), numbered(0, 9))
    with pytest.raises(ConfigError, match="fraction must be .*got 0.0"):
        mix(UniformMemory(100, 1, 2, 4), data, 0.0)
    with pytest.raises(ConfigError, match="n_step must be 1, as .*got 2"):
        mix(UniformMemory(100, 1, 2, 4, 2), data)
    with pytest.raises(ConfigError, match="start must be .*layout of the run's own memory"):
        StartFrom(UniformMemory(100, 1, 2, 4), data)
    other = jax.tree.map(jnp.asarray, numbered(0, 1)._replace(obs=np.zeros((1, 2, 3), np.float32)))
    with pytest.raises(ConfigError,
                       match=r"offline must be rows of obs float32\[3\].*got 'obs float32\[1\], "
                             r"action"):
        mix(UniformMemory(100, 1, 2, 4), data).init(other)


@jf.settings
class MixedDQN(jf.DQN):
    name: ClassVar[str] = "test-mixed-dqn"
    data: Any = None
    start: Any = None

    def memory(self):
        memory = super().memory()
        if self.start is not None:
            return StartFrom(memory, self.start)
        return memory if self.data is None else mix(memory, self.data)


@pytest.mark.matrix("test_a_run_starts_from_a_memory_and_no_window_crosses_the_seam")
def test_experience_of_a_run_in_groups_is_one_memory():
    """Environments side by side again, and every leaf of the tree where its row is."""
    env = jf.make("probe/constant-reward")
    settings = {f.name: getattr(DQN, f.name) for f in dataclasses.fields(jf.DQN)}
    settings |= dict(num_envs=4, n_step=1, learning_starts=64, buffer_size=100, prioritized=True)
    run = jf.train(jf.DQN(**settings), env, 160, groups=2, eval_every=0, eval_episodes=1)
    kept, state = jf.experience(run), run.population.member(run.state.memory, 0)
    assert state.rows.reward.shape == (2, 25, 2)
    for group in range(2):
        mine = np.s_[:, 2 * group : 2 * group + 2]
        np.testing.assert_array_equal(kept.rows.obs[mine], state.rows.obs[group])
        np.testing.assert_array_equal(kept.rows.action[mine], state.rows.action[group])
        leaves = lambda tree, envs: np.asarray(tree[0]).ravel()[: 25 * envs].reshape(25, envs)
        np.testing.assert_array_equal(leaves(kept.store.tree, 4)[mine],
                                      leaves([x[group] for x in state.tree], 2))
    np.testing.assert_allclose(kept.store.tree[-1].sum(), state.tree[-1].sum(), rtol=1e-5)
    assert kept.store.top == state.top.max() and rows_of(kept).reward.shape == (25, 4)


@pytest.mark.matrix("test_a_run_starts_from_a_memory_and_no_window_crosses_the_seam")
def test_a_prioritized_run_starts_from_data_of_another_exponent():
    """A run's exponents are traced, each member's own; the memory that it returns knows them."""
    env = jf.make("probe/constant-reward")
    settings = {f.name: getattr(DQN, f.name) for f in dataclasses.fields(jf.DQN)}
    settings |= dict(num_envs=4, n_step=1, learning_starts=16, buffer_size=400, prioritized=True,
                     priority_exponent=0.5)
    algo = MixedDQN(**settings)
    data = fill(algo.bind(env.spec).memory(),
                episodes_to_rows(random_episodes(env, 16), env.spec, num_envs=4))
    places = np.flatnonzero(np.asarray(data.store.tree[0]).ravel()).astype(np.int32)[:5]
    data = dataclasses.replace(
        data, store=data.memory.feedback(data.store, places, np.full(5, 4.0, np.float32)))
    exponents = [0.5, 1.0]
    run = jf.train(dataclasses.replace(algo, start=data), env, 32, eval_every=0, eval_episodes=1,
                   population={"algo.priority_exponent": exponents})  # fmt: skip
    assert [jf.experience(run, member).memory.alpha for member in (0, 1)] == exponents
    start = (
        lambda alpha: StartFrom(dataclasses.replace(data.memory, alpha=alpha),
                                data).init(data.rows).tree[0].ravel()[places]
    )
    for alpha, found in zip(exponents, jax.jit(jax.vmap(start))(jnp.array(exponents)), strict=True):
        np.testing.assert_allclose(found, 4.0**alpha, rtol=1e-4)


@pytest.mark.matrix(
    "tests/memory/test_prioritized_memory.py::test_rows_without_an_actor_get_the_largest_priority")
def test_windows_without_an_actor_get_the_largest_priority():
    """Windows of the last rows of a run's replay come to life with the first rows of the next
    run."""
    memory = PrioritizedMemory(32, 1, 1, 4, n_step=3, alpha=1.0,
                               first=lambda window: window.boot_extras - window.extras + 1.5)
    unknown = dataclasses.replace(memory, first=None)
    row = numbered(0, 1, envs=1)._replace(truncated=np.zeros((1, 1), bool))
    known = [row._replace(extras=np.full((1, 1), 10.0 * i)) for i in range(6)]
    state = unknown.init(row)
    for w in range(10):
        state = unknown.add(state, row, jnp.int32(w))
    state = unknown.feedback(state, jnp.array([5]), jnp.array([7.0]))
    start = StartFrom(memory, Filled(unknown, state, 10))
    state = start.init(known[0])
    for w, row in enumerate(known):
        state = start.add(state, row, jnp.int32(w))
    leaves = np.asarray(state.tree[0]).ravel()[3:]  # a window's is n_step rows on
    np.testing.assert_allclose(leaves[:13], [1, 1, 7, 1, 1, 1, 1, 7, 7, 0, 31.5, 31.5, 31.5],
                               rtol=1e-5)
    assert state.top == pytest.approx(31.5)


@pytest.mark.matrix("test_a_run_starts_from_a_memory_and_no_window_crosses_the_seam")
def test_online_runs_mix_and_start_from_a_run():
    """The data's rewards are ten times the environment's, so the values tell who was learned
    from."""
    env = jf.make("probe/constant-reward")
    settings = {**{f.name: getattr(DQN, f.name) for f in dataclasses.fields(jf.DQN)}, "num_envs": 4,
                "n_step": 1}
    settings |= {"learning_starts": 64, "buffer_size": 2_000}
    episodes = random_episodes(env, 64)
    rows = episodes_to_rows([e | {"rewards": 10 * e["rewards"]} for e in episodes], env.spec,
                            num_envs=4)
    q = {}
    for which in ("data", "start"):
        algo = MixedDQN(**settings)
        memory = algo.bind(env.spec).memory()
        data = hold(memory, rows) if which == "data" else fill(memory, rows)
        algo = dataclasses.replace(algo, **{which: data})
        run = jf.train(algo, env, 1_600, eval_every=0, eval_episodes=4)
        q[which] = np.asarray(run.algo.action_values(run.agent().state.params, np.ones((1, 1))))
        kept = jf.experience(run)
        assert type(kept.memory) is UniformMemory
        assert kept.w == run.env_steps // 4 + (data.w if which == "start" else 0)
        np.testing.assert_array_equal(data.rows.reward[: data.w * data.memory.num_steps].max(),
                                      10.0)
    np.testing.assert_allclose(q["data"], 5.5, atol=0.8)  # half of every batch
    # 64 rows of the 465 that there are at the end
    assert (q["start"] < 5).all() and (q["start"] > 1.5).all()
