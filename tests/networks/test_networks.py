"""Networks: which one is chosen, what it is fed, and that a dense layer is one."""

from __future__ import annotations

import math

import flax.linen as nn
import jax
import jax.numpy as jnp
import numpy as np
import pytest

from helpers.matrix import family
from jaxrl_fast.errors import ConfigError
from jaxrl_fast.networks import (
    CNN,
    MINATAR_FILTERS,
    MLP,
    NATURE_FILTERS,
    SMALL_FILTERS,
    Dense,
    NoisyDense,
    draw_noise,
    initialize,
    make_torso,
)
from jaxrl_fast.networks import orthogonal as orthogonal_module
from jaxrl_fast.networks.layers import Conv, embed, orthogonal, scale
from jaxrl_fast.networks.norms import LayerNorm
from jaxrl_fast.networks.orthogonal import orthonormalize_together
from jaxrl_fast.ops import lowering
from jaxrl_fast.spaces import Box, Dict, Discrete, MultiDiscrete

CHOICE = [
    (Box(-1, 1, (4,)), MLP),
    (Box(-1, 1, ()), MLP),
    (Box(0, 1, (10, 5)), MLP),
    (Discrete(5), MLP),
    (Dict.of(a=Box(0, 1, (84, 84, 3))), MLP),
    (Box(0, 1, (10, 10, 4), jnp.bool_), MINATAR_FILTERS),
    (Box(0, 255, (84, 84, 1), jnp.uint8), NATURE_FILTERS),
    (Box(0, 255, (64, 84, 1), jnp.uint8), NATURE_FILTERS),
    (Box(0, 255, (63, 84, 1), jnp.uint8), SMALL_FILTERS),
    (Box(0, 255, (36, 36, 1), jnp.uint8), SMALL_FILTERS),
    (Box(0, 255, (35, 84, 1), jnp.uint8), MINATAR_FILTERS),
    (Box(0, 1, (3, 3, 2)), MINATAR_FILTERS),
    (Box(0, 1, (2, 8, 2)), MLP),  # too small for a 3x3 filter
]


def test_pixels_are_seen_about_their_mean(rng):
    space = Box(0, 255, (36, 40, 1), jnp.uint8)
    obs = jnp.asarray(rng.integers(80, 100, (3, 36, 40, 4)), jnp.uint8)
    plain, scaled = (make_torso("auto", space, (8,), "relu", image=image)
                     for image in ((0.0, 0.0), (87.0, 64.0)))
    floats = make_torso("auto", Box(-9, 9, (36, 40, 1)), (8,), "relu")

    @jax.jit
    def features(obs):
        params = plain.init(jax.random.key(0), obs)
        return (floats.apply(params, (obs.astype(jnp.float32) - 87) / 64),
                scaled.apply(params, obs), plain.apply(params, obs))

    same, found, other = features(obs)
    np.testing.assert_allclose(found, same, atol=1e-6)
    assert np.abs(same - other).max() > 0.05


FLAT = Box(0, 1, (4,))


@pytest.mark.parametrize(("network", "space"),
                         [("mlp", Box(0, 1, (10, 10, 1))), ("auto", FLAT), (MLP(FLAT), FLAT)])
def test_only_a_cnn_of_ours_scales_pixels(network, space):
    with pytest.raises(ConfigError, match="image_scale must be 0.*got 64.0"):
        make_torso(network, space, (8,), "relu", image=(87.0, 64.0))
    with pytest.raises(ConfigError, match="image_mean must be 0 without .*got 87.0"):
        make_torso(network, space, (8,), "relu", image=(87.0, 0.0))


