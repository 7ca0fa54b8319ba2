"""Rewards over the running deviation of the discounted return: against a plain loop, and learning
without a scale."""

from __future__ import annotations

import dataclasses

import jax
import jax.numpy as jnp
import numpy as np
import pytest

import jaxrl_fast as jf
from helpers.matrix import family
from jaxrl_fast import tree
from jaxrl_fast.engine import iteration, rollout
from jaxrl_fast.types import Timestep, Trajectory

CARTPOLE = jf.make("CartPole-v1").spec
SIZES = dict(num_envs=3, num_steps=4, hidden=(4,))
ON_POLICY = [jf.PPO(num_minibatches=1, **SIZES), jf.A2C(**SIZES), jf.IMPALA(**SIZES),
             jf.PQN(num_minibatches=1, **SIZES)]
each = pytest.mark.parametrize("algo", ON_POLICY, ids=lambda x: x.name)


def on(algo):
    return dataclasses.replace(algo, normalize_reward=True, discount=0.9).bind(CARTPOLE)


def played(reward, terminated, truncated, reset_only=()):
    return Trajectory(Timestep((), (), (), reward, terminated, truncated, reset_only=reset_only),
                      (), (), ())


@pytest.mark.parametrize("resets", [False, True])
def test_a_plain_loop_over_all_steps_gives_the_same(resets, rng):
    """Blocks of rollouts, episodes that go on over their edges; rows that are resets of the
    environment alone do not count."""
    algo = on(ON_POLICY[0])
    agent, seen, running = jax.jit(algo.init)(jax.random.key(0)), [], np.zeros(3)
    observe, divide = jax.jit(algo.observe), jax.jit(lambda agent, x: agent.rewards.normalize(x))
    for _ in range(5):
        reward = rng.normal(50.0, 300.0, (4, 3)).astype(np.float32)
        terminated, truncated = rng.random((2, 4, 3)) < 0.2
        reset = rng.random((4, 3)) < 0.2 if resets else np.zeros((4, 3), bool)
        for t in range(4):
            running = 0.9 * running + reward[t]
            seen += running[~reset[t]].tolist()
            running[terminated[t] | truncated[t]] = 0
        agent = observe(agent, played(reward, terminated, truncated, reset if resets else ()))
        np.testing.assert_allclose(agent.rewards.running, running, rtol=1e-5, atol=1e-3)
        assert float(agent.rewards.moments.count) == len(seen)
        expected = np.clip(reward / np.std(seen), -10, 10)
        np.testing.assert_allclose(divide(agent, reward), expected, rtol=1e-4)
    far = np.float32([1e9, -1e9])
    np.testing.assert_array_equal(divide(agent, far), [10, -10])
    assert not np.asarray(jax.jit(algo.seam)(agent).rewards.running).any() and np.asarray(
        agent.rewards.running).any()


@pytest.mark.parametrize("reward", [0.0, 0.1, -7.3])
def test_returns_that_do_not_vary_divide_nothing(reward):
    algo, ended = on(ON_POLICY[0]), np.ones((4, 3), bool)
    reward = np.full((4, 3), reward, np.float32)

    @jax.jit
    def divided(key, reward):
        agent = algo.init(key)
        for _ in range(3):
            agent = algo.observe(agent, played(reward, ended, ~ended))
        return agent.rewards.normalize(reward)

    np.testing.assert_array_equal(divided(jax.random.key(0), reward), reward)


@each
def test_without_reward_normalization_the_agent_has_no_statistics(algo):
    """Old checkpoints hold no statistics of rewards."""
    agent = jax.eval_shape(algo.bind(CARTPOLE).init, jax.random.key(0))
    assert agent.rewards == () and algo.bind(CARTPOLE).observe(agent, None) is agent


@pytest.mark.parametrize("algo", family(ON_POLICY, lambda algo: algo.name == "ppo"),
                         ids=lambda x: x.name)
def test_the_learner_gets_the_divided_reward(algo, compiled):
    """The rows of a rollout are those of one whose rewards came divided."""
    env, plain = jf.make("CartPole-v1"), algo.bind(CARTPOLE)
    algo = dataclasses.replace(plain, normalize_reward=True)

    def rows(key):
        run = tree.as_float32(iteration.Run(env, algo, 10.0))
        state = iteration.init(run, key)
        noise = iteration.draw(run, key, jnp.int32(0)).rollout
        actor = rollout.Actor(state.env, state.obs, state.carry)
        _, trajectory = rollout.collect(env, algo, state.agent, actor, noise,
                                        iteration.clock_at(run, jnp.int32(0)), "sample")
        agent = algo.observe(state.agent, trajectory)
        divided = trajectory._replace(
            steps=trajectory.steps._replace(reward=agent.rewards.normalize(trajectory.steps.reward))
        )
        return (
            algo.prepare(agent, trajectory), plain.prepare(agent, divided),
            plain.prepare(agent, trajectory)
        )

    ours, expected, raw = compiled(rows, jax.random.key(0))
    for a, b in zip(jax.tree.leaves(ours), jax.tree.leaves(expected), strict=True):
        np.testing.assert_allclose(a, b, rtol=1e-6)
    assert any((np.asarray(a) != np.asarray(b)).any()
               for a, b in zip(*map(jax.tree.leaves, (ours, raw)), strict=True))


@pytest.mark.matrix("test_a_plain_loop_over_all_steps_gives_the_same")
def test_large_rewards_learn_as_small_ones(learn):
    """Bit for bit: the scale is a power of two. Without it one value loss of 10^6 drowns the
    policy's gradient."""
    settings = dict(num_envs=32, num_steps=8, num_epochs=2, num_minibatches=2, learning_rate=1e-2,
                    discount=0.9,
                    hidden=(16,), shared_torso=True)  # fmt: skip
    train = lambda scale, **more: learn(jf.PPO(**settings, **more), "probe/named-action", 10_000,
                                        reward_scale=scale)
    algo, agent, _, metrics = train(2048.0, normalize_reward=True)
    _, of_two, _, twos = train(2.0, normalize_reward=True)
    plain, without, _, _ = train(2048.0)
    for a, b in zip(*(jax.tree.leaves((x.params, x.opt_state)) for x in (agent, of_two)),
                    strict=True):
        np.testing.assert_array_equal(a, b)
    # the log has the environment's
    np.testing.assert_array_equal(metrics["episode_return"], 1024 * twos["episode_return"])
    right = np.eye(4, dtype=np.float32)
    np.testing.assert_array_equal(algo.networks.policy(agent.params, right).mode(), np.arange(4))
    assert (plain.networks.policy(without.params, right).mode() != np.arange(4)).any()
