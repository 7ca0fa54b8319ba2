"""Action distributions: probabilities that add up, samples that follow them, masks that hold."""

from __future__ import annotations

import itertools

import jax
import jax.numpy as jnp
import numpy as np
import pytest
from scipy import stats

from helpers.matrix import family
from jaxrl_fast import random
from jaxrl_fast.ops import distributions
from jaxrl_fast.ops.distributions import Categorical, MultiCategorical, Normal, TanhNormal
from jaxrl_fast.spaces import Box, Discrete, MultiDiscrete

# compiled whole: one by one its operations are fifteen programs a shape
draw_noise = jax.jit(distributions.draw_noise, static_argnums=(1, 2))
normal = jax.jit(random.normal, static_argnums=1)

LOGITS = jnp.array([[0.0, 1.0, -2.0, 3.0], [50.0, 50.0, 0.0, -50.0], [0.0, 0.0, 0.0, 0.0]])


def softmax(x):
    e = np.exp(np.asarray(x, np.float64) - np.max(x, -1, keepdims=True))
    return e / e.sum(-1, keepdims=True)


def test_categorical_log_prob_and_entropy():
    dist = Categorical(LOGITS)
    log_prob = jax.vmap(dist.log_prob, out_axes=1)(jnp.arange(4)[:, None] * jnp.ones(3, jnp.int32))
    p = softmax(LOGITS)
    np.testing.assert_allclose(np.exp(log_prob), p, rtol=1e-5, atol=1e-7)
    np.testing.assert_allclose(np.exp(log_prob).sum(-1), 1, rtol=1e-5)
    np.testing.assert_allclose(dist.entropy(), stats.entropy(p, axis=-1), rtol=1e-5)
    np.testing.assert_array_equal(dist.mode(), [3, 0, 0])
    assert dist.mode().dtype == jnp.int32


def test_categorical_gradient_is_one_hot_minus_probabilities():
    """Written as a product with a one-hot; the gradient must be what indexing would give."""
    grad = jax.grad(lambda x: Categorical(x).log_prob(jnp.array([2, 0, 3])).sum())(LOGITS)
    np.testing.assert_allclose(grad, np.eye(4)[[2, 0, 3]] - softmax(LOGITS), atol=1e-6)


def test_samples_follow_the_probabilities(key):
    n = 40_000
    noise = draw_noise(key, Discrete(4), (n,))
    sample = np.asarray(Categorical(LOGITS[0]).sample(noise))
    assert sample.dtype == np.int32
    counts = np.bincount(sample, minlength=4)
    assert stats.chisquare(counts, softmax(LOGITS[0]) * n).pvalue > 1e-3


def test_masked_actions_are_never_taken_and_the_rest_adds_up(key):
    n, actions = 5000, 5
    keys = random.split(key)
    mask = jax.random.bernoulli(keys[0], 0.4, (n, actions)).at[:, 2].set(jnp.arange(n) % 3 > 0)
    mask = mask.at[:, 4].set(mask[:, 4] | ~mask.any(-1))
    logits = 5.0 * normal(keys[1], (n, actions))
    space = Discrete(actions)
    dist = distributions.from_outputs(space, logits, mask=mask)
    noise = draw_noise(key, space, (n,))
    rows = np.arange(n)
    for action in (dist.sample(noise), dist.mode(),
                   distributions.random_action(noise, space, mask)):
        assert np.asarray(mask)[rows, np.asarray(action)].all()
    p = np.exp(jax.nn.log_softmax(dist.logits))
    assert (p[~np.asarray(mask)] == 0).all()
    expected = np.where(mask, np.exp(logits - logits.max(-1, keepdims=True), dtype=np.float64), 0.0)
    expected /= expected.sum(-1, keepdims=True)
    np.testing.assert_allclose(dist.entropy(), stats.entropy(expected, axis=-1), rtol=1e-4,
                               atol=1e-4)
    action = dist.sample(noise)
    np.testing.assert_allclose(np.exp(dist.log_prob(action)), expected[rows, np.asarray(action)],
                               rtol=1e-3, atol=1e-6)

    def objective(logits):
        dist = distributions.from_outputs(space, logits, mask=mask)
        return dist.entropy().sum() + dist.log_prob(action).sum()

    grad = np.asarray(jax.grad(objective)(logits))
    assert np.isfinite(grad).all() and (grad[~np.asarray(mask)] == 0).all()