@pytest.mark.parametrize(("space", "expected"), CHOICE)
def test_auto_chooses_by_the_observation(space, expected):
    torso = make_torso("auto", space, (8,), "relu")
    assert type(torso) is (MLP if expected is MLP else CNN)
    assert expected is MLP or torso.filters == expected
    obs = jax.eval_shape(lambda key: space.sample(key, (2, 3)), jax.random.key(0))
    features, params = jax.eval_shape(torso.init_with_output, jax.random.key(0), obs)
    assert features.shape == (2, 3, 8) and features.dtype == jnp.float32
    assert all(x.size > 0 and x.dtype == jnp.float32 for x in jax.tree.leaves(params))


def test_named_networks_and_a_users_module():
    image = Box(0, 1, (10, 10, 4))
    assert type(make_torso("mlp", image, (8,), "tanh")) is MLP
    own = nn.Dense(3)
    assert make_torso(own, image, (8,), "tanh") is own
    for bad, match in (
        (("cnn", Box(0, 1, (4,)), (8,), "tanh"), "network must be 'mlp'"),
        (("mpl", image, (8,), "tanh"), "did you mean 'mlp'"),
        (("mlp", image, (8,), "tanhh"), "did you mean 'tanh'"),
    ):
        with pytest.raises(ConfigError, match=match):
            make_torso(*bad)


def test_embed_discrete_spaces_as_one_hots():
    np.testing.assert_array_equal(embed(jnp.array([2, 0]), Discrete(3)), [[0, 0, 1], [1, 0, 0]])
    out = embed(jnp.array([[1, 2], [0, 0]]), MultiDiscrete((2, 3)))
    np.testing.assert_array_equal(out, [[0, 1, 0, 0, 1], [1, 0, 1, 0, 0]])


def test_embed_scales_integer_boxes_to_the_unit_interval():
    pixels = jnp.array([[[[0], [255]], [[51], [102]]]], jnp.uint8)
    space = Box(0, 255, (2, 2, 1), jnp.uint8)
    np.testing.assert_allclose(embed(pixels, space), [[0, 1, 0.2, 0.4]], rtol=1e-6)
    assert embed(pixels, space, rank=3).shape == (1, 2, 2, 1)
    np.testing.assert_allclose(embed(jnp.array([[-2, 2]], jnp.int32), Box(-2, 2, (2,), jnp.int32)),
                               [[0, 1]])
    flags = embed(jnp.array([[True, False]]), Box(0, 1, (2,), jnp.bool_))
    assert flags.dtype == jnp.float32 and flags.tolist() == [[1, 0]]
    # floats stay
    np.testing.assert_array_equal(embed(jnp.array([[3.0, -3.0]]), Box(-3, 3, (2,))), [[3, -3]])


LIMITS = [(np.iinfo(d).min, np.iinfo(d).max, d)
          for d in (np.int8, np.uint8, np.int16, np.uint16, np.int32, np.uint32)]
WIDE = [*LIMITS, (-np.inf, np.inf, np.int32), (0, np.iinfo(np.int32).max, np.int32),
        (-1000, 1000, np.int32),
        (-(10**6), 10**6, np.int32), (-30, 30, np.int16),
        (2**31 - 2000, 2**31 - 1, np.int32)]  # fmt: skip


@pytest.mark.parametrize(("low", "high", "dtype"), WIDE, ids=str)
def test_small_integers_stay_distinct_for_any_bounds(low, high, dtype):
    """A few of them, next to the bound where zero is outside: as far apart as a network needs, and
    none of them huge."""
    near = low if low > 0 else 0 if low == 0 else -3
    x = np.arange(near, near + 7).astype(dtype)
    seen = np.asarray(scale(jnp.asarray(x), Box(low, high, (7,), dtype)))
    assert (
        seen.dtype == np.float32 and np.diff(seen).min() > 0.02 and seen[-1] - seen[0] > 0.3
        and np.abs(seen).max() < 7
    )
    ends = np.asarray([max(low, np.iinfo(dtype).min), min(high, np.iinfo(dtype).max)]).astype(dtype)
    both = np.asarray(scale(jnp.asarray(ends), Box(low, high, (2,), dtype)))
    unbounded = high - low >= 2**24
    np.testing.assert_array_equal(
        both, ends.astype(np.float32)) if unbounded else np.testing.assert_array_less(both, 5)


