"""Learning without an environment step."""

from __future__ import annotations

import dataclasses

import jax
import jax.numpy as jnp
import numpy as np
import pytest

import jaxrl_fast as jf
from helpers.experience import DQN, quick, random_episodes
from helpers.matrix import family
from jaxrl_fast.errors import ConfigError
from jaxrl_fast.memory import episodes_to_rows, transitions_to_rows

PROBES = [
    ("reward-at-end", {"n_step": 2}, False),
    ("truncated-only", {"prioritized": True}, False),
    ("masked", {}, True),  # one-step episodes; a dict observation
]


@pytest.mark.parametrize(("name", "settings", "shuffled"), family(
    PROBES, ["truncated-only"]), ids=[p[0] for p in PROBES])
def test_dqn_learns_a_probe_from_random_episodes(name, settings, shuffled):
    env = jf.make(f"probe/{name}")
    episodes = random_episodes(env, 256)
    algo = dataclasses.replace(DQN, **settings)
    if shuffled:
        join = lambda name, cut=slice(None): jax.tree.map(lambda
                                                          *x: np.concatenate([y[cut] for y in x]),
                                                          *[e[name] for e in episodes])  # fmt: skip
        parts = (join("observations", slice(-1)), join("actions"), join("rewards"),
                 join("observations", slice(1, None)),
                 join("terminations"))  # fmt: skip
        order = np.random.default_rng(0).permutation(len(parts[2]))
        rows = transitions_to_rows(*jax.tree.map(lambda x: x[order], parts), env.spec)
    else:
        rows = episodes_to_rows(episodes, env.spec, num_envs=2)
    data = jf.offline_memory(algo, env, rows)
    train = jf.make_offline_train(algo, env, data, updates=1_200, log_every=300)
    agent, metrics = quick(train, jax.random.key(0), data.store)
    known = env.known_values(0.9)
    q = np.asarray(algo.bind(env.spec).action_values(agent.params, known.obs))
    legal = known.q > -50
    np.testing.assert_allclose(q[legal], known.q[legal],
                               atol=0.05 * max(1.0, abs(known.value).max()))
    assert metrics["updates"].tolist() == [300, 600, 900, 1200]
    assert all(x.shape == (4,) and np.isfinite(x).all() for x in metrics.values())


@pytest.mark.matrix("tests/engine/test_chunks.py::test_a_run_is_independent_of_its_chunks")
def test_log_interval_and_seeds_change_nothing():
    env = jf.make("probe/reward-at-end")
    algo = dataclasses.replace(DQN, batch_size=4, prioritized=True)
    data = jf.offline_memory(algo, env, episodes_to_rows(random_episodes(env, 8), env.spec))
    train = lambda log_every: jf.make_offline_train(algo, env, data, 12, log_every)
    agent, _ = quick(train(12), jax.random.key(1), data.store)
    other, metrics = quick(train(4), jax.random.key(1), data.store)
    assert metrics["loss"].shape == (3,)
    jax.tree.map(lambda a, b: np.testing.assert_allclose(a, b, rtol=1e-5, atol=1e-6), agent, other)
    keys = jnp.stack([jax.random.key(0), jax.random.key(1)])
    seeds, _ = quick(jax.vmap(train(12), (0, None)), keys, data.store)
    jax.tree.map(lambda a, b: np.testing.assert_allclose(a, b[1], rtol=1e-4, atol=1e-5), agent,
                 seeds)


def test_bad_offline_runs_are_refused():
    env = jf.make("probe/reward-at-end")
    rows = episodes_to_rows(random_episodes(env, 8), env.spec)
    data = jf.offline_memory(DQN, env, rows)
    with pytest.raises(ConfigError, match="learns from replay"):
        jf.make_offline_train(jf.PPO(), env, data, 10)
    with pytest.raises(ConfigError, match="learns from replay"):
        jf.offline_memory(jf.PPO(), env, rows)
    with pytest.raises(ConfigError, match="data must be a memory of offline_memory, .*got 'x'"):
        jf.make_offline_train(DQN, env, "x", 10)
    with pytest.raises(ConfigError, match="updates must be .*got 0"):
        jf.make_offline_train(DQN, env, data, 0)
    with pytest.raises(ConfigError, match="log_every must be .*got 0"):
        jf.make_offline_train(DQN, env, data, 10, 0)
    with pytest.raises(ConfigError,
                       match=r"data.obs must be float32\[2\], as .*got 'float32\[4\]'"):
        jf.make_offline_train(DQN, jf.make("probe/reward-at-end", length=2), data, 10)
    with pytest.raises(ConfigError, match="n_step must be 1, as the memory of the data .*got 3"):
        jf.make_offline_train(dataclasses.replace(DQN, n_step=3), env, data, 10)
    with pytest.raises(ConfigError, match=r"prioritized must be False, got True.*UniformMemory"):
        jf.make_offline_train(dataclasses.replace(DQN, prioritized=True), env, data, 10)
    with pytest.raises(ConfigError,
                       match="batch_size must be at most 32, got 64: the data has no more steps"):
        jf.make_offline_train(DQN, env, data, 10)
    with pytest.raises(ConfigError, match="data must be .*got '0 blocks"):
        jf.make_offline_train(DQN, env, dataclasses.replace(data, w=0), 10)


@pytest.mark.parametrize("prioritized", [False, True])
def test_shuffled_transitions_hold_whole_stacks(prioritized):
    env, algo = jf.make("probe/reward-at-end", stack=2), dataclasses.replace(
        DQN, batch_size=3, prioritized=prioritized)
    parts = (
        np.arange(24.0).reshape(3, 8), np.zeros(3, int), np.ones(3), np.ones((3, 8)), np.zeros(3))
    data = jf.offline_memory(algo, env, transitions_to_rows(*parts, env.spec))
    train = jf.make_offline_train(algo, env, data, 10)
    agent, _ = jax.eval_shape(train, jax.random.key(0), data.store)
    assert agent.params
    with pytest.raises(ConfigError, match=r"observations must be .* \(3, 8\)"):
        transitions_to_rows(parts[0][:, :4], *parts[1:], env.spec)
