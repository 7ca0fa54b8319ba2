"""Sine and cosine by polynomials equal NumPy's in float64, and so do their derivatives."""

from __future__ import annotations

import jax
import jax.numpy as jnp
import numpy as np
import pytest

from jaxrl_fast.ops import angles


@pytest.mark.parametrize("largest", [0.3, 4.0, 100.0, 1e5])
def test_angles_up_to_1e5_are_right_to_rounding(largest):
    x = np.random.default_rng(0).uniform(-largest, largest, 10_000).astype(np.float32)
    sine, cosine = jax.jit(angles.by_polynomials)(x)
    np.testing.assert_allclose(sine, np.sin(x.astype(np.float64)), rtol=0, atol=1.2e-7)
    np.testing.assert_allclose(cosine, np.cos(x.astype(np.float64)), rtol=0, atol=1.2e-7)


def test_quarters_and_numbers_that_are_not_finite():
    x = jnp.array([0.0, jnp.pi / 2, jnp.pi, -jnp.pi / 2, jnp.inf, jnp.nan])
    sine, cosine = angles.by_polynomials(x)
    np.testing.assert_allclose(sine, [0, 1, 0, -1, np.nan, np.nan], atol=1.2e-7)
    np.testing.assert_allclose(cosine, [1, 0, -1, 0, np.nan, np.nan], atol=1.2e-7)


def test_both_forms_have_equal_derivatives(both_forms):
    x = jnp.linspace(-9.0, 9.0, 101)
    slopes = jax.vmap(jax.grad(lambda x: angles.sin_cos(x)[0] - 2 * angles.sin_cos(x)[1]))
    cpu, cuda = both_forms(slopes, x)
    np.testing.assert_allclose(cuda, cpu, atol=5e-7)