def test_each_integer_is_scaled_by_its_own_bounds():
    space = Box((0, 0, -5, -(2**31), 100), (1, 10**6, 5, 2**31 - 1, 115), (5,), jnp.int32)
    flat = jax.jit(lambda x: embed(x, space))
    seen = np.asarray(flat(jnp.array([[1, 0, 5, 7, 100], [0, 10**6, -5, -7, 115]])))
    np.testing.assert_array_equal(seen[0], [1, 0, 1, 7, 0])
    np.testing.assert_allclose(seen[1], [0, 1 + np.log2(10**6 + 1) / 8, 0, -7, 1], rtol=1e-6)
    stacked = jnp.array([[1, 0, 5, 7, 100, 0, 10**6, -5, -7, 115]])  # two frames
    np.testing.assert_array_equal(flat(stacked), seen.reshape(1, -1))
    together = jax.jit(lambda x: embed(x, Dict.of(a=space, b=Discrete(2))))
    inside = together({"a": stacked[:, :5], "b": jnp.array([1])})
    np.testing.assert_array_equal(inside[:, :5], seen[:1])


@pytest.mark.parametrize("space", [
    Box(0, 255, (3, 3, 2), jnp.uint8), Box(0, 200, (5, 4), jnp.uint8), Box(0, 1, (4,), jnp.int32),
    Box(3, 9, (4,), jnp.int32), Box(-7, 7, (4,), jnp.int8),
], ids=str)  # fmt: skip
def test_bytes_of_pictures_and_short_ranges_are_the_fraction_of_their_range(space, rng):
    obs = jnp.asarray(rng.integers(space.low, space.high + 1, (8, *space.shape)), space.dtype)
    expected = (obs.astype(jnp.float32) - space.low) / (space.high - space.low)
    np.testing.assert_array_equal(scale(obs, space), expected)


def test_embed_dict_flattens_by_name_and_leaves_the_mask_out():
    space = Dict.of(b=Discrete(2), a=Box(0, 1, (2, 2)), action_mask=Box(0, 1, (3,), jnp.bool_))
    obs = {"a": jnp.arange(4.0).reshape(1, 2, 2), "b": jnp.array([1]),
           "action_mask": jnp.ones((1, 3), bool)}
    np.testing.assert_array_equal(embed(obs, space), [[0, 1, 2, 3, 0, 1]])


def test_embed_takes_any_batch_and_stacked_frames():
    space = Box(-1, 1, (2, 3))
    assert embed(jnp.zeros((5, 4, 2, 3)), space).shape == (5, 4, 6)
    assert embed(jnp.zeros((5, 2, 12)), space).shape == (5, 24)
    assert embed(jnp.zeros((5,)), Box(-1, 1, ())).shape == (5, 1)


def test_orthogonal_in_full_precision(key):
    """The default of an accelerator is bfloat16 or TF32: rows would be orthogonal to two or three
    digits."""
    jaxpr = str(jax.make_jaxpr(orthogonal(1.0))(jax.random.normal(key, (8, 16))))
    assert jaxpr.count("dot_general[") == jaxpr.count("precision=(Precision.HIGHEST") > 0, jaxpr


@pytest.mark.parametrize("members", family([3, 1], 1))
def test_a_gpu_makes_the_same_orthogonal_kernels(members, key, both_forms):
    """There all kernels of up to a size share a loop: rows of zeros are added, and dropped."""
    parts = {"a": (Dense(32), jnp.zeros((1, 4))), "b": (Dense(32), jnp.zeros((1, 32))),
             "c": (Dense(1), jnp.zeros((1, 32))), "d": (Conv(16, 3), jnp.zeros((1, 5, 5, 2))),
             "e": (NoisyDense(3), jnp.zeros((1, 4)))}
    make = lambda key: initialize(key, parts)
    make, key = (jax.vmap(make), jax.random.split(key, 3)) if members > 1 else (make, key)
    cpu, cuda = both_forms(make, key)
    jax.tree.map(lambda x, y: np.testing.assert_allclose(y, x, atol=1e-5), cpu, cuda)


