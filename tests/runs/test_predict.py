"""An agent for users of Stable-Baselines3 and Gymnasium: `predict`, `player`, `jf.evaluate`."""

from __future__ import annotations

import gymnasium
import jax
import numpy as np
import pytest

import jaxrl_fast as jf
from jaxrl_fast.engine.config import RunConfig

FRAMES = np.random.default_rng(0).normal(size=(5, 2, 3)).astype(np.float32)  # [T, B, 3]


def new(algo: jf.Algorithm, env: jf.Env) -> jf.Agent:
    algo = algo.bind(env.spec)
    return jf.Agent(algo, env, RunConfig(), jax.jit(algo.init)(jax.random.key(0)))


@pytest.fixture(scope="module")
def stacked() -> jf.Agent:
    return new(jf.PPO(hidden=(8,)), jf.make("Pendulum-v1", stack=2))


def acted(agent, frames):
    agent.reset()
    return np.stack([agent.act(frame) for frame in frames])


def test_predict_hands_the_state_on(stacked):
    state, found = None, []
    for frame in FRAMES:
        action, state = stacked.predict(frame, state, deterministic=True)
        found.append(action)
    np.testing.assert_array_equal(found, acted(stacked, FRAMES))
    first, _ = stacked.predict(FRAMES[0], state, np.array([True, False]), deterministic=True)
    np.testing.assert_array_equal(first[0], stacked.predict(FRAMES[0], deterministic=True)[0][0])
    assert (first[1] != stacked.predict(FRAMES[0], deterministic=True)[0][1]).all()


def test_predict_draws_another_action_each_time(stacked):
    found = {float(stacked.predict(FRAMES[0, 0])[0][0]) for _ in range(5)}
    assert len(found) == 5
    key = jax.random.key(3)
    one, other = (stacked.predict(FRAMES[0], key=key)[0] for _ in range(2))
    np.testing.assert_array_equal(one, other)


def test_predict_and_act_refuse_the_same_arguments(stacked):
    with pytest.raises(jf.ConfigError, match="observation must be finite"):
        stacked.predict(np.full(3, np.nan, np.float32), deterministic=True)
    with pytest.raises(jf.ConfigError, match=r"carry must be Agent.init_carry\(2\)"):
        stacked.predict(FRAMES[0], stacked.init_carry(3))
    for begun in ("x", [1, 0], [True]):
        with pytest.raises(jf.ConfigError, match=r"ended must be bool of shape \(2,\)"):
            stacked.predict(FRAMES[0], stacked.init_carry(2), begun)


def test_players_share_no_memory(stacked):
    one, other = stacked.player(), stacked.player()
    found = [(one(frame), other(FRAMES[0])) for frame in FRAMES][-1]
    np.testing.assert_array_equal(found[0], acted(stacked, FRAMES)[-1])
    np.testing.assert_array_equal(found[1], acted(stacked, FRAMES[[0, 0]])[-1])
    one.reset()
    np.testing.assert_array_equal(one(FRAMES[0]), acted(stacked, FRAMES[:1])[0])
    one.reset(np.array([True, False]))
    again = one(FRAMES[1])
    np.testing.assert_array_equal(again[0], acted(stacked, FRAMES[1:2])[0][0])
    np.testing.assert_array_equal(again[1], acted(stacked, FRAMES[:2])[1][1])


def test_a_players_draws_follow_its_seed(stacked):
    drawn = lambda seed: np.stack([*map(stacked.player(deterministic=False, seed=seed), FRAMES)])
    np.testing.assert_array_equal(drawn(1), drawn(1))
    assert (drawn(1) != drawn(2)).all()


def test_an_agent_plays_an_environment_of_gymnasium():
    """The returns are those of a loop written out."""
    agent = new(jf.DQN(hidden=(8,)), jf.make("CartPole-v1"))
    env = gymnasium.make("CartPole-v1")
    obs, total, want = env.reset(seed=3)[0], 0, []
    while len(want) < 2:
        obs, reward, terminated, truncated, _ = env.step(agent.act(obs))
        total += reward
        if terminated or truncated:
            obs, total = env.reset()[0], want.append(total) or 0
    found = jf.evaluate(agent, env, episodes=2, seed=np.int64(3))  # Gymnasium takes an int alone
    assert found.ret.tolist() == want == found.length.tolist() and found.finished.all()
    assert found.ret.dtype == np.float32
    env.reset()  # it is still open


def test_an_agent_plays_another_environment_of_ours():
    agent = new(jf.DQN(hidden=(8,)), jf.make("CartPole-v1"))
    np.testing.assert_array_equal(jf.evaluate(agent, agent.env, 4, seed=2).ret,
                                  agent.evaluate(4, seed=2).ret)
    assert (
        jf.evaluate(agent, jf.make("CartPole-v1", max_steps_in_episode=5), 2).ret.tolist() == [5, 5]
    )
    with pytest.raises(jf.ConfigError, match="observation of the environment must be the agent's"):
        jf.evaluate(agent, jf.make("Acrobot-v1"))


def test_evaluate_takes_its_arguments_by_name():
    agent = new(jf.DQN(hidden=(8,)), jf.make("CartPole-v1"))
    key = jax.random.key(2)
    pure = jf.evaluate(env=agent.env, algo=agent.algo, agent=agent.state, key=key, episodes=4)
    np.testing.assert_array_equal(pure.ret,
                                  jf.evaluate(env=agent.env, agent=agent, episodes=4, seed=2).ret)


@pytest.mark.parametrize(("named", "message"), [
    ({"mode": "gredy"}, "mode must be one of .*did you mean 'greedy'"),
    ({"episodes": 0}, "episodes must be an integer from 1"),
    ({"max_steps": 0}, "max_steps must be an integer from 1"),
    ({"max_steps": 1.5}, "max_steps must be an integer from 1"),
    ({"env": "CartPole-v1"}, "env must be an Env of jaxrl_fast"),
    ({"algo": jf.DQN}, "algo must be an Algorithm of jaxrl_fast"),
])  # fmt: skip
def test_arguments_of_evaluations_in_programs_are_checked(named, message):
    agent = new(jf.DQN(hidden=(8,)), jf.make("CartPole-v1"))
    given = {"env": agent.env, "algo": agent.algo, "agent": agent.state, "key": jax.random.key(0)}
    with pytest.raises(jf.ConfigError, match=message):
        jf.evaluate(**given | named)


def test_resets_of_a_player_add_up(stacked):
    player = stacked.player()
    player.reset([True, False])
    player.reset([False, True])
    assert player._ended.tolist() == [True, True]
    player.reset()
    assert player._ended is None


@pytest.mark.parametrize(("env", "message"), [
    (gymnasium.make("Acrobot-v1"), r"observation must be of shape \(4,\)"),
    (gymnasium.make_vec("CartPole-v1", 2),
     "env must be an environment of jf.make or an instance of one of Gymnasium"),
    ("CartPole-v1", "env must be an environment of jf.make"),
])  # fmt: skip
def test_environments_that_do_not_fit_are_refused(env, message):
    with pytest.raises(jf.ConfigError, match=message):
        jf.evaluate(new(jf.DQN(hidden=(8,)), jf.make("CartPole-v1")), env)


def test_an_action_space_that_does_not_fit_is_refused():
    env = gymnasium.wrappers.TransformAction(gymnasium.make("CartPole-v1"), lambda a: a,
                                             gymnasium.spaces.Discrete(2, start=4))
    with pytest.raises(jf.ConfigError, match="action space of the environment must be the agent's"):
        jf.evaluate(new(jf.DQN(hidden=(8,)), jf.make("CartPole-v1")), env)
