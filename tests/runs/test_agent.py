"""A trained agent by itself: the environment's own spaces in and out, traced, exported, in another
process."""

from __future__ import annotations

import pickle
from typing import Any

import gymnasium
import jax
import jax.numpy as jnp
import numpy as np
import pytest
from gymnasium import spaces as theirs
from gymnasium.vector.utils import batch_space, concatenate, create_empty_array
from hypothesis import given, settings
from hypothesis import strategies as st

import jaxrl_fast as jf
from helpers import fresh
from helpers.matrix import family
from jaxrl_fast import spaces
from jaxrl_fast.engine.config import RunConfig
from jaxrl_fast.envs.host.api import HostEnv
from jaxrl_fast.envs.host.gymnasium_spaces import own_form, spec_of
from jaxrl_fast.envs.own_spaces import own_of
from jaxrl_fast.ops import distributions

FLOATS = ("float16", "float32", "float64")
INTEGERS = ("int8", "uint8", "int16", "int32", "uint32", "int64")


def top(dtype: np.dtype) -> int:
    """The largest integer that devices hold too: an observation beyond it is refused."""
    return 2**31 - 1 if dtype == np.int64 else np.iinfo(dtype).max


@jf.settings
class Wild(jf.Algorithm):
    """Actions as a policy may have them: beyond all bounds where numbers have any, and another for
    each call."""

    name = "wild"
    action_spaces = (jf.Discrete, jf.MultiDiscrete, jf.Box)
    num_envs: int = 1
    num_steps: int = 1

    def bind(self, spec):
        return Wild(spec=spec)

    def draw(self, key, num_steps, num_envs):
        return distributions.draw_noise(key, self.spec.action, (num_steps, num_envs))

    def act(self, agent, carry, obs, noise, clock, mode):
        like = spaces.zeros(self.spec.observation, (jax.tree.leaves(obs)[0].shape[0],))
        assert jax.tree.map(lambda x: (x.shape, x.dtype), obs) == jax.tree.map(
            lambda x: (x.shape, x.dtype), like)
        if isinstance(self.spec.action, jf.Box):
            return carry, (1e3 * noise).reshape(noise.shape[:1] + self.spec.action.shape), ()
        return carry, distributions.random_action(noise, self.spec.action), ()


class Elsewhere(HostEnv):
    """Two spaces of Gymnasium's, and nothing to play."""

    def __init__(self, observation: theirs.Space, action: theirs.Space):
        object.__setattr__(self, "stack", 1)
        self.__dict__["_found"] = spec_of("elsewhere", observation, action, None)


def wild(observation: theirs.Space, action: theirs.Space) -> jf.Agent:
    env = Elsewhere(observation, action)
    return jf.Agent(Wild().bind(env.spec), env, RunConfig(), {"params": jnp.zeros(1)})


def shapes(least: int = 0) -> Any:
    """Draw one of a few shapes of each rank: each new one compiles programs of its own."""
    few = [(), (1,), (3,), (2, 3), (1, 2, 2)]
    return st.sampled_from([shape for shape in few if len(shape) >= least])


@st.composite
def boxes(draw: Any) -> theirs.Box:
    dtype, shape = np.dtype(draw(st.sampled_from(FLOATS + INTEGERS))), draw(shapes())
    limits = (-1e3, 1e3) if dtype.kind == "f" else (float(np.iinfo(dtype).min), float(top(dtype)))
    within = st.floats(max(limits[0], -1e3), min(limits[1], 1e3), width=16)
    ends = [np.array([draw(within) for _ in range(int(np.prod(shape)))]).reshape(shape)
            for _ in range(2)]
    low, high = np.minimum(*ends), np.maximum(*ends)
    if draw(st.booleans()):  # open, or as wide as the dtype is
        high = np.full(shape, np.inf if dtype.kind == "f" else top(dtype))
    return theirs.Box(low.astype(dtype), high.astype(dtype), shape, dtype)


