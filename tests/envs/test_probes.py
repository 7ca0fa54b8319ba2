"""The known values of the probes are true: dynamic programming by play agrees with them."""

from __future__ import annotations

import jax
import jax.numpy as jnp
import numpy as np
import pytest

from jaxrl_fast.envs import registry, sources
from jaxrl_fast.envs.probes import control as probes
from jaxrl_fast.spaces import Dict, Discrete

GAMMA = 0.9
NAMES = sorted(sources.SOURCES.get("probe").names)
BANDITS = [n for n in NAMES if isinstance(registry.make(n), probes.Bandit)]


def leaves_match(space, obs):
    if isinstance(space, Dict):
        return all(leaves_match(child, obs[name]) for name, child in space.items)
    return obs.shape[1:] == space.shape


@pytest.mark.parametrize("name", NAMES)
def test_known_values_are_well_formed(name):
    env = registry.make(name)
    known = env.known_values(GAMMA)
    rows = len(known.value)
    assert env.spec.name == name and known.value.dtype == np.float32
    assert leaves_match(env.spec.observation, known.obs)
    assert all(len(x) == rows for x in jax.tree.leaves(known.obs))
    if known.q is not None:
        assert isinstance(env.spec.action, Discrete) and known.q.shape == (rows, env.spec.action.n)
        np.testing.assert_allclose(known.q.max(axis=1), known.value)
    if known.action is not None:
        assert known.action.shape[1:] == env.spec.action.shape


@pytest.mark.parametrize("name", BANDITS)
def test_the_optimal_action_earns_the_value_in_one_step(name):
    env = registry.make(name)
    known = env.known_values(GAMMA)
    state = jax.tree.map(jnp.asarray, known.obs)
    rows = len(known.value)
    actions = known.action if known.action is not None else np.zeros(rows, np.int32)
    _, outcome = env.transition((), state, jnp.asarray(actions))
    np.testing.assert_allclose(outcome.reward, known.value, atol=1e-6)
    assert bool(outcome.terminated.all()) and not bool(outcome.truncated.any())
    if known.q is not None:
        for a in range(env.spec.action.n):
            _, outcome = env.transition((), state, jnp.full(rows, a, jnp.int32))
            np.testing.assert_allclose(outcome.reward, known.q[:, a], atol=1e-6)
    else:  # any other action earns less
        _, outcome = env.transition((), state, env.spec.action.sample(jax.random.key(0), (rows,)))
        assert bool((outcome.reward <= known.value + 1e-6).all()) and bool(
            (outcome.reward < known.value).any())


@pytest.mark.parametrize("name", BANDITS)
def test_drawn_observations_are_among_the_known_ones(name):
    if name in ("probe/continuous", "probe/masked"):
        pytest.skip("known_values lists a sample")
    env = registry.make(name)
    _, obs = env.init(jax.random.key(0), 200)
    flat = np.concatenate([np.asarray(x) for x in jax.tree.leaves(obs)], axis=-1)
    known = np.concatenate(jax.tree.leaves(env.known_values(GAMMA).obs), axis=-1)
    assert {tuple(r) for r in flat} == {tuple(r) for r in known}


def test_reward_at_end_and_its_discount():
    env = registry.make("probe/reward-at-end", length=3)
    known = env.known_values(GAMMA)
    state, obs = env.init(jax.random.key(0), 1)
    rewards = []
    for i in range(3):
        np.testing.assert_array_equal(obs[0], known.obs[i])
        state, outcome = env.transition((), state, jnp.zeros(1, jnp.int32))
        obs = outcome.next_obs
        rewards.append(float(outcome.reward[0]))
    assert rewards == [0.0, 0.0, 1.0] and bool(outcome.terminated[0])
    np.testing.assert_allclose(known.value, [0.81, 0.9, 1.0], rtol=1e-6)


@pytest.mark.parametrize("action", [0, 1])
def test_two_step_credit(action):
    env = registry.make("probe/two-step-credit")
    known = env.known_values(GAMMA)
    state, _obs = env.init(jax.random.key(0), 1)
    state, first = env.transition((), state, jnp.full(1, action))
    state, second = env.transition((), state, jnp.full(1, 1 - action))
    assert (
        not bool(first.terminated[0]) and bool(second.terminated[0])
        and float(first.reward[0]) == 0.0
    )
    np.testing.assert_allclose(GAMMA * second.reward[0], known.q[0, action], rtol=1e-6)
    branch = int(np.argmax(first.next_obs[0]))
    assert branch == (1 if action == 1 else 2)
    np.testing.assert_allclose(second.reward[0], known.value[branch])


def test_truncated_only_never_terminates():
    env = registry.make("probe/truncated-only")
    state, _obs = env.init(jax.random.key(0), 1)
    ends = []
    for _ in range(4):
        state, outcome = env.transition((), state, jnp.zeros(1, jnp.int32))
        ends.append(bool(outcome.truncated[0]))
        assert not bool(outcome.terminated[0]) and float(outcome.reward[0]) == 1.0
    assert ends == [False, False, False, True]
    np.testing.assert_allclose(env.known_values(GAMMA).value, 1 / (1 - GAMMA), rtol=1e-6)


def test_masked_always_leaves_a_legal_action():
    env = registry.make("probe/masked")
    _, obs = env.init(jax.random.key(0), 500)
    legal = np.asarray(obs["action_mask"])
    assert legal.any(axis=1).all() and not legal.all(axis=1).all()
    assert legal[np.arange(500), np.asarray(obs["observation"]).argmax(axis=1)].all()
