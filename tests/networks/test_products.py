"""A dense layer's product: of few inputs or outputs by terms on a GPU."""

from __future__ import annotations

import jax
import jax.numpy as jnp
import numpy as np
import pytest

from jaxrl_fast.networks.layers import FEW_OUTPUTS, affine, product
from jaxrl_fast.ops.precision import products


@pytest.mark.parametrize("inputs, outputs", [(4, 24), (24, 2), (3, 1)])
@pytest.mark.usefixtures("every_platform")
def test_a_gpu_multiplies_few_inputs_or_outputs_by_terms(inputs, outputs, rng, both_forms):
    """Both operands have gradients, under `vmap` too; a CPU's product stays one."""
    x, kernel = (jnp.asarray(rng.normal(size=s), jnp.float32)
                 for s in ((5, 16, inputs), (5, inputs, outputs)))
    gradients = jax.grad(lambda x, w: jnp.sum(jnp.sin(product(x, w))), (0, 1))

    def numbers(x, kernel):
        with products():
            return jax.vmap(product)(x, kernel), jax.vmap(gradients)(x, kernel)

    ours, gpus = both_forms(numbers, x, kernel)
    np.testing.assert_allclose(ours[0], np.einsum("bni,bio->bno", x, kernel), rtol=1e-4, atol=1e-5)
    jax.tree.map(lambda a, b: np.testing.assert_allclose(a, b, rtol=1e-4, atol=1e-5), ours, gpus)

    def dots(on, precision="highest", rows=16):
        with products(precision):
            return (
                jax.jit(product).trace(
                    x[0, :rows], kernel[0]
                ).lower(lowering_platforms=(on,)).as_text().count("dot_general")
            )

    assert (dots("cpu"), dots("cuda"), dots("cuda", "tf32")) == (1, 0, 1)
    # of few rows and outputs XLA fuses a product with its consumers, not with slices of its inputs
    assert dots("cuda", rows=4) == (outputs <= FEW_OUTPUTS)


@pytest.mark.usefixtures("every_platform")
def test_a_head_of_two_outputs_is_one_reduction_on_a_gpu(rng, both_forms):
    x, kernel, bias = (jnp.asarray(rng.normal(size=s), jnp.float32)
                       for s in ((16, 24), (24, 2), (2,)))
    gradients = jax.grad(lambda *args: jnp.sum(jnp.sin(affine(*args))), (0, 1, 2))

    def numbers(*args):
        with products():
            return affine(*args), gradients(*args)

    ours, gpus = both_forms(numbers, x, kernel, bias)
    np.testing.assert_allclose(ours[0], x @ kernel + bias, rtol=1e-4, atol=1e-5)
    jax.tree.map(lambda a, b: np.testing.assert_allclose(a, b, rtol=1e-4, atol=1e-5), ours, gpus)

    def reductions(on):
        with products():
            lowered = jax.jit(affine).trace(x, kernel, bias).lower(lowering_platforms=(on,))
            return lowered.as_text().count("stablehlo.reduce")

    assert (reductions("cpu"), reductions("cuda")) == (0, 1)