starts = st.integers(-5, 5)
discretes = st.builds(lambda n, start: theirs.Discrete(n, start=start), st.integers(1, 4), starts)
multi_discretes = st.builds(
    lambda shape, n, start: theirs.MultiDiscrete(np.full(shape, n), start=np.full(shape, start)),
    shapes(1), st.integers(1, 4), starts,
)  # fmt: skip
multi_binaries = st.one_of(st.integers(1, 4), shapes(1)).map(theirs.MultiBinary)
actions = st.one_of(boxes(), discretes, multi_discretes, multi_binaries)
pictures = st.builds(
    lambda channels, first: theirs.Box(0, 255, (channels, 16, 17) if first else (16, 17, channels),
                                       np.uint8),
    st.integers(1, 3), st.booleans(),
)  # fmt: skip
leaves = st.one_of(boxes(), discretes, multi_discretes, multi_binaries, pictures,
                   st.just(theirs.Box(0, 255, (16, 17),
    np.uint8)))
observations = st.recursive(
    leaves,
    lambda inner: st.one_of(
        st.dictionaries(st.sampled_from("abc"), inner, min_size=1, max_size=2).map(theirs.Dict),
        st.lists(inner, min_size=1, max_size=2).map(theirs.Tuple),
    ),
    max_leaves=3,
)


@pytest.mark.matrix("test_traced_actions_are_in_the_spaces")
@settings(max_examples=40, deadline=None)
@given(observations, actions, st.integers(0, 2**16))
def test_actions_are_in_the_environments_own_space(observation, action, seed):
    """Actions of one observation and of a vector's, for any spaces."""
    agent, batched = wild(observation, action), batch_space(action, 3)
    observation.seed(seed)
    with jax.disable_jit():
        one = agent.act(observation.sample())
        assert action.contains(one), (action, one)
        samples = [observation.sample() for _ in range(3)]
        many = agent.act(concatenate(observation, samples, create_empty_array(observation, 3)))
    assert batched.contains(many), (batched, many)


@settings(max_examples=10, deadline=None)
@given(observations, actions)
def test_traced_actions_are_in_the_spaces(observation, action):
    """Actions in `jit` equal those outside, except for widths that JAX lacks."""
    agent, obs = wild(observation, action), observation.sample()
    want = np.asarray(agent.act(obs))
    form = jax.eval_shape(agent.act,
                          jax.tree.map(
                              lambda x: jax.ShapeDtypeStruct(np.shape(x), np.asarray(x).dtype), obs
                          ))
    assert form.shape == want.shape and form.dtype == jax.dtypes.canonicalize_dtype(want.dtype)


@st.composite
def edges(draw: Any) -> tuple[theirs.Box, np.ndarray]:
    """A Box with bounds near the limits of its dtype, and actions that a policy may have for it,
    [B, n]."""
    dtype = np.dtype(draw(st.sampled_from((*FLOATS, *INTEGERS, "uint64"))))
    limits = np.finfo(dtype) if dtype.kind == "f" else np.iinfo(dtype)
    some = [limits.min, limits.max, 0, 1,
            *((-np.inf, np.inf, 0.1, 0.3) if dtype.kind == "f" else ())]
    pairs = st.sampled_from([(a, b) for a in some for b in some if a < b])
    low, high = zip(*draw(st.lists(pairs, min_size=1, max_size=3)), strict=True)
    far = float(np.finfo(np.float32).max)
    action = st.floats(-far, far, width=32) | st.sampled_from(
        [0.0, 0.1, 0.3, 2.0**31, 2.0**63, 2.0**64, -(2.0**31), -(2.0**63)])
    row = st.lists(action, min_size=len(low), max_size=len(low))
    rows = draw(st.sampled_from([1, 3]))
    actions = draw(st.lists(row, min_size=rows, max_size=rows))
    return (
        theirs.Box(np.array(low, dtype), np.array(high, dtype), dtype=dtype),
        np.array(actions, np.float32)
    )


