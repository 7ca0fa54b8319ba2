"""Swapped, unmade and foreign arguments: one line with the argument and the remedy."""

from __future__ import annotations

import gymnasium
import jax
import jax.numpy as jnp
import numpy as np
import pytest

import jaxrl_fast as jf
from helpers import runs as tools

QUICK = dict(eval_episodes=2, progress=False)
GRID = {"algo.learning_rate": [1e-3]}


@jf.settings
class Unwritten(jf.SingleEnv):
    """A class whose methods are still to come."""


class NoEnv:
    pass


class Factory:
    """A class whose calls return an environment of another class."""

    def __new__(cls):
        return jf.make("CartPole-v1")


def parameter(name):
    return gymnasium.make(name)


@pytest.fixture(scope="module")
def run():
    return jf.train(tools.algorithm("ppo"), jf.make("CartPole-v1"), 64, **QUICK)


MAKE = [
    (jf.Env, "Env.spec must be defined by the class.* an environment has spec, reset, transition"),
    (jf.SingleEnv, "SingleEnv.spec must be defined by the class.* spec, reset_one, step_one"),
    (jf.HostEnv, "HostEnv._spec must be defined by the class"),
    (Unwritten, "Unwritten.spec must be defined by the class"),
    (jf.PPO, "environment must be a name .*got <class '.*PPO'>"),
    (NoEnv, "environment must be a name .*got <class '.*NoEnv'>"),
    (Factory, "environment must be a name .*got <class '.*Factory'>"),
    (f"{__name__}:Factory", "environment must be the path of an environment's class"),
    (parameter, "environment must be one that can be made without arguments .*'name'.*got '.*par"),
]


@pytest.mark.parametrize(("source", "says"), MAKE, ids=lambda x: getattr(x, "__name__", ""))
def test_values_that_make_no_environment_are_refused(source, says):
    for make in (lambda: jf.make(source), lambda: jf.make(source, reward_scale=2.0)):
        with pytest.raises(jf.ConfigError, match=says) as error:
            make()
        assert "\n" not in str(error.value)


def test_a_registered_class_without_its_methods():
    jf.register("test/unwritten", Unwritten)
    with pytest.raises(jf.ConfigError, match="Unwritten.spec must be defined by the class"):
        jf.make("test/unwritten")


def test_a_class_that_is_no_environment_is_not_registered_either():
    with pytest.raises(jf.ConfigError, match="factory must be .* function that makes one"):
        jf.register("test/factory", Factory)
    jf.register("test/factory", f"{__name__}:Factory")
    with pytest.raises(jf.ConfigError, match="environment must be a name .*Factory"):
        jf.make("test/factory")


def gym():
    return gymnasium.make("CartPole-v1")


def ppo():
    return tools.algorithm("ppo")


def env():
    return jf.make("CartPole-v1")


ALGORITHM, ENV = "algo must be an algorithm, such as jf.PPO", "env must be an environment, such as"
CALLS = {
    "train(env, algo)": (lambda: jf.train(env(), ppo(), 64), f"{ENV}.*: an algorithm comes first"),
    "train(class, env)": (lambda: jf.train(jf.PPO, env(), 64), f"{ALGORITHM}.*: call the class"),
    "train(algo, class)": (lambda: jf.train(ppo(), Unwritten, 64), f"{ENV}.*jf.make takes this"),
    "train(algo, gym)": (lambda: jf.train(ppo(), gym(), 64), f"{ENV}.*jf.make takes this object"),
    "train(run, env)": (lambda: jf.train(ppo().bind(env().spec).memory(), env(), 64), ALGORITHM),
    "plan(env, algo)": (lambda: jf.plan(env(), ppo(), 64), f"{ENV}.*: an algorithm comes first"),
    "sweep(env, algo)": (lambda: jf.sweep(env(), ppo(), 64, grid=GRID), ALGORITHM),
    "sweep(class, env)": (lambda: jf.sweep(jf.PPO, env(), 64, grid=GRID),
                          f"{ALGORITHM}.*: call the class"),
    "sweep(algo, gym)": (lambda: jf.sweep(ppo(), gym(), 64, grid=GRID), f"{ENV}.*jf.make takes"),
    "make_train(env, algo)": (lambda: jf.make_train(env(), ppo(), total_steps=64), ALGORITHM),
}


