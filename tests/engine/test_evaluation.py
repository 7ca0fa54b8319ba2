"""Evaluation: one episode per environment, its own key, untouched by what training draws."""

from __future__ import annotations

import functools

import jax
import jax.numpy as jnp
import numpy as np
import pytest

import jaxrl_fast as jf
from helpers import runs as tools
from helpers.matrix import family
from jaxrl_fast import random
from jaxrl_fast.engine import rollout
from jaxrl_fast.engine.streams import evaluation_key
from jaxrl_fast.types import Clock

evaluate = jax.jit(jf.evaluate, static_argnames=("episodes", "mode", "max_steps"))


def bound(env, name="ppo", **settings):
    return tools.algorithm(name, **settings).bind(env.spec)


def first_lengths(env, algo, key, episodes):
    """The lengths of the episodes that an evaluation with this key begins with, read from their
    first states."""
    first = lambda key: rollout.init(env, algo, random.split(key)[0], episodes).env[0]
    return np.asarray(jax.jit(first)(key))


def played(env, algo, key, own, **settings):
    """The result of an evaluation of a new agent, all in one program."""
    play = lambda key, own: evaluate(env, algo, algo.init(key), own, **settings)
    return jax.device_get(jax.jit(play)(key, own))


def test_every_environment_plays_exactly_one_episode(key):
    """Lengths from 1 to 60, across the blocks that evaluation steps in: the return is the first
    episode's length."""
    env = tools.Lengths()
    algo = bound(env)
    found = played(env, algo, key, jax.random.key(5), episodes=64)
    lengths = first_lengths(env, algo, jax.random.key(5), 64)
    np.testing.assert_array_equal(found.ret, lengths)
    np.testing.assert_array_equal(found.length, lengths)
    assert found.finished.all() and 1 <= lengths.min() < 10 and 50 < lengths.max() <= 60


@pytest.mark.parametrize("name", family(["ppo", "dqn"], ["dqn"]))
def test_the_mean_equals_a_plain_rollouts_mean(name, key):
    """A deterministic probe: the first episode of every environment, step by step on the host."""
    env = jf.make("probe/two-step-credit")
    algo = bound(env, name)
    agent, (state, obs) = jax.jit(lambda key: (algo.init(key), env.init(key, 8)))(key)
    found = played(env, algo, key, jax.random.key(1), episodes=8)
    clock = Clock(jnp.int32(0), jnp.int32(0), jnp.float32(1))
    ret = np.zeros(8)

    @jax.jit
    def step(state, obs):
        noise = jax.tree.map(lambda x: x[0], algo.draw(key, 1, 8))
        _, action, _ = algo.act(algo.acting(agent), (), obs, noise, clock, "greedy")
        return env.transition((), state, action)

    for t in range(2):
        state, outcome = step(state, obs)
        obs, ret = outcome.next_obs, ret + np.asarray(outcome.reward)
        assert bool(outcome.terminated.all()) == (t == 1)
    np.testing.assert_allclose(found.ret, ret)
    np.testing.assert_array_equal(found.length, 2)


@pytest.mark.parametrize("limit", [50, 57])  # a multiple of the block and none
def test_the_step_limit_truncates_an_episode_with_a_message(limit, key):
    env = tools.Lengths(longest=80)
    algo = bound(env)
    found = played(env, algo, key, key, episodes=64, max_steps=limit)
    lengths = first_lengths(env, algo, key, 64)
    assert ((lengths > limit) & (lengths < 75)).any() and (lengths <= limit).any()
    np.testing.assert_array_equal(found.finished, lengths <= limit)
    np.testing.assert_array_equal(found.length, np.minimum(lengths, limit))
    np.testing.assert_array_equal(found.ret, found.length)


def test_greedy_and_sampled_play_differ(key):
    env = tools.environment()
    algo = bound(env, normalize_observations=False)
    agent = jax.jit(algo.init)(key)
    play = jax.jit(functools.partial(evaluate, env, algo, agent, episodes=16),
                   static_argnames="mode")
    greedy, again = play(jax.random.key(1)), play(jax.random.key(1))
    np.testing.assert_array_equal(greedy.ret, again.ret)
    assert (play(jax.random.key(1), mode="sample").ret != greedy.ret).any()
    assert (play(jax.random.key(2)).ret != greedy.ret).any()


@pytest.mark.parametrize("name", family(["ppo", "dqn"], ["ppo"]))
def test_the_logged_score_is_the_current_agents(name):
    """The key depends on the seed and the row alone, and the agent is the one after that row."""
    agents = {}
    keep = lambda s, rows: agents.update(
        {s.rows: jax.tree.map(lambda x: np.asarray(x).copy(), s.state.agent)})
    session = tools.train(name, hooks=[keep], seed=4)
    scores = {r.env_steps: r.metrics["eval_return"][0]
              for r in session.history if "eval_return" in r.metrics}
    assert len(scores) >= 3
    for steps, score in scores.items():
        rows = session.grid.rows - (session.env_steps - steps) // 64
        key = evaluation_key(jax.random.key(4), rows)
        found = evaluate(session.env, session.algo, agents[rows], key, episodes=4)
        np.testing.assert_allclose(score, found.ret.mean(), rtol=1e-6)


@pytest.mark.matrix("test_the_logged_score_is_the_current_agents")
def test_the_final_score_uses_eval_episodes(tmp_path):
    session = tools.train(
        "ppo", tmp_path / "run", env=tools.Lengths(longest=1), total_steps=64, eval_episodes=7,
        seeds=2
    )
    result = tools.read(tmp_path / "run" / "result.json")
    assert (
        result["eval_return"] == [1.0, 1.0] and result["eval_episodes"] == 7
        and result["seeds"] == [0, 1]
    )
    np.testing.assert_array_equal(session.eval_return, [1.0, 1.0])