@pytest.mark.matrix("test_traced_actions_are_in_the_spaces")
@settings(max_examples=200, deadline=None)
@given(edges())
def test_actions_at_the_limits_of_a_dtype_are_finite_and_within(case):
    """NumPy's and JAX's values (32 bits): numbers, and integers that a policy may choose."""
    space, actions = case
    own = own_form(space)
    whole = np.clip(actions.astype(np.float64), -(2.0**31), 2.0**31 - 1).astype(np.int32)
    short = jax.dtypes.canonicalize_dtype(space.dtype)
    limits = (np.finfo if short.kind == "f" else np.iinfo)(short)
    low, high = (bound.astype(np.float64) for bound in (space.low, space.high))
    # whether 32 bits have a number for every entry
    held = ((low <= limits.max) & (high >= limits.min)).all()
    for values in (actions, whole, *((jnp.asarray(actions), jnp.asarray(whole)) if held else ())):
        found = np.asarray(own.decode(values))
        for x in found:
            assert np.isfinite(x).all() and space.contains(
                x.astype(space.dtype)), (space, values, x)
    assert own.decode(actions).dtype == space.dtype


@pytest.mark.parametrize("name", family(
    ["Pendulum-v1", "probe/multi-discrete", "probe/dict", "CartPole-v1",
     "MountainCarContinuous-v0"], 3))
def test_actions_of_our_own_environments_are_in_their_spaces(name):
    env = jf.make(name)
    agent = jf.Agent(Wild().bind(env.spec), env, RunConfig(), {"params": jnp.zeros(1)})
    outside = jf.to_gymnasium(env)
    for seed in range(3):
        assert outside.action_space.contains(agent.act(outside.reset(seed=seed)[0]))


def test_floats_of_eight_and_sixteen_bits_are_numbers():
    """Observations and actions: NumPy does not know bfloat16, and float8, as floating point."""
    for kind in (jnp.bfloat16, jnp.float8_e4m3fn, np.float16, np.float32):
        own = own_of(jf.Box(-1.0, 1.0, (3,), kind))
        for values in (np.full(3, 0.5, kind), jnp.full((2, 3), 0.5, kind),
                       np.full(3, 0.5, np.float32)):
            seen, single, _ = own.read(values)
            assert seen.dtype == kind and single == (values.ndim == 1) and (
                np.asarray(seen, np.float32) == 0.5).all()
        assert own_of(jf.Box(-1.0, 1.0, (3,))).read(np.full(3, 0.5, kind))[0].dtype == np.float32
        done = own.decode(np.full((1, 3), 9.0, np.float32))
        assert done.dtype == kind and (done.astype(np.float32) == 1.0).all()
    with pytest.raises(jf.ConfigError, match="observation must be uint8 numbers"):
        own_of(jf.Box(0, 255, (3,), np.uint8)).read(np.full(3, 0.5, jnp.bfloat16))
    with pytest.raises(jf.ConfigError, match="a dtype of real numbers"):
        jf.Box(0, 7, (3,), jnp.int4)


def test_an_observation_of_another_kind_is_one_line():
    space = theirs.Dict(a=theirs.Box(-1, 1, (4,)), b=theirs.Box(0, 255, (8, 9), np.uint8))
    agent, a, b = (
        wild(space, theirs.Discrete(2)), np.zeros(4, np.float32), np.zeros((8, 9), np.uint8))
    for obs, message in (
        (a, "observation must be a dict with a, b, got ndarray"),
        ({"a": a}, "observation must be a dict with a, b, got a dict with a"),
        ({"a": a[:3], "b": b}, r"observation\['a'\] must be of shape \(4,\).* got shape \(3,\)"),
        ({"a": a, "b": b[None]}, "observation must be one observation or a batch"),
        ({"a": a, "b": b / 255},
         r"observation\['b'\] must be uint8 numbers of shape \(8, 9\), got float64 \(8, 9\)"),
        ({"a": a.astype(str), "b": b}, r"observation\['a'\] must be float32 numbers"),
        ({"a": [[0, 0], [0]], "b": b},
         r"observation\['a'\] must be float32 numbers of shape \(4,\), got a list whose parts"),
        ({"a": np.zeros((3, 4), np.float32), "b": np.zeros((2, 8, 9), np.uint8)},
         "observation must be a batch of one size in all entries, got batches of 3, 2"),
        ({"a": a[None][:0], "b": b[None][:0]},
         r"observation\['a'\] must be one observation, or a batch of at least one"),
    ):
        with pytest.raises(jf.ConfigError, match=message) as caught:
            agent.act(obs)
        assert "\n" not in str(caught.value)


