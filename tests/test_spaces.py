"""Spaces: bounds, samples, and what makes them usable as static parts of a program."""

from __future__ import annotations

import jax
import jax.numpy as jnp
import numpy as np
import pytest

from jaxrl_fast.errors import ConfigError
from jaxrl_fast.ops import distributions
from jaxrl_fast.spaces import Box, Dict, Discrete, MultiDiscrete, zeros


def test_discrete_and_multi_discrete_samples_cover_their_range(key):
    x = Discrete(5).sample(key, (200, 2))
    assert x.dtype == jnp.int32 and x.shape == (200, 2) and set(np.unique(x)) == set(range(5))
    space = MultiDiscrete((2, 5))
    x = np.asarray(space.sample(key, (300,)))
    assert space.shape == (2,) and x.shape == (300, 2) and x.dtype == np.int32
    assert set(x[:, 0]) == {0, 1} and set(x[:, 1]) == set(range(5))


def test_box_normalises_its_arguments():
    box = Box(np.array([-1, -1]), (1, 2), [2], "float32")
    assert box == Box(-1.0, (1.0, 2.0), (2,)) and hash(box) == hash(Box(-1.0, (1.0, 2.0), (2,)))
    low, high = box.bounds()
    np.testing.assert_array_equal(low, [-1, -1])
    np.testing.assert_array_equal(high, [1, 2])
    assert low.dtype == np.float32 and box.shape == (2,) and box.dtype == jnp.dtype("float32")
    assert Box(0, 1, ()).bounds()[0].shape == ()
    image = Box(np.zeros((2, 3)), np.arange(6).reshape(2, 3) + 1.0, (2, 3))
    np.testing.assert_array_equal(image.bounds()[1], np.arange(6).reshape(2, 3) + 1)


@pytest.mark.parametrize(("space", "message"), [
    (lambda: Discrete(0), "Discrete: n must be .*got 0"),
    (lambda: Discrete(2.0), "Discrete: n must be .*got 2.0"),
    (lambda: Discrete(True), "Discrete: n"), (lambda: MultiDiscrete(()), "MultiDiscrete: nvec"),
    (lambda: MultiDiscrete(3), "MultiDiscrete: nvec must be .*got 3"),
    (lambda: MultiDiscrete((2, 0)), "MultiDiscrete: nvec"),
    (lambda: MultiDiscrete(np.ones((2, 2), int)), "MultiDiscrete: nvec"),
    (lambda: Box(1, -1, (2,)), "Box: low must be .*got 1.0"),
    (lambda: Box((0, 2), (1, 1), (2,)), "Box: low"),
    (lambda: Box(np.nan, 1, (2,)), "Box: low must be .*got nan"),
    (lambda: Box(0, (1, np.nan), (2,)), "Box: high"),
    (lambda: Box("a", 1, (2,)), "Box: low must be .*got 'a'"),
    (lambda: Box((0, 0, 0), 1, (2,)), "Box: low"),
    (lambda: Box(-1, 1, 2), "Box: shape must be .*got 2"), (lambda: Box(-1, 1, (0,)), "Box: shape"),
    (lambda: Box(-1, 1, (2.0,)), "Box: shape"),
    (lambda: Box(-1, 1, (2,), "flaot32"), "Box: dtype must be .*got 'flaot32'"),
    (lambda: Box(-1, 1, (2,), "complex64"), "Box: dtype"), (lambda: Dict.of(), "Dict must be "),
    (lambda: Dict({}), "Dict must be "), (lambda: Dict.of(a=3), "Dict: a must be .*got 3"),
    (lambda: Dict({3: Discrete(2)}), "Dict: 3"),
])  # fmt: skip
def test_bad_spaces_are_refused(space, message):
    with pytest.raises(ConfigError, match=f"^{message}"):
        space()


def test_spaces_accept_equivalent_arguments():
    assert (
        MultiDiscrete([2, 3]) == MultiDiscrete(np.array([2, 3])) == MultiDiscrete((2, 3)) and hash(
            MultiDiscrete([2, 3]))
    )
    assert Dict({"b": Discrete(2), "a": Discrete(3)}) == Dict.of(a=Discrete(3), b=Discrete(2))
    assert Discrete(np.int64(3)) == Discrete(3) and type(Discrete(np.int64(3)).n) is int