def test_kernels_that_share_a_loop_have_orthonormal_rows(key):
    """One pass over the later rows would be right to three or four digits."""
    normals = {"square": jax.random.normal(key, (256, 256)), "tall": jnp.ones((300, 1)),
               "wide": jax.random.normal(key, (8, 300))}
    with lowering.known("cuda"):
        found = jax.jit(orthonormalize_together)(normals)
    assert {name: q.shape for name, q in found.items()} == {
        "square": (256, 256), "tall": (1, 300), "wide": (8, 300)}
    for q in map(np.asarray, found.values()):
        np.testing.assert_allclose(q @ q.T, np.eye(len(q)), atol=1e-6)


@pytest.mark.parametrize(("width", "loops"), [(64, 1), (500, 3)])
def test_small_kernels_share_a_loop_on_a_gpu(width, loops, key):
    parts = {"a": (Dense(width), jnp.zeros((1, 4))), "b": (Dense(width), jnp.zeros((1, width))),
             "c": (Dense(2), jnp.zeros((1, width)))}
    for platform, expected in (("cuda", loops), ("cpu", 3)):
        with lowering.known(platform):
            jaxpr = str(jax.make_jaxpr(lambda key: initialize(key, parts))(key))
        assert jaxpr.count("scan[") == expected


def test_rows_of_a_kernel_are_written_alike_whatever_its_size(key, monkeypatch):
    """Small ones by a selection, large ones by a slice."""
    normals = jax.random.normal(key, (3, 5, 9))
    make = lambda: jax.jit(jax.vmap(lambda a: orthogonal_module.orthonormal_rows(a)))
    small, text = make()(normals), make().lower(normals).compile().as_text()
    assert "scatter" not in text
    monkeypatch.setattr(orthogonal_module, "SMALL", 0)
    np.testing.assert_array_equal(small, make()(normals))


def test_orthogonal_kernels_have_orthogonal_columns(key):
    for shape in ((6, 4), (4, 6), (3, 3, 2, 8)):
        w = np.asarray(
            orthogonal(math.sqrt(2))(jax.random.normal(key, shape))).reshape(-1, shape[-1])
        gram = w.T @ w if w.shape[0] >= w.shape[1] else w @ w.T
        np.testing.assert_allclose(gram, 2 * np.eye(len(gram)), atol=1e-5)


def test_dense_is_a_plain_dense_layer_with_its_gradients(key, rng):
    x = jnp.asarray(rng.normal(size=(5, 7, 3)), jnp.float32)
    layer = Dense(4)
    params = jax.device_get(jax.jit(layer.init)(key, x))
    kernel, bias = params["params"]["kernel"], params["params"]["bias"]
    assert kernel.shape == (3, 4) and not bias.any()
    params, apply = jax.tree.map(lambda p: p + np.float32(0.1), params), jax.jit(layer.apply)
    kernel, bias = (np.asarray(p, np.float64)
                    for p in (params["params"]["kernel"], params["params"]["bias"]))
    for leading in ((), (5,), (5, 7)):  # one observation, a batch, time and batch
        part = x[(0,) * (2 - len(leading))]
        expected = np.asarray(part, np.float64) @ kernel + bias
        np.testing.assert_allclose(apply(params, part), expected, rtol=1e-4, atol=1e-6)
    cotangent = rng.normal(size=(5, 7, 4)).astype(np.float32)
    loss = lambda p, x: (layer.apply(p, x) * cotangent).sum()
    grads, dx = jax.device_get(jax.jit(jax.grad(loss, (0, 1)))(params, x))
    np.testing.assert_allclose(grads["params"]["kernel"], np.einsum("abi,abj->ij", x, cotangent),
                               rtol=1e-4, atol=1e-5)
    np.testing.assert_allclose(grads["params"]["bias"], cotangent.sum((0, 1)), rtol=1e-4, atol=1e-5)
    np.testing.assert_allclose(dx, cotangent @ kernel.T, rtol=1e-4, atol=1e-5)