@pytest.fixture(scope="module")
def stacked() -> jf.Agent:
    """PPO as it is initialized, with two frames of Pendulum."""
    env = jf.make("Pendulum-v1", stack=2)
    algo = jf.PPO(hidden=(8,), normalize_observations=True).bind(env.spec)
    return jf.Agent(algo, env, RunConfig(), jax.jit(algo.init)(jax.random.key(0)))


def test_an_integer_outside_of_its_space_is_a_warning():
    agent = wild(theirs.Discrete(2, start=7), theirs.Discrete(3, start=5))
    with pytest.warns(UserWarning,
                      match="observation must be integers from 7 to 8, got 0") as found:
        action = agent.act(np.int32(0))
    assert 5 <= int(action) <= 7 and found[0].filename == __file__


def test_a_non_finite_observation_gives_no_action(stacked):
    stacked.reset()
    with pytest.raises(jf.ConfigError, match="observation must be finite, got nan in it"):
        stacked.act(np.array([0.5, np.nan, 1.0], np.float32))
    assert np.isfinite(stacked.act(np.ones(3, np.float32)))  # and it is not remembered
    stacked.reset()


FRAMES = np.random.default_rng(0).normal(size=(5, 2, 3)).astype(np.float32)  # [T, B, 3]
STACKS = np.concatenate([np.concatenate([FRAMES[:1], FRAMES[:-1]]), FRAMES], axis=-1)


def test_frames_are_put_behind_each_other(stacked):
    want = np.stack([stacked.act(x) for x in STACKS])
    stacked.reset()
    np.testing.assert_array_equal(np.stack([stacked.act(x) for x in FRAMES]), want)
    stacked.reset(np.array([True, False]))  # the first one's episode ended
    again = stacked.act(FRAMES[0])
    fresh = stacked.act(np.stack([STACKS[0, 0], np.concatenate([FRAMES[4, 1], FRAMES[0, 1]])]))
    np.testing.assert_array_equal(again, fresh)


def test_a_step_is_pure(stacked):
    want = np.stack([stacked.act(x) for x in STACKS])
    _, found = jax.lax.scan(stacked.step, stacked.init_carry(2), FRAMES)
    np.testing.assert_array_equal(found, want)
    carry, one = stacked.step(stacked.init_carry(), FRAMES[0, 0])
    assert (
        one.shape == (1,) and (np.asarray(one) == want[0, 0]).all()
        and carry.begun.tolist() == [True]
    )
    restarted = stacked.restart(stacked.step(stacked.init_carry(2), FRAMES[3])[0],
                                np.array([True, True]))
    np.testing.assert_array_equal(stacked.step(restarted, FRAMES[0])[1], want[0])
    with pytest.raises(jf.ConfigError, match=r"carry .*init_carry\(2\)"):
        stacked.step(stacked.init_carry(3), FRAMES[0])
    with pytest.raises(jf.ConfigError, match="ended must be bool"):
        stacked.restart(stacked.init_carry(2), [1, 0])


def test_a_traced_agent_acts_alike(stacked):
    want = stacked.act(STACKS[0])
    np.testing.assert_array_equal(jax.jit(stacked.act)(STACKS[0]), want)
    np.testing.assert_array_equal(jax.vmap(stacked.act)(STACKS[0]), want)
    with pytest.raises(jf.ConfigError, match="observation must be a stack of 2 frames"):
        jax.jit(stacked.act)(FRAMES[0])
    key = jax.random.key(1)
    sampled = lambda obs, key: stacked.act(obs, "sample", key)
    np.testing.assert_array_equal(jax.jit(sampled)(STACKS[0], key), sampled(STACKS[0], key))
    np.testing.assert_array_equal(sampled(STACKS[0], jax.random.PRNGKey(1)),
                                  sampled(STACKS[0], key))
    with pytest.raises(jf.ConfigError, match="key must be .*got 1$"):
        sampled(STACKS[0], 1)


