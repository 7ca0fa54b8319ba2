"""Values of environments on the host: converted if no number changes, else refused with their
name."""

from __future__ import annotations

import math
import pickle

import gymnasium
import jax.numpy as jnp
import numpy as np
import pytest
from gymnasium import spaces as theirs

import jaxrl_fast as jf
from helpers import counters as tools
from jaxrl_fast.envs.exact import Misfit, exact
from jaxrl_fast.envs.host import api as host
from jaxrl_fast.envs.host.gymnasium_spaces import own_form
from jaxrl_fast.envs.host.gymnasium_vector import GymnasiumVector
from jaxrl_fast.errors import ConfigError

SAME = [
    (np.array([2.0]), np.int32), (np.array([2**31 - 1]), np.int32), (np.array([200]), np.uint8),
    (np.array([0, 1]), bool), (np.array([True]), np.float32), (np.array([2**24]), np.float32),
    (np.array([2**40], np.uint64), np.int64), ([1, 2], np.int8),
]  # fmt: skip
LOST = [
    (np.array([2**32]), np.int32), (np.array([2**63], np.uint64), np.int64),
    (np.array([-1]), np.uint8), (np.array([256]), np.uint8), (np.array([0.5]), np.int32),
    (np.array([np.nan]), np.int32), (np.array([1e30]), np.int64), (np.array([2]), bool),
    (np.array([0.5]), bool), (np.array([2**24 + 1]), np.float32), (np.array([1j]), np.float32),
    (np.array(["1"]), np.float32), (None, bool),
]  # fmt: skip
dtypes = lambda x: np.dtype(x).name if isinstance(x, type) else None


@pytest.mark.parametrize(("values", "dtype"), SAME, ids=dtypes)
def test_numbers_keep_their_value(values, dtype):
    found = exact(values, dtype, "x")
    assert found.dtype == dtype and (found == np.asarray(values)).all()


@pytest.mark.parametrize(("values", "dtype"), LOST, ids=dtypes)
def test_inexact_conversions_are_refused(values, dtype):
    with pytest.raises(Misfit, match=r"^x must be .*, got ") as error:
        exact(np.append(np.zeros(3, np.asarray(values).dtype), values), dtype, "x")
    again = pickle.loads(pickle.dumps(error.value))
    # as Gymnasium hands it from process to process
    assert str(type(again)(again)) == str(error.value)


INTEGERS = [0,
            *(sign * (2**power + more) for power in (7, 8, 11, 15, 16, 24, 31, 32, 53, 62, 63, 64)
                 for more in (-2, -1, 0, 1, 2) for sign in (1, -1))]  # fmt: skip
FLOATS = [0.5, -0.5, np.nan, np.inf, -np.inf, 1e-300, 1e300, np.nextafter(2.0**63, 0),
          np.nextafter(2.0**64, 0)]
DTYPES = [np.dtype(x)
          for x in ("?", "i1", "u1", "i2", "u2", "i4", "u4", "i8", "u8", "f2", "f4", "f8")]


def holds(dtype, number):
    """Whether one of `dtype` is this number of Python's, an integer where `dtype` is floating
    point."""
    if dtype.kind == "b":
        return number in (0, 1)
    if dtype.kind == "f":
        odd = abs(number) // (number & -number or 1)
        return abs(number) <= int(np.finfo(dtype).max) and odd < 2 ** (np.finfo(dtype).nmant + 1)
    return (
        math.isfinite(number) and int(number) == number
        and np.iinfo(dtype).min <= number <= np.iinfo(dtype).max
    )


@pytest.mark.parametrize("source", DTYPES, ids=str)
def test_a_number_is_converted_only_to_itself(source):
    """Every dtype to every other at the limits of each, against Python's numbers."""
    with np.errstate(over="ignore"):
        some = [x
                for x in INTEGERS
                if source.kind not in "iu" or np.iinfo(source).min <= x <= np.iinfo(source).max]
        values = np.array(some + FLOATS * (source.kind == "f"), object).astype(source)
    for dtype in DTYPES:
        if source == dtype or source.kind == dtype.kind == "f":
            continue
        fits = [holds(dtype, x.item()) for x in values]
        assert any(fits)
        for x, fit in zip(values, fits, strict=True):
            if fit:
                assert exact(x[None], dtype, "x")[0].item() == x.item()
            else:
                with pytest.raises(Misfit):
                    exact(x[None], dtype, "x")


def test_floats_are_rounded_and_fitting_arrays_are_not_copied():
    assert exact(np.array([0.1]), np.float32, "x") == np.float32(0.1)
    x = np.zeros(2, np.float32)
    assert exact(x, np.float32, "x") is x


WRONG = [
    ({"obs": 2**32},
     r"observations\['a'\] must be integers from -2147483648 to 2147483647 .*got int64 4294967296"),
    ({"obs": 0.5}, r"observations\['a'\] must be integers from .*got float64 0.5"),
    ({"obs": float("nan")}, r"observations\['a'\] must be integers from .*got float64 nan"),
    ({"terminated": 2}, "terminated must be True or False, got int64 2"),
    ({"truncated": 0.5}, "truncated must be True or False, got float64 0.5"),
    ({"reward": "1"}, "rewards must be numbers that float64 holds, got <U1 1"),
    ({"reward": (1.0, 2.0)}, r"rewards must be one value a step, got an array of shape \[2\]"),
]


