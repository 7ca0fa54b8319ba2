"""Environments handed over as objects: gymnax's form with its ends and parameters, Gymnasium's
instances, classes, thunks."""

from __future__ import annotations

from typing import Any

import gymnasium
import jax
import jax.numpy as jnp
import numpy as np
import pytest
from flax import struct

import jaxrl_fast as jf
from helpers import fresh
from jaxrl_fast.actors import play
from jaxrl_fast.engine.members import configure
from jaxrl_fast.envs import own, registry
from jaxrl_fast.envs.gymnax import loading
from jaxrl_fast.errors import ConfigError, UserError
from jaxrl_fast.runs import config_json

loading.gymnax()  # without its plotting packages, which take seconds to import
from gymnax import registration  # noqa: E402
from gymnax.environments import spaces  # noqa: E402


@struct.dataclass
class Params:
    goal: float = 3.0
    width: int = 2  # the shape of the observation: must stay a number of Python's
    max_steps_in_episode: int = 5


@struct.dataclass
class State:
    x: Any
    time: Any


class Line:
    """x counts the steps; the task is done at `goal`, the time is up at `max_steps_in_episode`."""

    def __init__(self, form: str = "discount", start: int = 0):
        self.form, self.start = form, start

    @property
    def default_params(self):
        return Params()

    def reset_env(self, key, params):
        return jnp.zeros(params.width), State(jnp.float32(self.start), 0)

    def step_env(self, key, state, action, params):
        state = State(state.x + 1, state.time + 1)
        reached, up = state.x >= params.goal, state.time >= params.max_steps_in_episode
        front = jnp.full(params.width, state.x), state, state.x
        return *front, *{
            "discount": (reached | up, {"discount": jnp.where(reached, 0.0, 1.0)}),
            "empty discount": (reached | up, {"discount": 1.0 - (reached | up)}),
            "limit in done": (reached | up, {}),
            "natural": (reached, {}),
            "six": (reached, up, {}),
        }[self.form]

    def action_space(self, params=None):
        return spaces.Discrete(2)

    def observation_space(self, params):
        return spaces.Box(0.0, 9.0, (params.width,), jnp.float32)


FORMS = ("discount", "empty discount", "limit in done", "natural", "six")


def last_step(env, num_envs=2):
    """Steps until the first end: (number of steps, terminated, truncated, next_obs)."""

    def scan(key):
        state, _ = env.init(key, num_envs)
        def one(state, noise):
            state, _, outcome = env.step(noise, state, jnp.zeros(num_envs, jnp.int32))
            return state, outcome

        return jax.lax.scan(one, state, env.draw(key, 8, num_envs, jnp.int32(0)))[1]

    outcome = jax.jit(scan)(jax.random.key(0))
    first = int(np.argmax(np.asarray(outcome.terminated | outcome.truncated)[:, 0]))
    terminated, truncated, obs = (
        np.asarray(x)[first, 0] for x in (outcome.terminated, outcome.truncated, outcome.next_obs))
    return first + 1, bool(terminated), bool(truncated), obs


@pytest.mark.parametrize("form", FORMS)
def test_both_kinds_of_end_in_every_form(form):
    line = Line(form)
    assert last_step(jf.make(line))[:3] == (3, True, False)
    steps, terminated, truncated, obs = last_step(jf.make(line, goal=7.0))
    # the successor, not the reset
    assert (steps, terminated, truncated) == (5, False, True) and obs.tolist() == [5, 5]


class Talks(Line):
    """Reports numbers beside the discount, and what no log can hold."""

    def step_env(self, key, state, action, params):
        *found, info = super().step_env(key, state, action, params)
        more = {"twice": 2 * found[1].x, "flag": found[1].x > 1, "three": 3,
                "picture": jnp.zeros(4), "deep": {"x": 1.0},
            5: 1.0}
        return *found, info | more


@pytest.mark.matrix("tests/logs/test_reports.py::test_every_row_of_a_run_holds_the_reports")
def test_numbers_of_an_info_are_reported():
    metrics = jax.jit(jf.make_train(
        jf.PPO(num_envs=2, num_steps=6, num_minibatches=1, hidden=(4,)), jf.make(Talks()), 12))(
        jax.random.key(0)
    )[1]
    found = {name: float(metrics[name][0])
             for name in ("twice", "twice_end", "three", "flag", "flag_end")}
    assert found == pytest.approx(
        {"twice": 4.0, "twice_end": 6.0, "three": 3.0, "flag": 2 / 3, "flag_end": 1.0})
    assert not {"picture", "deep", "discount", "5"} & set(metrics)