ELSEWHERE = """
import pickle, sys
import jax, numpy as np
with open(sys.argv[1], "rb") as file:
    agent, exported, obs, want = pickle.load(file)
np.testing.assert_array_equal(agent.act(obs), want)
np.testing.assert_array_equal(jax.export.deserialize(exported).call(obs), want)
assert (
    agent._env is None and agent.evaluate(2, seed=3).ret.shape == (2,) and agent.env.spec.stack == 2
)
"""


def test_an_agent_goes_to_another_process(stacked, tmp_path):
    """Pickled, and as a function that needs none of our code, of a batch of any size."""
    sizes = jax.ShapeDtypeStruct(jax.export.symbolic_shape("b, 6"), np.float32)
    exported = jax.export.export(jax.jit(stacked.act))(sizes).serialize()
    file = tmp_path / "agent.pickle"
    file.write_bytes(pickle.dumps((stacked, exported, STACKS[0], stacked.act(STACKS[0]))))
    fresh.check(ELSEWHERE, file)
    with pytest.raises(jf.ConfigError, match="mode must be .*got 'sample'"):
        jax.export.export(jax.jit(lambda obs: stacked.act(obs, "sample", jax.random.key(0))))(sizes)


@pytest.mark.parametrize("seed", [-1, 2**32, True, 1.0, "1", None])
def test_seeds_are_checked_everywhere(seed, stacked):
    calls = [
        lambda: stacked.evaluate(1, seed=seed),
        lambda: jf.train(jf.PPO(), stacked.env, 1, seed=seed),
        lambda: jf.sweep(jf.PPO(), stacked.env, 1, grid={"algo.discount": [0.9]}, seed=seed,
                         out="never"),
    ]  # fmt: skip
    if seed not in (None, 2**32):  # Gymnasium's own range is wider
        calls.append(lambda: jf.to_gymnasium(stacked.env).reset(seed=seed))
    for call in calls:
        with pytest.raises(jf.ConfigError, match="seed"):
            call()


@pytest.mark.parametrize("number", [0, -1, 1.5, "1", True])
def test_the_number_of_new_episodes_is_checked(number, stacked):
    with pytest.raises(jf.ConfigError, match="num_envs must be an integer from 1"):
        stacked.init_carry(number)


def test_keys_are_checked():
    env, algo = jf.make("CartPole-v1"), jf.PPO()
    for call in (lambda: jf.make_train(algo, env, 64)(0),
                 lambda: jf.evaluate(env, algo, None, np.zeros(2))):
        with pytest.raises(jf.ConfigError, match=r"key must be a jax.random.key"):
            call()


@pytest.mark.matrix("test_traced_actions_are_in_the_spaces")
def test_a_vector_accepts_an_agents_actions():
    """The real thing: Gymnasium's own vector, and every action in its space."""
    env = jf.make("gym:Blackjack-v1")
    algo = jf.DQN(hidden=(8,)).bind(env.spec)
    agent = jf.Agent(algo, env, RunConfig(), algo.init(jax.random.key(0)))
    vector = gymnasium.make_vec("Blackjack-v1", 3)
    obs, _ = vector.reset(seed=0)
    for _ in range(3):
        action = agent.act(obs)
        assert vector.action_space.contains(action)
        obs = vector.step(action)[0]
    single = gymnasium.make("Blackjack-v1")
    assert single.action_space.contains(agent.act(single.reset(seed=0)[0]))


@pytest.mark.parametrize("dtype", INTEGERS)
@pytest.mark.parametrize("low", [0, 1])
def test_nan_actions_decode_outside_the_space(dtype, low):
    """Outside a program `act` refuses it; there it must not become an action by the conversion."""
    space = theirs.Box(low, 9, (2,), dtype)
    decode = jax.jit(own_form(space).decode)
    got = np.asarray(decode(jnp.array([[jnp.nan, 3.0], [100.0, jnp.nan]])))
    assert (got[0, 1], got[1, 0]) == (3, 9)
    assert not low <= got[0, 0] <= 9 and not low <= got[1, 1] <= 9