def test_a_box_is_bounded_by_finite_numbers():
    assert Box(-1, 1, (2,)).bounded and not Box(-np.inf, 1, (2,)).bounded
    assert not Box(-3.4e38, 3.4e38, (1,)).bounded  # what Gymnasium writes for "no bound"
    assert not Box((-1.0, -np.inf), (1.0, np.inf), (2,)).bounded


def test_box_samples(key):
    box = Box((-1.0, 0.0), (1.0, 10.0), (2,))
    x = np.asarray(box.sample(key, (500,)))
    assert (
        x.shape == (500, 2) and (x >= [-1, 0]).all() and (x <= [1, 10]).all() and x[:, 1].max() > 9)
    pixels = np.asarray(Box(0, 3, (4, 4, 1), jnp.uint8).sample(key, (50,)))
    assert pixels.dtype == np.uint8 and set(np.unique(pixels)) == {0, 1, 2, 3}
    flags = np.asarray(Box(0, 1, (8,), jnp.bool_).sample(key, (100,)))
    assert flags.dtype == bool and 0.4 < flags.mean() < 0.6
    assert np.isfinite(Box(-np.inf, np.inf, (3,)).sample(key, (5,))).all()


def test_half_open_boxes_draw_within_their_bounds(key):
    box = Box((0.0, -np.inf, -np.inf, 1e35), (np.inf, -1.0, np.inf, 3e38), (4,))
    for x in (box.sample(key, (50,)),
              distributions.random_action(jax.random.normal(key, (50, 4)), box)):
        low, high = box.bounds()
        assert (
            np.isfinite(x).all() and (x >= low).all() and (x <= high).all() and (x[:, 2] > 0).any())


def test_random_integers_are_uniform(key):
    """Each of a Box's with the same probability, its bounds too."""
    noise = distributions.draw_noise(key, Box(-1, 1, (1,), np.int8), (3000,))
    x = np.asarray(distributions.random_action(noise, Box(-1, 1, (1,), np.int8)))
    assert (
        x.dtype == np.int8 and (np.unique(x, return_counts=True)[1] > 900).all() and np.ptp(x) == 2)


@pytest.mark.parametrize("dtype", [np.int8, np.uint16, np.int32, np.uint32])
def test_samples_of_a_dtype_s_whole_range_are_spread_over_it(key, dtype):
    limits = np.iinfo(dtype)
    x = np.asarray(Box(limits.min, limits.max, (2,), dtype).sample(key, (200,)), np.float64)
    assert x.min() < 0.1 * limits.max + 0.9 * limits.min and x.max() > 0.45 * limits.max


TWICE = [("a", Discrete(2)), ("a", Discrete(3))]


@pytest.mark.parametrize("items", [5, (), np.zeros(3), np.zeros(0), [("a", 1)], TWICE], ids=repr)
def test_bad_dicts_of_spaces(items):
    with pytest.raises(ConfigError, match="^Dict"):
        Dict(items)


def test_a_dict_samples_and_holds_every_entry(key):
    space = Dict.of(b=Discrete(3), a=Box(0, 1, (2,)))
    assert space == Dict.of(a=Box(0, 1, (2,)), b=Discrete(3)) and hash(space) is not None
    assert space["b"] == Discrete(3) and "a" in space and "c" not in space
    sample = space.sample(key, (4,))
    assert {name: x.shape for name, x in sample.items()} == {"a": (4, 2), "b": (4,)}
    empty = zeros(space, (7,))
    assert jax.tree.structure(empty) == jax.tree.structure(sample)
    assert empty["b"].dtype == jnp.int32 and empty["a"].shape == (7, 2)


@pytest.mark.parametrize("space",
                         [Discrete(3), MultiDiscrete((2, 3)), Box(0, 255, (2, 2, 3), jnp.uint8)])
def test_zeros_look_like_samples(space, key):
    a, b = zeros(space, (3,)), space.sample(key, (3,))
    assert a.shape == b.shape and a.dtype == b.dtype and not np.asarray(a).any()