def test_float_parameters_are_leaves_and_whole_numbers_are_not():
    env = jf.make(Line())
    assert jax.tree.leaves(env) == [3.0] and env.spec.max_episode_steps == 5
    goals = jax.vmap(lambda goal: last_goal(goal, env))(jnp.array([2.0, 4.0]))
    assert goals.tolist() == [2, 4]
    assert jf.make(Line(), width=3).spec.observation.shape == (3,)
    _, other = configure(jf.PPO(), env, {"env.goal": 4.0})
    # one program for both
    assert last_step(other)[0] == 4 and jax.tree.structure(other) == jax.tree.structure(env)


def last_goal(goal, env):
    """The steps of the first episode at a traced goal."""
    env = jax.tree.map(lambda _: goal, env)
    state, _ = env.init(jax.random.key(0), 1)
    def one(carry, noise):
        state, steps = carry
        state, _, outcome = env.step(noise, state, jnp.zeros(1, jnp.int32))
        return (state,
                jnp.where((steps == 0) & outcome.terminated[0], outcome.reward[0], steps)), None

    return jax.lax.scan(one, (state, jnp.float32(0)),
                        env.draw(jax.random.key(0), 6, 1, jnp.int32(0)))[0][1]


def test_registered_by_us_and_by_gymnax(monkeypatch):
    jf.register("line", Line)
    assert (
        registry.settings_of("line")["goal"] == 3.0
        and registry.settings_of("line")["form"] == "discount"
    )
    assert last_step(jf.make("line", form="natural", start=1))[0] == 2
    monkeypatch.setitem(registration._registry, "Line-v0", Line)
    assert last_step(jf.make("Line-v0", goal=1.0))[0] == last_step(
        jf.make("gymnax:Line-v0", goal=1.0))[0] == 1
    with pytest.raises(ConfigError, match=r"env.gaol must be .*got 1.*did you mean 'goal'"):
        jf.make("line", gaol=1.0)
    with pytest.raises(ConfigError, match="one without a setting 'stack'"):
        jf.register("wrong", lambda stack=2: Line()) or jf.make("wrong")


class Walk(gymnasium.Env):
    observation_space = gymnasium.spaces.Box(0, 99, (1,), np.float32)
    action_space = gymnasium.spaces.Discrete(2, start=3)

    def __init__(self, length: int = 3, render_mode: str | None = None):
        self.length, self.render_mode = length, render_mode

    def render(self):
        return np.full((8, 8, 3), self.time, np.uint8)

    def reset(self, *, seed=None, options=None):
        self.time = 0
        return np.zeros(1, np.float32), {}

    def step(self, action):
        assert self.action_space.contains(action)
        self.time += 1
        return np.full(1, self.time, np.float32), 1.0, self.time == self.length, False, {}


def host_length(env):
    """The steps of a first episode."""
    vector = env.open(2, 0)
    vector.reset()
    for i in range(1, 9):
        vector.send(np.zeros(2, np.int32))
        if vector.receive().over[0]:
            vector.close()
            return i


def changed(length):
    env = Walk()
    env.length = length
    return env


@pytest.mark.parametrize(("source", "settings", "length"), [
    (Walk, {}, 3), (Walk, {"length": 4}, 4), (lambda: Walk(5), {}, 5),
    (lambda length=6: Walk(length), {}, 6),
    (changed(7), {}, 7), (Walk, {"max_episode_steps": 2}, 2),
    (gymnasium.make("CartPole-v1", max_episode_steps=1), {}, 1),
])  # fmt: skip
def test_gymnasium_objects(source, settings, length):
    assert host_length(jf.make(source, **settings)) == length


def made_by_a_loop(n):
    """A function as one that a loop of a module, or of a notebook's cell, makes: it reads the
    module's variable."""
    globals()["LENGTH"] = n
    return lambda: Walk(LENGTH)  # noqa: F821


def test_an_object_has_one_name_and_is_found_again():
    # one program, not two
    assert jf.make(Walk) is jf.make(Walk) and jf.make(Line()) is jf.make(Line())
    assert config_json.encode_environment(jf.make(Line(), goal=4.0)) == {
        "name": f"{__name__}:Line", "settings": {"goal": 4.0}}
    one, two = (jf.make(lambda n=n: Walk(n)) for n in (4, 5))
    assert host_length(one) == 4 and host_length(two) == 5  # lambdas of one place are still two
    three, four, again = (jf.make(made_by_a_loop(n)) for n in (4, 5, 5))
    # nor where they read the loop's variable
    assert host_length(four) == 5 and three is not four and again is four
    name = registry.describe(one)[0]
    assert "#" in name and own.find(name) is not None and registry.make(name) is one
    assert own.find(f"{__name__}:Walk") is Walk and own.find("nothing") is None


class Longer(Walk):
    def __init__(self, length):
        super().__init__(length + 1)