def test_mlp_by_hand(key):
    space = Box(-1, 1, (3,))
    torso = MLP(space, (5, 4), "relu")
    x = jnp.array([[0.3, -0.2, 0.9]])
    params = jax.jit(torso.init)(key, x)
    h = np.asarray(x)
    for name in ("Dense_0", "Dense_1"):
        h = np.maximum(h @ np.asarray(params["params"][name]["kernel"])
                       + np.asarray(params["params"][name]["bias"]), 0)
    np.testing.assert_allclose(jax.jit(torso.apply)(params, x), h, rtol=1e-5, atol=1e-6)
    assert MLP(space, ()).apply({}, x).tolist() == x.tolist()  # no layer at all: the observation


@pytest.mark.parametrize("network", family(["mlp", "cnn"], ["cnn"]))
def test_layer_norm_before_every_activation(network, key):
    """A scale of a torso's inputs and layers changes nothing with the norm, except through
    epsilon."""
    space = Box(0, 1, (6, 6, 2))
    torso = make_torso(network, space, (8, 8), "relu", layer_norm=True)
    obs = space.sample(key, (5,))
    params, apply = jax.device_get(jax.jit(torso.init)(key, obs)), jax.jit(torso.apply)
    norms = [name for name in params["params"] if name.startswith("LayerNorm")]
    assert len(norms) == (3 if network == "cnn" else 2)
    scaled = jax.tree_util.tree_map_with_path(
        lambda path, x: x * 3 if "LayerNorm" not in str(path) and "kernel" in str(path) else x,
        params
    )
    np.testing.assert_allclose(apply(params, obs), apply(scaled, obs), atol=1e-3)
    assert np.asarray(apply(params, obs)).std() > 0.1


@pytest.mark.usefixtures("every_platform")
def test_a_layer_norm_is_flaxs(key, rng, both_forms):
    """Parameters by name; on a CPU every bit, of gradients too; on a GPU to rounding, by the
    centered form."""
    x = jnp.asarray(rng.normal(3.0, 2.0, (40, 24)), jnp.float32)
    shaken = lambda key, x: jax.tree.map(lambda p: p + 0.3 * jax.random.normal(key, p.shape),
                                         LayerNorm().init(key, x))
    params = jax.jit(shaken)(key, x)
    numbers = lambda layer: jax.value_and_grad(lambda p, x: jnp.sum(jnp.sin(layer.apply(p, x))),
                                               (0, 1))
    expected = jax.tree.map(np.asarray, jax.jit(numbers(nn.LayerNorm()))(params, x))
    ours, gpus = both_forms(numbers(LayerNorm()), params, x)
    assert jax.tree.structure(ours) == jax.tree.structure(expected)
    jax.tree.map(np.testing.assert_array_equal, ours, expected)
    jax.tree.map(lambda a, b: np.testing.assert_allclose(a, b, rtol=1e-4, atol=2e-5), gpus,
                 expected)
    shift = lambda x: jax.jvp(lambda x: LayerNorm().apply(params, x), (x,), (jnp.ones_like(x),))
    _, slope = jax.jit(shift)(x)
    np.testing.assert_allclose(slope, 0.0, atol=1e-5)  # a shift of all features
    text = lambda on: jax.jit(LayerNorm().apply).trace(params, x).lower(
        lowering_platforms=(on,)).as_text()
    assert "stablehlo.maximum" in text("cpu") and "stablehlo.maximum" not in text("cuda")