def test_uniform_random_action_is_uniform_over_the_legal_ones(key):
    mask = jnp.array([True, False, True, True, False])
    noise = draw_noise(key, Discrete(5), (30_000,))
    counts = np.bincount(distributions.random_action(noise, Discrete(5), mask), minlength=5)
    assert counts[1] == counts[4] == 0 and stats.chisquare(counts[[0, 2, 3]]).pvalue > 1e-3


def test_multi_categorical_is_a_product(key):
    space = MultiDiscrete((3, 2, 4))
    out = jax.random.normal(key, (9,))
    assert isinstance(distributions.from_outputs(space, out), MultiCategorical)
    assert distributions.num_outputs(space) == 9
    p = [softmax(x) for x in np.split(np.asarray(out), (3, 5))]
    every = np.stack(np.meshgrid(*map(np.arange, space.nvec), indexing="ij"), -1).reshape(-1, 3)
    n = 30_000

    @jax.jit
    def all_of_it(out, noise):
        dist = distributions.from_outputs(space, out)
        return (dist.log_prob(jnp.asarray(every)), dist.entropy(), dist.mode(), dist.sample(noise),
                distributions.random_action(noise, space))

    log_prob, entropy, mode, drawn, chosen = all_of_it(out, draw_noise(key, space, (n,)))
    np.testing.assert_allclose(np.exp(log_prob), np.einsum("i,j,k->ijk", *p).reshape(-1), rtol=1e-5)
    np.testing.assert_allclose(entropy, sum(stats.entropy(x) for x in p), rtol=1e-5)
    np.testing.assert_array_equal(mode, [x.argmax() for x in p])
    uniform = [np.ones(k) / k for k in space.nvec]
    for sample, expected in ((drawn, p), (chosen, uniform)):
        sample = np.asarray(sample)
        assert sample.shape == (n, 3) and sample.dtype == np.int32
        joint = np.bincount(sample @ [8, 4, 1], minlength=24)
        assert stats.chisquare(joint,
                               np.einsum("i,j,k->ijk", *expected).reshape(-1) * n).pvalue > 1e-3


def test_normal_equals_scipy(key, rng):
    mean, log_std = rng.normal(size=(6, 3)), rng.normal(size=3) * 0.5
    dist = Normal(jnp.asarray(mean, jnp.float32), jnp.asarray(log_std, jnp.float32))
    action = rng.normal(size=(6, 3))
    expected = stats.norm(mean, np.exp(log_std)).logpdf(action).sum(-1)
    np.testing.assert_allclose(dist.log_prob(jnp.asarray(action, jnp.float32)), expected, rtol=1e-4)
    np.testing.assert_allclose(dist.entropy(), stats.norm(mean, np.exp(log_std)).entropy().sum(-1),
                               rtol=1e-5)
    np.testing.assert_array_equal(dist.mode(), dist.mean)
    grid = np.linspace(-12, 12, 4001, dtype=np.float32)  # integrates to one
    density = np.exp(
        Normal(jnp.float32([0.3]), jnp.float32([-0.5])).log_prob(jnp.asarray(grid)[:, None]))
    assert np.trapezoid(density, grid) == pytest.approx(1, abs=1e-4)
    noise = draw_noise(key, Box(-1.0, 1.0, (3,)), (50_000, 6))
    sample = np.asarray(dist.sample(noise))
    np.testing.assert_allclose(sample.mean(0), mean, atol=0.05)
    np.testing.assert_allclose(sample.std(0), np.exp(np.tile(log_std, (6, 1))), rtol=0.03)