def made_by_a_helper():
    return KIND(**SETTINGS)  # noqa: F821


def test_functions_whose_variables_changed_make_other_environments(monkeypatch):
    """A loop's class, or a dict that changed, as a global, within a function and in a helper."""
    place, settings, make = globals(), {}, lambda: made_by_a_helper()
    monkeypatch.setitem(place, "SETTINGS", settings)
    for kind, length in ((Walk, 3), (Longer, 3), (Longer, 4), (Longer, 4)):
        monkeypatch.setitem(place, "KIND", kind)
        settings["length"] = length
        sources = lambda: KIND(**SETTINGS), lambda: kind(**settings), make  # noqa: B023, F821
        for source in sources:
            env = jf.make(source)
            assert env.spec.name == kind.__name__
            assert host_length(env) == length + (kind is Longer)
    assert jf.make(make) is jf.make(make)


@pytest.mark.parametrize(
    "name",
    ["os:system", f"{__name__}:np.save", "numpy:save", "jax:jit", "antigravity:fly",
     f"{__name__}:nothing"]
)
def test_a_name_calls_only_environments(name):
    with pytest.raises(ConfigError, match="environment"):
        registry.make(name)


@pytest.mark.matrix(
    "tests/runs/test_config_json.py::test_a_run_with_a_network_of_a_space_is_saved_loaded_and_resumed")
def test_a_run_with_an_object_is_loaded_and_resumed(tmp_path):
    algo = jf.PPO(num_envs=2, num_steps=8, num_minibatches=1, num_epochs=1, hidden=(8,))
    jf.train(algo, jf.make(lambda: Walk(4)), 32, out=tmp_path / "run", eval_episodes=2,
             tensorboard=False)
    agent = jf.load(tmp_path / "run")
    assert agent.evaluate(episodes=2).ret.tolist() == [4, 4] and int(
        agent.act(np.zeros(1, np.float32))) in (3, 4)
    with pytest.warns(UserWarning, match="horizon"):
        assert jf.resume(tmp_path / "run", total_steps=48, tensorboard=False).env_steps == 48


def test_pictures_of_a_class_and_of_a_thunk():
    algo = jf.PPO(num_envs=1, hidden=(8,))
    for source, values in ((Walk, [0, 1, 2, 3]), (lambda: Walk(), None)):
        env = jf.make(source)
        bound = algo.bind(env.spec)
        found = play.frames(env, bound, bound.init(jax.random.key(0)), jax.random.key(0), 10)
        assert (found and [int(x.max()) for x in found]) == values


@pytest.mark.parametrize(("source", "message"), [
    (3, "environment must be .*an instance, its class or a function .*got 3"),
    (None, "environment must be .*got None"),
    (lambda: 3, "not int"),
    (lambda: gymnasium.make("nope"),
     "environment must be a function that makes one, got .*NameNotFound"),
    (gymnasium.make_vec("CartPole-v1"), "one environment, or a function that makes one"),
])  # fmt: skip
def test_objects_that_are_no_environment_are_refused(source, message):
    with pytest.raises(ConfigError, match=message):
        jf.make(source)


SHARED = Walk()


@pytest.mark.parametrize("source", [
    lambda: SHARED, lambda: gymnasium.wrappers.TimeLimit(SHARED, 2), lambda shared=SHARED: shared,
])  # fmt: skip
def test_one_environment_is_not_stepped_as_several(source):
    """`lambda: env` makes no other environment; the environments of a vector would be one."""
    env = jf.make(source)
    with pytest.raises(UserError, match="a new one at every call") as held:  # as a notebook does
        env.open(2, 0)
    first = env.open(1, 0)
    assert held.traceback
    with pytest.raises(UserError, match="got the same one again"):  # as an evaluation's
        env.open(1, 0)
    first.close()
    env.open(1, 0).close()


def test_an_error_for_an_uncopyable_instance_suggests_a_function():
    env = Walk()
    env.lock = __import__("threading").Lock()
    with pytest.raises(ConfigError, match="a function that makes one, such as `lambda: Walk"):
        jf.make(env)


def test_an_environment_of_ours_takes_the_wrappers_settings():
    env = jf.make("CartPole-v1")
    assert jf.make(env) is env and jf.make(env, stack=2).spec.stack == 2
    with pytest.raises(ConfigError, match="env.gravity must be .*got 1"):
        jf.make(env, gravity=1)


def test_names_of_objects_import_nothing():
    code = (
        "import sys, jaxrl_fast as jf\n"
        "try: jf.make('antigravity:fly')\n"
        "except ValueError as error: print(error)\n"
        "assert not {'antigravity', 'gymnax', 'gymnasium'} & set(sys.modules)"
    )
    fresh.check(code)
