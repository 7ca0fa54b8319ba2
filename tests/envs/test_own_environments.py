"""Mistakes that people make when they write or step an environment: each is one error that names it
and what is valid."""

from __future__ import annotations

import re

import gymnasium
import jax
import jax.numpy as jnp
import numpy as np
import pytest

import jaxrl_fast as jf
from jaxrl_fast.algorithms import algorithm_class
from jaxrl_fast.envs import action_checks, wrappers
from jaxrl_fast.envs.own_spaces import own_of
from jaxrl_fast.errors import ConfigError
from jaxrl_fast.types import Outcome

START = (jnp.int32(0), jnp.zeros(2))


@jf.settings
class Mine(jf.SingleEnv):
    """Ends after ten steps. `found` is what `step_one` returns, of the state after the step."""

    found: object = jf.setting(None, "a function of (state, action)", static=True)
    start: object = jf.setting(lambda key: START, "a function of a key", static=True)

    @property
    def spec(self):
        return jf.EnvSpec("mine", jf.Box(0.0, 1.0, (2,)), jf.Discrete(2), 10)

    def reset_one(self, key):
        return self.start(key)

    def step_one(self, key, time, action):
        return self.found(time + 1, action)


@jf.settings
class Batched(jf.Env):
    """The same for all environments at once; `found` is what `transition` returns."""

    found: object = jf.setting(None, "a function of (state, action)", static=True)

    @property
    def spec(self):
        return jf.EnvSpec("mine", jf.Box(0.0, 1.0, (2,)), jf.Discrete(2), 10)

    def reset(self, noise):
        return jnp.zeros(noise.shape, jnp.int32), jnp.zeros((*noise.shape, 2))

    def transition(self, noise, state, action):
        return self.found(state + 1, action)


def step(env, num_envs=4):
    """One step of fresh environments, traced: (state, obs, Outcome)."""

    def one(key):
        state, _ = env.init(key, num_envs)
        noise = jax.tree.map(lambda x: x[0], env.draw(key, 1, num_envs, jnp.int32(0)))
        return env.step(noise, state, jnp.zeros(num_envs, jnp.int32))

    return jax.eval_shape(one, jax.random.key(0))