def test_random_box_actions(key):
    space = Box((-1.0, 0.0), (1.0, 5.0), (2,))
    drawn = jax.jit(
        lambda key, space, shape: distributions.random_action(draw_noise(key, space, shape), space),
        static_argnums=(1, 2))
    x = np.asarray(drawn(key, space, (20_000,)))
    assert x.shape == (20_000, 2) and x.dtype == np.float32
    for i, (low, high) in enumerate(((-1, 1), (0, 5))):
        assert x[:, i].min() >= low and x[:, i].max() <= high
        assert stats.kstest((x[:, i] - low) / (high - low), "uniform").pvalue > 1e-3
    image = Box(0.0, 1.0, (2, 3))
    assert drawn(key, image, (7,)).shape == (7, 2, 3)
    free = Box(-np.inf, np.inf, (1,))
    y = np.asarray(drawn(key, free, (20_000,)))
    assert stats.kstest(y[:, 0], "norm").pvalue > 1e-3


def test_one_hot_select_equals_take_along_axis(rng):
    values, index = rng.normal(size=(4, 5, 6)).astype(np.float32), rng.integers(0, 6, (4, 5))
    expected = np.take_along_axis(values, index[..., None], -1)[..., 0]
    np.testing.assert_array_equal(
        distributions.one_hot_select(jnp.asarray(values), jnp.asarray(index)), expected)


def test_tanh_normal_equals_numerical_integration(key):
    """The density over (-1, 1) by the change of variables in float64, which integrates to one; the
    entropy too."""
    mean, log_std = np.float32([0.4, -1.2]), np.float32([-0.3, 0.2])
    dist = TanhNormal(jnp.asarray(mean), jnp.asarray(log_std))
    raw = np.linspace(-8, 8, 20_001)  # the tanh of it is the grid that we integrate over
    slope = 1 / np.cosh(raw) ** 2
    density = stats.norm(mean, np.exp(log_std)).pdf(raw[:, None]) / slope[:, None]
    with np.errstate(divide="ignore", invalid="ignore"):
        minus_log = -np.where(density > 0, density * np.log(density), 0.0)
    both = jnp.asarray(np.stack([raw, raw], axis=1), jnp.float32)
    np.testing.assert_allclose(dist.log_prob(both), np.log(density).sum(1), rtol=1e-4, atol=1e-3)
    one = TanhNormal(dist.mean[:1], dist.log_std[:1])
    found = np.exp(one.log_prob(both[:, :1]))
    assert np.trapezoid(found, np.tanh(raw)) == pytest.approx(1, abs=1e-3)
    entropy = np.trapezoid(minus_log * slope[:, None], raw, axis=0).sum()
    noise = normal(key, (200_000, 2))
    assert float(dist.entropy(noise).mean()) == pytest.approx(entropy, abs=0.01)
    assert float(-dist.log_prob(dist.sample(noise)).mean()) == pytest.approx(entropy, abs=0.01)
    assert entropy < 2 * np.log(2)  # of the uniform distribution on (-1, 1)^2


def test_tanh_normal_samples_are_squashed_and_its_mode_is_the_mean(key):
    dist = TanhNormal(jnp.float32([0.5, -0.5]), jnp.float32([-1.0, 0.0]))
    noise = normal(key, (1000, 2))
    raw = dist.sample(noise)
    np.testing.assert_allclose(raw, dist.mean + jnp.exp(dist.log_std) * noise, rtol=1e-6)
    np.testing.assert_allclose(dist.squash(raw), np.tanh(np.asarray(raw, np.float64)), atol=1e-6)
    np.testing.assert_array_equal(dist.mode(), dist.mean)