def test_noisy_dense_has_the_noise_of_its_paper(key, rng):
    """Mean and covariance of y over the noise equal those by hand.

    The mean is mu x + b, the variance sum_i (x_i s_i)^2 E[f(e)^2]^2 + ...
    """
    layer = NoisyDense(2)
    x = jnp.asarray(rng.normal(size=3), jnp.float32)
    params, apply = jax.device_get(jax.jit(layer.init)(key, x)), jax.jit(layer.apply)
    sigma = params["params"]["kernel_sigma"]
    np.testing.assert_allclose(sigma, 0.5 / np.sqrt(3), rtol=1e-6)
    assert np.abs(params["params"]["kernel"]).max() <= 1 / np.sqrt(3)
    mean = apply(params, x)
    np.testing.assert_allclose(mean, x @ params["params"]["kernel"] + params["params"]["bias"],
                               rtol=1e-6)
    noisy = jax.jit(jax.vmap(lambda k: layer.apply(draw_noise(k, params), x)))
    y = np.asarray(noisy(jax.random.split(key, 40_000)), np.float64)
    np.testing.assert_allclose(y.mean(0), mean, atol=0.02)
    second = np.sqrt(2 / np.pi)  # E[f(e)^2] = E|e|
    weights = np.sum(np.asarray(x) ** 2) * second * float(sigma[0, 0]) ** 2
    # each output's own factor f(e_out)
    expected = second * (weights + float(params["params"]["bias_sigma"][0]) ** 2)
    np.testing.assert_allclose(y.var(0), expected, rtol=0.05)
    assert abs(np.corrcoef(y.T)[0, 1]) < 0.03
    one = jax.jit(lambda x: layer.apply(draw_noise(key, params), jnp.stack([x, x])))(x)
    np.testing.assert_array_equal(one[0], one[1])  # a call has one noise


def test_initialize_draws_every_layer_independently(key):
    torso = make_torso("mlp", Box(-1.0, 1.0, (6,)), (6, 6), "relu")
    own = nn.Dense(6)  # a user's, with flax's initializers
    x = jnp.zeros((2, 6))
    networks = {"a": (torso, x), "b": (torso, x), "noisy": (NoisyDense(6), x), "own": (own, x)}
    params = jax.device_get(jax.jit(lambda key: initialize(key, networks))(key))
    reference = {name: jax.eval_shape(networks[name][0].init, key, x)
                 for name in ("a", "noisy", "own")}
    for name, expected in reference.items():
        assert jax.tree.map(jnp.shape, params[name]) == jax.tree.map(jnp.shape, expected), name
    kernels = [leaf
               for path, leaf in jax.tree_util.tree_leaves_with_path(params)
               if str(path[-1]) == "['kernel']"]
    assert len(kernels) == 6
    for i, a in enumerate(kernels):
        assert all(np.abs(a - b).max() > 0.05 for b in kernels[:i])
    for name in ("a", "b"):
        w = params[name]["params"]["Dense_0"]["kernel"]
        np.testing.assert_allclose(w @ w.T, 2 * np.eye(6), atol=1e-5)
    bound = 6**-0.5
    noisy = params["noisy"]["params"]
    assert np.abs(noisy["kernel"]).max() <= bound and np.abs(noisy["kernel"]).max() > 0.8 * bound
    assert np.unique(noisy["bias"]).size == 6


def test_noise_reaches_every_noisy_layer(key):
    torso = make_torso("mlp", Box(-1.0, 1.0, (3,)), (4, 5), "relu", noisy=True)
    noise = jax.eval_shape(lambda key: draw_noise(key, torso.init(key, jnp.zeros(3))), key)["noise"]
    assert {name: leaf["epsilon"].shape for name, leaf in noise.items()} == {
        "NoisyDense_0": (3 + 4,),
        "NoisyDense_1": (4 + 5,),
    }
    assert draw_noise(key, {"params": {"kernel": jnp.zeros((2, 2))}}).keys() == {"params"}
