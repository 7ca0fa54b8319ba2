"""Convolution by matrix products against XLA's own, and the packed optimizer against optax on the
bare tree."""

import jax
import jax.numpy as jnp
import numpy as np
import optax
import pytest

from helpers.matrix import family
from jaxrl_fast.networks import layers
from jaxrl_fast.ops import optim


@pytest.mark.parametrize(
    ("pixels", "channels", "size", "stride"),
    [((10, 10), 4, 3, 1), ((21, 16), 3, 8, 4), ((9, 12), 2, 4, 2), ((13, 11), 3, 4, 3),
     ((3, 3), 1, 3, 1)],
)
def test_products_are_the_convolution(pixels, channels, size, stride):
    keys = jax.random.split(jax.random.key(0), 2)
    x = jax.random.normal(keys[0], (2, *pixels, channels))
    w = jax.random.normal(keys[1], (size, size, channels, 5))

    def value_and_gradients(convolve):
        fn = lambda x, w: jnp.sum(jnp.sin(convolve(x, w, stride)))
        return convolve(x, w, stride), *jax.grad(fn, argnums=(0, 1))(x, w)

    ours, xla = (jax.jit(lambda c=c: value_and_gradients(c))()
                 for c in (layers.convolve, layers.convolve_xla))
    for a, b in zip(ours, xla, strict=True):
        np.testing.assert_allclose(a, b, rtol=1e-4, atol=1e-4)


@pytest.mark.usefixtures("every_platform")
def test_no_convolution_is_left_in_a_cpu_program():
    """The gradient of a kernel takes XLA's CPU backend up to a hundred times its arithmetic."""
    loss = lambda x, w: jnp.sum(jnp.square(layers.convolve(x, w, 1)))
    lowered = jax.jit(jax.grad(loss, argnums=1)).trace(jnp.ones((2, 5, 5, 1)),
                                                       jnp.ones((3, 3, 1, 2)))
    assert "convolution" not in lowered.lower(lowering_platforms=("cpu",)).as_text()
    assert "convolution" in lowered.lower(lowering_platforms=("cuda",)).as_text()


@pytest.mark.parametrize("shapes", family(
    [[(3, 4), (70, 60), (5,)], [(70, 60)], [(2,), (3, 1)]], lambda shapes: len(shapes) < 3))
def test_packing_changes_no_step(shapes):
    params = [jax.random.normal(jax.random.key(i), shape) for i, shape in enumerate(shapes)]
    grads = [10 * x + 1 for x in params]
    packed = optim.adam(0.5)
    plain = optax.chain(optax.clip_by_global_norm(0.5), optax.scale_by_adam())
    ours, theirs = packed.init(params), plain.init(params)
    for _ in range(2):
        a, ours = optim.apply(packed, 1.0, params, grads, ours)
        b, theirs = plain.update(grads, theirs)
        for x, y, p in zip(a, b, params, strict=True):
            assert x.shape == p.shape
            np.testing.assert_allclose(x, p - y, rtol=1e-5)
