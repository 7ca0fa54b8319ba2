"""Losses against numbers worked out by hand."""

from __future__ import annotations

import itertools

import jax
import jax.numpy as jnp
import numpy as np
import pytest

from jaxrl_fast.ops import losses


def test_huber_by_hand():
    error = jnp.array([-3.0, -1.0, -0.5, 0.0, 0.5, 1.0, 2.0])
    np.testing.assert_allclose(losses.huber(error), [2.5, 0.5, 0.125, 0.0, 0.125, 0.5, 1.5])
    np.testing.assert_allclose(losses.huber(error, 2.0), [4.0, 0.5, 0.125, 0.0, 0.125, 0.5, 2.0])


def test_huber_gradient_is_the_clipped_error():
    error = jnp.array([-3.0, -0.5, 0.0, 0.25, 2.0])
    np.testing.assert_allclose(jax.vmap(jax.grad(losses.huber))(error), np.clip(error, -1, 1))


def test_policy_gradient_by_hand():
    """The slope is minus the advantage, through which no gradient flows."""
    log_prob, advantage = jnp.array([-0.5, -2.0, -1.0]), jnp.array([2.0, -3.0, 0.0])
    np.testing.assert_allclose(losses.policy_gradient(log_prob, advantage), [1.0, -6.0, 0.0])
    slopes = (
        jax.grad(lambda p, a: losses.policy_gradient(p, a).sum(),
                 argnums=(0, 1))(log_prob, advantage)
    )
    np.testing.assert_allclose(slopes, [-advantage, 0 * advantage])


# log ratio, advantage -> loss with clip 0.2
SURROGATE = [
    (0.0, 2.0, -2.0),  # first update: ratio 1
    (np.log(1.1), 2.0, -2.2),  # inside the range
    (np.log(1.5), 2.0, -2.4),  # a good action made too likely: clipped
    (np.log(0.5), 2.0, -1.0),  # a good action made unlikely: not clipped
    (np.log(1.5), -2.0, 3.0),  # a bad action made likely: not clipped
    (np.log(0.5), -2.0, 1.6),  # a bad action made too unlikely: clipped
]


def test_clipped_surrogate_by_hand():
    log_ratio, advantage, expected = (jnp.array(x, jnp.float32)
                                      for x in zip(*SURROGATE, strict=True))
    old = jnp.full(log_ratio.shape, -0.7)
    loss, ratio = jax.jit(losses.clipped_surrogate)(old + log_ratio, old, advantage, 0.2)
    np.testing.assert_allclose(loss, expected, rtol=1e-5)
    np.testing.assert_allclose(ratio, np.exp(log_ratio), rtol=1e-5)


def test_a_clipped_sample_has_no_gradient():
    log_ratio, advantage, _ = (jnp.array(x, jnp.float32) for x in zip(*SURROGATE, strict=True))
    slope = jax.grad(
        lambda x: losses.clipped_surrogate(x, 0.0 * x, advantage, 0.2)[0].sum())(log_ratio)
    clipped = np.array([False, False, True, False, False, True])
    np.testing.assert_allclose(slope, np.where(clipped, 0.0, -np.exp(log_ratio) * advantage),
                               rtol=1e-5)


@pytest.mark.parametrize(
    ("value", "target", "old", "expected"),
    [
        # clipped to 0.2, farther from the target: the larger loss counts
        (1.0, 3.0, 0.0, 0.5 * 2.8**2),
        (0.1, 3.0, 0.0, 0.5 * 2.9**2),  # inside the clip
        (1.0, 0.0, 0.0, 0.5),  # clipped is nearer, the plain loss is larger
        (-1.0, 1.0, 0.0, 0.5 * 4.0),
    ],
)
def test_value_loss_by_hand(value, target, old, expected):
    assert float(losses.value_loss(value, target, old, 0.2)) == pytest.approx(expected, rel=1e-6)
    expected = 0.5 * (value - target) ** 2
    assert float(losses.value_loss(value, target)) == pytest.approx(expected, rel=1e-6)


def test_quantile_huber_equals_a_plain_loop(rng):
    z, taus, target = rng.normal(size=(4, 3)), rng.uniform(size=(4, 3)), 2 * rng.normal(size=(4, 5))
    for kappa in (1.0, 0.5):
        expected = np.zeros(4)
        for b, i, j in itertools.product(range(4), range(3), range(5)):
            d = target[b, j] - z[b, i]
            size = 0.5 * d * d if abs(d) <= kappa else kappa * (abs(d) - kappa / 2)
            expected[b] += abs(taus[b, i] - (d < 0)) * size / kappa / 5
        np.testing.assert_allclose(
            losses.quantile_huber(*map(jnp.float32, (z, taus, target)), kappa), expected, rtol=1e-5)


@pytest.mark.parametrize("kappa", [1.0, 0.3])
def test_the_slope_of_quantile_huber(rng, kappa):
    """Autodiff of the sum over all pairs, as the paper has it; fractions one for all, or each row's
    own."""
    z, targets = jnp.float32(rng.normal(size=(3, 5))), jnp.float32(rng.normal(size=(3, 4)))

    def pairs(z, taus):
        delta = targets[:, None, :] - z[:, :, None]
        weight = jnp.abs(taus[..., None] - (delta < 0))
        return jnp.sum(weight * losses.huber(delta, kappa) / kappa) / targets.shape[1]

    for taus in (jnp.linspace(0.1, 0.9, 5), jnp.float32(rng.uniform(size=(3, 5)))):
        ours = jax.value_and_grad(
            lambda z, taus=taus: losses.quantile_huber(z, taus, targets, kappa).sum())(z)
        for a, b in zip(ours, jax.value_and_grad(pairs)(z, taus), strict=True):
            np.testing.assert_allclose(a, b, rtol=1e-5, atol=1e-6)


def test_quantile_huber_is_least_at_the_quantiles():
    """The gradient is zero where the share of targets below z is tau (far from the Huber
    corner)."""
    targets = jnp.linspace(0.0, 1000.0, 1001)[None]
    grad = jax.grad(lambda z: losses.quantile_huber(z, jnp.array([0.1, 0.5, 0.9]), targets).sum())
    np.testing.assert_allclose(grad(jnp.array([[100.0, 500.0, 900.0]])), 0.0, atol=2e-3)
    assert (np.asarray(grad(jnp.array([[50.0, 400.0, 800.0]]))) < -0.02).all()


def test_categorical_projection_equals_algorithm_1_of_the_paper(rng):
    v_min, v_max, atoms = -2.0, 3.0, 6
    dz = (v_max - v_min) / (atoms - 1)
    probs = rng.dirichlet(np.ones(atoms), 5)
    moved = np.concatenate([rng.uniform(-5, 6, (4, atoms)), np.linspace(v_min, v_max, atoms)[None]])
    expected = np.zeros((5, atoms))
    for b, j in itertools.product(range(5), range(atoms)):
        place = (np.clip(moved[b, j], v_min, v_max) - v_min) / dz
        low, high = int(np.floor(place)), int(np.ceil(place))
        if low == high:
            expected[b, low] += probs[b, j]
        else:
            expected[b, low] += probs[b, j] * (high - place)
            expected[b, high] += probs[b, j] * (place - low)
    out = losses.categorical_projection(jnp.float32(moved), jnp.float32(probs), v_min, v_max)
    np.testing.assert_allclose(out, expected, atol=1e-5)
    np.testing.assert_allclose(out.sum(1), 1.0, rtol=1e-5)
    np.testing.assert_allclose(out[4], probs[4], atol=1e-5)  # atoms that did not move