@pytest.mark.parametrize("far", [-20.0, 20.0, 80.0])
def test_tanh_normal_is_finite_at_saturation(far):
    """1 - tanh(20)^2 is 0 in float32; its logarithm is log 4 - 40."""
    assert float(distributions.log_tanh_slope(jnp.float32(far))) == pytest.approx(
        np.log(4) - 2 * abs(far), rel=1e-5)

    def log_prob(mean, log_std):
        return TanhNormal(mean, log_std).log_prob(
            jax.lax.stop_gradient(mean + jnp.exp(log_std) * 0.3))

    value, grads = jax.value_and_grad(log_prob, argnums=(0, 1))(jnp.float32([far]),
                                                                jnp.float32([-2.0]))
    expected = stats.norm.logpdf(0.3) + 2.0 - (
        np.log(4) - 2 * abs(far + np.sign(far) * np.exp(-2.0) * 0.3 * np.sign(far)))
    assert float(value) == pytest.approx(expected, rel=1e-4)
    assert all(np.isfinite(g).all() for g in grads)
    through = (
        jax.grad(lambda m: TanhNormal(m, jnp.float32([-2.0])).log_prob(m)[()])(jnp.float32([far])))
    # of -log(1 - tanh^2): it pulls back
    np.testing.assert_allclose(through, [2 * np.sign(far)], rtol=1e-5)
    assert np.isfinite(TanhNormal(jnp.float32([far]), jnp.float32([-2.0])).entropy(jnp.zeros(1)))


@pytest.mark.parametrize("n", family(
    [2, distributions.FEW_ACTIONS, distributions.FEW_ACTIONS + 1],
    lambda n: n == 2))
@pytest.mark.usefixtures("every_platform")
def test_a_gpu_has_the_same_numbers_for_few_actions(n, key, both_forms):
    """Terms up to FEW_ACTIONS: values, gradients, ties, and the mark of a NaN."""
    logits = jnp.round(2.0 * normal(key, (40, n)), 0).at[3, n - 1].set(jnp.nan)
    action = jnp.arange(40) % n

    def numbers(logits, action):
        dist = Categorical(logits)
        loss = lambda x: jnp.sum(Categorical(x).log_prob(action) + 0.3 * Categorical(x).entropy())
        return (
            dist.log_prob(action), dist.entropy(), distributions.one_hot_select(logits, action),
            jax.grad(loss)(logits)
        )

    finite = jnp.nan_to_num(logits)
    for ours, gpus in zip(*both_forms(numbers, finite, action), strict=True):
        np.testing.assert_allclose(ours, gpus, rtol=1e-5, atol=1e-6)
    ours, gpus = both_forms(distributions.best, logits)
    np.testing.assert_array_equal(ours, gpus)
    assert gpus.dtype == np.int32 and gpus[3] == -1 and (gpus[4:] >= 0).all()
    for indices in both_forms(distributions.argmax, logits.at[5].set(jnp.nan)):
        np.testing.assert_array_equal(indices, jnp.argmax(logits.at[5].set(jnp.nan), axis=-1))
    text = lambda on: jax.jit(distributions.best).trace(logits).lower(
        lowering_platforms=(on,)).as_text()
    assert ("stablehlo.reduce" in text("cpu")) == (n > distributions.MAX_COMPARED)
    assert ("stablehlo.reduce" in text("cuda")) == (n > distributions.FEW_ACTIONS)


@pytest.mark.parametrize("dtype", ["float32", "bfloat16"])
def test_best_is_the_first_of_the_largest_and_marks_a_nan(dtype):
    """Every triple of these values."""
    some = [0.0, -0.0, 1.0, np.inf, -np.inf, np.nan, -np.nan]
    values = np.array(list(itertools.product(some, repeat=3)), np.float32)
    expected = np.where(np.isnan(values).any(axis=1), -1, values.argmax(axis=1))
    found = jax.jit(distributions.best)(jnp.asarray(values, dtype))
    assert found.dtype == jnp.int32
    np.testing.assert_array_equal(found, expected)


def test_a_loss_may_choose_its_best_action():
    chosen = lambda q: jnp.sum(distributions.one_hot_select(q, distributions.best(q)))
    np.testing.assert_array_equal(jax.grad(chosen)(LOGITS[:2]), [[0, 0, 0, 1], [1, 0, 0, 0]])
