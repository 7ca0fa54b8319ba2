"""The actor's and the critic's torso: one batched product, or two, by the number of rows and the
platform."""

import re

import jax
import jax.numpy as jnp
import numpy as np
import pytest

import jaxrl_fast as jf
from jaxrl_fast.algorithms.common import actor_critic


def features(rows: int):
    """A PPO's features, its parameters, and a batch of so many observations of CartPole."""
    algo = jf.PPO(hidden=(16, 16)).bind(jf.make("CartPole-v1").spec)
    params = algo.init(jax.random.key(0)).params
    return algo.networks.features, params, jax.random.normal(jax.random.key(1), (rows, 4))


@pytest.mark.parametrize("rows", [16, actor_critic.ROWS_APART])
def test_many_rows_are_two_products_on_a_gpu(rows):
    call, params, obs = features(rows)

    def batched(platform):
        text = jax.jit(call).trace(params, obs).lower(lowering_platforms=(platform,)).as_text()
        return bool(re.search(r"dot_general.*batching_dims", text))

    assert batched("cpu") and batched("cuda") == (rows < actor_critic.ROWS_APART)


def test_both_forms_give_the_same_features_and_gradients(both_forms):
    call, params, obs = features(actor_critic.ROWS_APART)
    slopes = jax.grad(
        lambda params, obs: sum(jnp.sum(jnp.sin(x)) / len(obs) for x in call(params, obs)))
    found = [jax.tree.leaves(x)
             for x in both_forms(lambda params, obs: (call(params, obs), slopes(params, obs)),
                                 params, obs)]
    for a, b in zip(*found, strict=True):
        np.testing.assert_allclose(a, b, rtol=1e-4, atol=1e-6)