OBS, ONE, NO = jnp.zeros(2), jnp.float32(1), jnp.bool_(False)
SINGLE = {
    "four values": (lambda s, a: (s, OBS, ONE, s > 9),
                    r"step_one must be five values \(state, obs, reward.*got '4 values"),
    "seven values": (lambda s, a: (s, OBS, ONE, s > 9, NO, {}, {}),
                     "step_one must be .*got '7 values"),
    "a sixth value that is no dict": (lambda s, a: (s, OBS, ONE, s > 9, NO, s),
        r"sixth value of step_one must be .*got 'int32\[\]'"),
    "a list": (lambda s, a: [s, OBS, ONE, s > 9, NO], "step_one must be .*got '5 values"),
    "an array": (lambda s, a: OBS, r"step_one must be .*got 'float32\[2\]'"),
    "a state of another shape": (lambda s, a: (OBS, OBS, ONE, NO, NO),
        r"state after a step must be int32\[4\].*got 'float32\[4, 2\]'"),
    "a state of another dtype": (lambda s, a: (s * 1.0, OBS, ONE, NO, NO),
        r"state after a step must be int32\[4\].*got 'float32\[4\]'"),
    "a state of another structure": (lambda s, a: ((s, s), OBS, ONE, NO, NO),
        "state after a step must be .*as `reset` gave it"),
    "an observation of another shape": (lambda s, a: (s, jnp.zeros(3), ONE, NO, NO),
        r"next_obs must be .*got 'float32\[4, 3\]'"),
    "an observation of another dtype": (lambda s, a: (s, jnp.zeros(2, int), ONE, NO, NO),
        r"next_obs must be .*got 'int32\[4, 2\]'"),
    "an observation that is a dict": (lambda s, a: (s, {"x": OBS}, ONE, NO, NO),
                                      "next_obs must be .*got 'dict'"),
    "a reward for each of two": (lambda s, a: (s, OBS, OBS, NO, NO),
                                 r"reward must be float32\[4\].*got 'float32\[4, 2\]'"),
    "a complex reward": (lambda s, a: (s, OBS, 1j * ONE, NO, NO),
                         r"reward must be .*got 'complex64\[4\]'"),
    "an end that is a count": (lambda s, a: (s, OBS, ONE, s, NO),
                               r"terminated must be bool\[4\].*got 'int32\[4\]'"),
    "a reward that is text": (lambda s, a: (s, OBS, "one", NO, NO),
                              "reward of step_one must be an array.*got 'str'"),
    "a state with text": (lambda s, a: ({"x": s, "y": "on"}, OBS, ONE, NO, NO),
        r"state\['y'\] of step_one must be an array.*got 'str'"),
    "a report that is text": (lambda s, a: (s, OBS, ONE, NO, NO, {"won": "yes"}),
        r"info\['won'\] of step_one must be an array.*got 'str'"),
    "a report whose text is the name of a dtype": (lambda s, a: (s, OBS, ONE, NO, NO, {"won": "b"}),
        r"info\['won'\] of step_one must be an array.*got 'str'"),
    "a reward of NumPy's 64 bits": (lambda s, a: (s, OBS, np.int64(2**40), NO, NO),
        "reward of step_one must be from -2147483648 to 2147483647, or a float, got 1099511627776"),
    "a report of Python's 64 bits": (lambda s, a: (s, OBS, ONE, NO, NO, {"won": 2**70}),
        r"info\['won'\] of step_one must be from .*got 1180591620717411303424"),
    "an observation of 64 bits": (lambda s, a: (s, np.array([1, -2**40]), ONE, NO, NO),
        "obs of step_one must be from .*got -1099511627776"),
    "no observation": (lambda s, a: (s, None, ONE, NO, NO), "next_obs must be .*got 'NoneType'"),
    "no reward": (lambda s, a: (s, OBS, None, NO, NO), "reward must be .*got 'NoneType'"),
    "no cut": (lambda s, a: (s, OBS, ONE, NO, None), "truncated must be .*got 'NoneType'"),
    "a cut that is 2": (lambda s, a: (s, OBS, ONE, NO, 2),
                        r"truncated must be bool\[4\].*got 'int32\[4\]'"),
}
BATCHED = {
    "no pair": (lambda s, a: Outcome(jnp.zeros((4, 2)), a, a > 1, a > 1),
        r"transition must be .*Outcome\(next_obs.*got 'Outcome'"),
    "five values": (lambda s, a: (s, jnp.zeros((4, 2)), a, a > 1, a > 1),
                    "transition must be .*got '5 values"),
    "rewards of 64 bits": (
        lambda s, a: (s, Outcome(jnp.zeros((4, 2)), np.full(4, 2**40), a > 1, a > 1)),
        "reward must be from .*got 1099511627776"),
    "a state without a batch": (lambda s, a: (s[0], Outcome(jnp.zeros((4, 2)), a, a > 1, a > 1)),
                                r"state.*int32\[4\]"),
}


@pytest.mark.parametrize(("cls", "found", "message"), [
    *(pytest.param(Mine, *row, id=name) for name, row in SINGLE.items()),
    *(pytest.param(Batched, *row, id=f"batched, {name}") for name, row in BATCHED.items()),
])  # fmt: skip
def test_returned_values_fit_the_spec(cls, found, message):
    with pytest.raises(ConfigError, match=f"mine: .*{message}") as error:
        step(cls(found=found))
    assert "\n" not in str(error.value)


@pytest.mark.parametrize("start", [lambda key: OBS, lambda key: (*START, {})])
def test_a_reset_returns_two_values(start):
    with pytest.raises(ConfigError, match=r"mine: reset_one must be two values \(state, obs\)"):
        step(Mine(start=start))


@pytest.mark.parametrize(("start", "named"),
                         [(("on", OBS), "state"), ((jnp.int32(0), object()), "obs")])