@pytest.mark.parametrize("name", CALLS)
def test_swapped_and_unmade_arguments(name, tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    call, says = CALLS[name]
    with pytest.raises(jf.ConfigError, match=says) as error:
        call()
    assert "\n" not in str(error.value) and not list(tmp_path.iterdir())


@pytest.mark.parametrize("pair", [
    lambda: gym().reset(),
    lambda: (np.zeros(4, np.float32), 1.0, False, False, {}),
    lambda: env().init(jax.random.key(0), 3),
    lambda: (np.zeros(4, np.float32), {}),
    lambda: (jnp.zeros((2, 4)), [{}, {}]),
], ids=["reset", "step", "init", "info", "infos"])  # fmt: skip
def test_the_tuple_of_reset_is_refused_as_an_observation(pair, run):
    agent = run.agent()
    for act in (agent.act, agent.predict, agent.player(),
                lambda obs: agent.step(agent.init_carry(), obs)):
        with pytest.raises(jf.ConfigError, match=r"observation must be the observation alone, got a"
                                                 r" tuple of \d values: .*obs, info = env.reset()"):
            act(pair())


class Pair(gymnasium.Env):
    """Observations are a tuple of two numbers."""

    action_space = gymnasium.spaces.Discrete(2)
    observation_space = gymnasium.spaces.Tuple([gymnasium.spaces.Discrete(3)] * 2)

    def reset(self, seed=None, options=None):
        return (0, 1), {}

    def step(self, action):
        return (0, 1), 0.0, True, False, {}


def test_a_tuple_is_an_observation_of_its_space_alone():
    agent = jf.train(tools.algorithm("ppo"), jf.make(Pair), 64, **QUICK).agent()
    assert agent.act((0, 1)) in (0, 1)
    with pytest.raises(jf.ConfigError, match="observation alone, got a tuple of 2 values"):
        agent.act(Pair().reset())


def test_a_tuple_of_numbers_is_an_observation(run):
    agent = run.agent()
    one = agent.act(np.array([0.1, 0.2, 0.0, 1.0], np.float32))
    assert agent.act((0.1, 0.2, 0, 1)) == one == agent.act((np.float32(0.1), 0.2, 0, True))
    assert agent.act(((0.1, 0.2, 0, 1),) * 2).tolist() == [one, one]


EVALUATE = "evaluate must be called as evaluate.agent, env.*got evaluate"


def test_calls_of_evaluate(run):
    agent, made = run.agent(), env()
    for call, says in (
        (lambda: jf.evaluate(made, agent), rf"{EVALUATE}\(CartPole, Agent\): the agent comes"),
        (lambda: jf.evaluate(run, made), rf"{EVALUATE}\(Result, CartPole\): `run.agent\(\)`"),
        (lambda: jf.evaluate(agent), rf"{EVALUATE}\(Agent\)"),
        (lambda: jf.evaluate(agent, made, n_eval_episodes=3), rf"{EVALUATE}.*n_eval_episodes=..."),
        (lambda: jf.evaluate(made, run.algo, run, jax.random.key(0)),
         "agent must be the agent's state, .*`run.agent"),
        (lambda: jf.evaluate(made, run.algo, agent, jax.random.key(0)),
         "agent must be the agent's state, .*`agent.state` of a jf.Agent"),
        (lambda: jf.evaluate(made, run.algo, run.state, jax.random.key(0)),
         "agent must be the agent's state, .*`state.agent` of a RunState"),
    ):
        with pytest.raises(jf.ConfigError, match=says) as error:
            call()
        assert "\n" not in str(error.value)


@pytest.mark.parametrize(("action", "says"), [
    (np.array([7, 0, 1]), "action must be from 0 to 1, got 7"),
    (np.array([0, -1, 1]), "action must be from 0 to 1, got -1"),
    ([0, 1, 2], "action must be"),
    (np.zeros(3, np.float32), r"action must be integers from 0 to 1, got 'float32\[3\]'"),
    (jnp.zeros(3), "action must be integers from 0 to 1"),
    (np.zeros(2, np.int32), "action must be one for each of the 3 environments of the state, got"),
], ids=str)  # fmt: skip
def test_actions_outside_of_a_discrete_space(action, says):
    made = env()
    state, _ = made.init(jax.random.key(0), 3)
    noise = made.draw(jax.random.key(1), 1, 3, 0).at(0)
    with pytest.raises(jf.ConfigError, match=f"CartPole-v1: {says}"):
        made.step(noise, state, action)


@pytest.mark.parametrize("action", [np.array([0, 1, 1]), np.array([True, False, True]),
                                    np.array([0, 1, 1], np.uint8), jnp.array([0, 1, 1])], ids=str)
def test_integers_of_any_width_are_actions(action):
    made = env()
    state, _ = made.init(jax.random.key(0), 3)
    noise = made.draw(jax.random.key(1), 1, 3, 0).at(0)
    *_, outcome = made.step(noise, state, action)
    assert outcome.reward.tolist() == [1.0] * 3


def test_a_value_of_several_lines_is_told_in_one(run):
    for read in (jf.load, jf.resume, lambda x: jf.experience(x.agent())):
        with pytest.raises(jf.ConfigError) as error:
            read(run)
        assert "\n" not in str(error.value)