def stepped(env):
    """One step of two environments."""
    vector = env.open(2, 0)
    try:
        vector.reset()
        vector.send(np.zeros(2, int))
        return vector.receive()
    finally:
        vector.close()


@pytest.mark.filterwarnings("ignore:.*devices hold")
@pytest.mark.parametrize(("vectorization", "says", "message"), [
    *(("sync", *row) for row in WRONG), ("async", *WRONG[0]), ("async", *WRONG[3]),
])  # fmt: skip
def test_lossy_values_are_refused_with_the_environment_s_name(vectorization, says, message):
    with pytest.raises(host.HostError, match=f"^Says: {message}$") as error:
        stepped(jf.make(tools.Says, vectorization=vectorization, **says))
    assert isinstance(error.value, ConfigError)


def test_lossless_values_are_converted():
    with pytest.warns(UserWarning,
                      match="Says: observations of int64 may reach 1099511627776, devices hold "
                            "-2147483648 to"):
        env = jf.make(tools.Says, obs=3.0, reward=True, terminated=1, truncated=True)
        step = stepped(env)
    found = step.next_obs["a"], step.reward, step.terminated, step.truncated
    assert [x.dtype for x in found] == [np.int32, np.float32, bool, bool]
    assert [x.ravel().tolist() for x in found] == [[3, 3], [1, 1], [True, True], [False, False]]


@pytest.mark.parametrize(("space", "value", "most"), [
    (theirs.Discrete(5), 5, 4), (theirs.Discrete(5, start=2**40), 2**40 + 5, 2**40 + 4),
    (theirs.Discrete(5), -1, 4),
    (theirs.MultiDiscrete([2, 3]), [2, 2], 1), (theirs.MultiBinary(2), [0, 2], 1),
], ids=str)  # fmt: skip
def test_integers_outside_a_space_are_refused(space, value, most):
    with pytest.raises(Misfit, match=f"observations must be integers from .* to {most}, got"):
        own_form(space).encode(np.array([value]))


class Forms(gymnasium.Env):
    """Returns what it is told to, whatever its form."""

    action_space = theirs.Discrete(2)

    def __init__(self, space, reset, step=None):
        self.observation_space, self.found = space, (reset, step)

    def reset(self, *, seed=None, options=None):
        return self.found[0]

    def step(self, action):
        return self.found[1]


ONE, TWO = theirs.Discrete(2), theirs.Dict(a=theirs.Discrete(2), b=theirs.Discrete(2))


@pytest.mark.parametrize(("space", "reset", "step", "message"), [
    (theirs.Box(-1, 1, (2,)), np.zeros(2, np.float32), None,
     r"the result of reset must be two values .*, got ndarray"),
    (ONE, (0, None), None,
     "the result of reset must be .*info a dict, got 2 values, the last NoneType"),
    (ONE, (0, {}), (0, 1.0, True, {}),
     "the result of step must be five values .*got 4 values, the last dict"),
    (ONE, (0, {}), (0, 1.0, True, False, None),
     "the result of step must be .*got 5 values, the last NoneType"),
    (ONE, (0, {}), None, "the result of step must be .*got NoneType"),
    (TWO, ({"a": 0}, {}), None, "observations must be a dict with a, b, got a dict with a"),
    (TWO, (np.zeros(2), {}), None, "observations must be a dict with a, b, got ndarray"),
    (theirs.Dict(x=theirs.Tuple((ONE, ONE))), ({"x": (0,)}, {}), None,
     r"observations\['x'\] must be a tuple of 2 values"),
], ids=str)  # fmt: skip
def test_other_forms_are_refused_with_the_expected_form(space, reset, step, message):
    with pytest.raises(host.HostError, match=f"^Forms: {message}"):
        stepped(jf.make(lambda: Forms(space, reset, step)))


class Ints(tools.Counters):
    """A vector of its own, whose ends are integers."""

    def step(self, action):
        obs, reward, terminated, truncated, info = super().step(action)
        return obs, reward.astype(bool), terminated * 2, truncated, info


def test_a_vector_with_integer_ends_is_refused():
    vector = GymnasiumVector(Ints(2), 0, "ints")
    vector.reset()
    with pytest.raises(host.HostMisfit,
                       match="^ints: terminated must be True or False, got int64 2$"):
        for _ in range(4):
            vector.send(np.zeros(2, int))
            vector.receive()


def test_an_agent_refuses_values_outside_its_space():
    """An agent refuses them as an environment does; a trace knows only the dtype of JAX's arrays,
    and values outside of a trace are compared."""
    own = own_form(theirs.Box(0, 255, (2,), np.uint8))
    for values in (np.array([3, 300]), jnp.array([3, 300])):
        with pytest.raises(ConfigError, match="observation must be integers from 0 to 255"):
            own.read(values)
    assert own.read(jnp.array([3, 200]))[0].dtype == np.uint8