def test_a_reset_returns_arrays(start, named):
    with pytest.raises(ConfigError,
                       match=f"mine: {named} of reset_one must be an array or a number, got '(str|"
                             f"object)'"):
        step(Mine(start=lambda key: start))


@pytest.mark.parametrize("found", [
    lambda s, a: (s, OBS, ONE * float(np.sin(np.asarray(s))), NO, NO),
    lambda s, a: (s, OBS, ONE if a == 1 else 0 * ONE, NO, NO),
    lambda s, a: (s, OBS, ONE * list(range(20))[s], NO, NO),
    lambda s, a: (s, OBS, ONE, NO, bool(s)),
], ids=["numpy", "if", "index", "bool"])  # fmt: skip
@pytest.mark.parametrize("env", [Mine, lambda **found: wrappers.TimeLimit(Mine(**found), 5)],
                         ids=["bare", "wrapped"])
def test_tracing_errors_name_the_function_and_the_remedy(env, found):
    with pytest.raises(jax.errors.JAXTypeError) as error:
        step(env(found=found))
    (note,) = [note for note in error.value.__notes__ if "mine" in note]
    assert "`step_one`" in note and "jnp.where" in note


def test_other_errors_name_the_function():
    with pytest.raises(ZeroDivisionError) as error:
        step(Mine(found=lambda s, a: 1 / 0))
    assert "mine: raised in `step_one`" in error.value.__notes__


@pytest.mark.parametrize("function", ["draw_step", "draw_reset"])
def test_errors_of_draws_name_the_function(function):
    env = type("Draws", (Batched,), {function: lambda self, key, shape, t, *more: 1 / 0})()
    with pytest.raises(ZeroDivisionError) as error:
        env.draw(jax.random.key(0), 2, 4, jnp.int32(0))
    assert f"mine: raised in `{function}`" in error.value.__notes__


@pytest.mark.parametrize("key", [jax.random.key(0), jax.random.PRNGKey(0)], ids=["key", "words"])
@pytest.mark.parametrize(
    "env", [Mine(), jf.make("CartPole-v1"), jf.make("CartPole-v1", time_limit=9)],
    ids=["own", "ours", "wrapped"]
)
def test_a_key_or_a_seed_is_refused_as_noise(env, key):
    with pytest.raises(ConfigError,
                       match=r"reset\(noise\) must be .*got 'a key'.*env\.init\(key, num_envs\)"):
        env.reset(key)
    for seed in (0, np.int64(0), 1.5, "0", None, {}, [0], {"seed": 0}):
        with pytest.raises(ConfigError, match=r"reset\(noise\) must be .*env\.init\(key, "):
            env.reset(seed)
    with pytest.raises(ConfigError, match=r"step\(noise\) must be .*env\.draw.*got 'a key'"):
        env.step(key, None, jnp.zeros(1, jnp.int32))


@pytest.mark.parametrize(
    ("call", "says"),
    [
        (lambda env, key: env.step(key, None, 0, None), r"step\(noise, state, action\), got step"),
        (lambda env, key: env.step(0), r"step\(noise, state, action\), got step\(int\)"),
        (lambda env, key: env.reset(key, None), r"reset\(noise\), got reset\(key<fry>\[\], None"),
        (lambda env, key: env.reset(seed=0), r"reset\(noise\), got reset\(seed=\.\.\.\)"),
        (lambda env, key: env.draw(key), r"draw\(key, num_steps, num_envs, t\), got draw"),
        (lambda env, key: env.init(key), r"init\(key, num_envs\), got init\(key<fry>\[\]\)"),
    ],
)  # fmt: skip
def test_a_call_of_another_librarys_form_is_refused(call, says):
    for env in (Mine(), jf.make("CartPole-v1")):
        with pytest.raises(ConfigError, match=f"{env.spec.name}: .* must be called as {says}"):
            call(env, jax.random.key(0))


def test_a_reset_with_a_parameter_too_many_is_its_authors_fault():
    class Params(Mine):
        def reset(self, noise, params):
            return super().reset(noise)

    with pytest.raises(TypeError, match="params"):
        Params().init(jax.random.key(0), 2)


