"""Two torsos or several critics: one batched product or one each, by rows, platform and jaxlib."""

import re

import jax
import jax.numpy as jnp
import numpy as np
import pytest

import jaxrl_fast as jf
from helpers.matrix import family
from jaxrl_fast import runtime, tree
from jaxrl_fast.algorithms.common import actor_critic
from jaxrl_fast.ops import lowering
from jaxrl_fast.ops.lowering import over_networks


def features(rows: int):
    """A PPO's features, its parameters, and a batch of so many observations of CartPole."""
    algo = jf.PPO(hidden=(16, 16)).bind(jf.make("CartPole-v1").spec)
    params = jax.jit(algo.init)(jax.random.key(0)).params
    return algo.networks.features, params, jax.random.normal(jax.random.key(1), (rows, 4))


@pytest.mark.parametrize("rows", [16, actor_critic.ROWS_APART])
@pytest.mark.usefixtures("every_platform")
def test_many_rows_are_two_products_on_a_gpu(rows):
    call, params, obs = features(rows)

    def batched(platform):
        text = jax.jit(call).trace(params, obs).lower(lowering_platforms=(platform,)).as_text()
        return bool(re.search(r"dot_general.*batching_dims", text))

    small = rows * 16 * 16 < lowering.SMALL_PRODUCT
    assert batched("cpu") == (not (small and runtime.divides_batches()))
    assert batched("cuda") == (rows < actor_critic.ROWS_APART) and batched("tpu")


@pytest.mark.parametrize("rows", [16, actor_critic.ROWS_APART])
def test_both_forms_give_the_same_features_and_gradients(rows, both_forms):
    call, params, obs = features(rows)
    slopes = jax.grad(
        lambda params, obs: sum(jnp.sum(jnp.sin(x)) / len(obs) for x in call(params, obs)))
    found = [jax.tree.leaves(x)
             for x in both_forms(lambda params, obs: (call(params, obs), slopes(params, obs)),
                                 params, obs)]
    for a, b in zip(*found, strict=True):
        np.testing.assert_allclose(a, b, rtol=1e-4, atol=1e-6)


def test_stacked_networks_give_what_each_gives(both_forms):
    params = {"kernel": jax.random.normal(jax.random.key(0), (3, 4, 5)), "bias": jnp.ones((3, 5))}
    x = jax.random.normal(jax.random.key(1), (7, 4))
    one = lambda params: {"out": jnp.sin(x @ params["kernel"] + params["bias"]),
                          "mean": params["bias"].mean()}
    total = lambda out: sum(jnp.sum(jnp.square(x)) for x in jax.tree.leaves(out))

    def of_stack(params):
        call = lambda params: over_networks(one, params, 3, len(x))
        return call(params), jax.grad(lambda params: total(call(params)))(params)

    alone = [(one(p), jax.grad(lambda p: total(one(p)))(p))
             for p in (tree.take(params, i) for i in range(3))]
    wanted = jax.tree.map(lambda *x: np.stack(x), *alone)
    for found in both_forms(of_stack, params):
        jax.tree.map(lambda a, b: np.testing.assert_allclose(a, b, rtol=1e-4, atol=1e-5),
                     found, wanted)


@pytest.mark.parametrize("algo", family([jf.SAC, jf.TD3, jf.TQC], 1))
def test_no_batched_product_where_a_cpu_divides_it_among_threads(algo):
    """jaxlib 0.11 trained SAC at half the speed on two busy cores."""
    made = algo(num_envs=2, hidden=(8, 8), critic_hidden=(8, 8), buffer_size=64, batch_size=16,
                learning_starts=16)
    train = jax.jit(jf.make_train(made, jf.make("Pendulum-v1"), total_steps=64))
    text = train.trace(jax.random.key(0)).lower(lowering_platforms=("cpu",)).as_text()
    batched = bool(re.search(r"dot_general.*batching_dims", text))
    assert batched == (not runtime.divides_batches())