def test_noise_that_looks_like_a_key_is_taken():
    class Words(Batched):
        def draw_reset(self, key, shape):
            return jax.random.bits(key, shape)

    state, obs = Words().reset(Words().draw_reset(jax.random.key(0), (2,)))
    assert state.shape == (2,) and obs.shape == (2, 2)


@pytest.mark.parametrize(("base", "lacks"), [
    (jf.Env, "reset"), (jf.Env, "transition"), (jf.Env, "spec"), (jf.SingleEnv, "reset_one"),
    (jf.SingleEnv, "step_one"),
])  # fmt: skip
def test_a_class_without_a_needed_method_is_refused(base, lacks):
    whole = Batched if base is jf.Env else Mine
    own = {name: x
           for name, x in vars(whole).items() if name in (
               "spec", "reset", "transition", "reset_one", "step_one")}
    jf.settings(type("Lacking", (base,), own))().check_class()
    del own[lacks]
    with pytest.raises(ConfigError, match=rf"Lacking\.{lacks} must be defined by the class"):
        jf.train(jf.PPO(), jf.settings(type("Lacking", (base,), own))(), 64)


@pytest.mark.parametrize(
    ("spec", "got"), [(lambda self: Mine().spec, "a method; add @property"), (None, "a NoneType")])
def test_a_spec_of_another_type_is_refused(spec, got):
    cls = jf.settings(type("Odd", (Mine,), {"spec": spec}))
    with pytest.raises(ConfigError,
                       match=f"Odd.spec must be a property that returns a jf.EnvSpec, got {got}"):
        jf.train(jf.PPO(), cls(), 64)


def test_lossless_values_are_converted():
    """Rewards of any real dtype, Python's scalars, small integers where the space is float32."""
    found = lambda s, a: (s, jnp.zeros(2, jnp.uint8), 1, s > 9, False, {"seen": s})
    state, obs, outcome = step(Mine(found=found))
    assert (
        state.dtype == jnp.int32
        and obs.dtype == outcome.next_obs.dtype == outcome.reward.dtype == jnp.float32
    )
    assert outcome.terminated.dtype == outcome.truncated.dtype == bool


def test_a_termination_wins_over_a_truncation_in_the_same_step():
    yes = jnp.ones(4, bool)
    both = Batched(found=lambda s, a: (s, Outcome(jnp.zeros((4, 2)), yes * 1.0, yes, yes)))
    single = Mine(found=lambda s, a: (s, OBS, ONE, True, True))
    for env in (both, single, wrappers.TimeLimit(both, 1), wrappers.ActionRepeat(both, 2)):
        def step(key, env=env):
            state, _ = env.init(key, 4)
            noise = jax.tree.map(lambda x: x[0], env.draw(key, 1, 4, jnp.int32(0)))
            return env.step(noise, state, jnp.zeros(4, jnp.int32))[2]

        outcome = jax.jit(step)(jax.random.key(0))
        assert outcome.terminated.all() and not outcome.truncated.any()


@jf.settings
class Taken(jf.SingleEnv):
    """One step, whose reward is the action's first entry as the environment got it; its dtype is in
    `seen`."""

    action: object = jf.setting(jf.Discrete(2), "the space", static=True)
    seen: object = jf.setting(None, "a function of the action", static=True)

    @property
    def spec(self):
        return jf.EnvSpec("taken", jf.Box(0.0, 1.0, (1,)), self.action, 1)

    def reset_one(self, key):
        return jnp.int32(0), jnp.zeros(1)

    def step_one(self, key, state, action):
        if self.seen:
            self.seen(action)
        return (
            state + 1, jnp.zeros(1), action.ravel()[0].astype(jnp.float32), jnp.bool_(True),
            jnp.bool_(False)
        )


@pytest.mark.parametrize(("space", "given", "taken"), [
    (jf.Box(-1.0, 1.0, (2,)), [1.7, -3.0], 1.0), (jf.Box(-1.0, 1.0, (2,)), [0.3, 9.0], 0.3),
    (jf.Box(-np.inf, np.inf, (1,)), [7.5], 7.5), (jf.Box(0.0, np.inf, (1,)), [-2.0], 0.0),
    (jf.Box(-3, 3, (1,), np.int8), [2.7], 2.0), (jf.Box(-3, 3, (1,), np.int8), [-7.0], -3.0),
], ids=str)  # fmt: skip
def test_an_environment_gets_the_action_that_an_agent_returns(space, given, taken):
    """Actions are within the Box and in its dtype, whatever the policy's Gaussian says: in training
    and from `Agent.act`."""
    kinds = []
    env = Taken(action=space, seen=lambda action: kinds.append(action.dtype))
    given = jnp.asarray([given])
    for inner in (env, jf.make(env, sticky_actions=0.0), jf.make(env, reward_scale=1.0)):
        state, _ = inner.init(jax.random.key(0), 1)
        noise = jax.tree.map(lambda x: x[0], inner.draw(jax.random.key(0), 1, 1, jnp.int32(0)))
        assert inner.step(noise, state, given)[2].reward[0] == np.float32(taken)
    assert set(kinds) == {space.dtype}
    assert np.asarray(own_of(space).decode(np.asarray(given))).ravel()[0] == np.float32(taken)


class Undecorated(Taken):
    pass


@pytest.mark.parametrize(("env", "message"), [
    (lambda: Undecorated(), "env must be .*@jf.settings above it.*got 'Undecorated'"),
    (lambda: Taken(action=gymnasium.spaces.Discrete(2)),
        "taken: EnvSpec.action must be .*got Discrete.*Spaces of gymnasium are for env"),
    (lambda: Taken(action=(2,)), r"taken: EnvSpec.action must be .*got \(2,\)"),
    (lambda: Taken(action=jf.Dict.of(a=jf.Discrete(2))),
     "no algorithm takes these: make them one MultiDiscrete or one Box"),
])  # fmt: skip
def test_unusable_specs_are_refused(env, message):
    with pytest.raises(ConfigError, match=message):
        jf.train(jf.PPO(), env(), 64)


@pytest.mark.parametrize("limit", [0, -1, 10.0, True])
def test_a_time_limit_is_a_positive_integer(limit):
    with pytest.raises(ConfigError, match="mine: max_episode_steps"):
        jf.EnvSpec("mine", jf.Discrete(2), jf.Discrete(2), limit)


@pytest.mark.parametrize(("algo", "space", "names"), [
    (jf.DQN, jf.Box(-1.0, 1.0, (2,)), "ppo and sac"),
    (jf.DQN, jf.Box(-3, 3, (2,), np.int8), "ppo without squash, ars and es"),
    (jf.DQN, jf.Box(-np.inf, 1.0, (2,)), "ppo without squash, ars and es"),
    (jf.SAC, jf.MultiDiscrete((2, 3)),
        "ppo, ars and es"),
])  # fmt: skip
def test_the_algorithms_an_error_suggests_accept_the_actions(algo, space, names):
    spec = Taken(action=space).spec
    with pytest.raises(ConfigError, match=f"; {names} take these"):
        algo().bind(spec)
    for name in re.findall("ppo|sac|ars|es", names):
        algorithm_class(name)().bind(spec)


@pytest.mark.parametrize(("space", "value", "says"), [
    (jf.MultiDiscrete((3, 2)), [[0, 2]], r"action\[0, 1\] must be from 0 to 1, got 2"),
    (jf.MultiDiscrete((3, 2)), [[2, 1], [3, 0]], r"action\[1, 0\] must be from 0 to 2, got 3"),
    (jf.Discrete(2), [1, -1], "action must be from 0 to 1, got -1"),
])  # fmt: skip
def test_an_action_outside_is_named_with_the_limit_of_its_entry(space, value, says):
    spec = jf.EnvSpec("chosen", jf.Box(0.0, 1.0, (1,)), space, 3)
    with pytest.raises(jf.ConfigError, match=says):
        action_checks.action(spec, np.array(value))
