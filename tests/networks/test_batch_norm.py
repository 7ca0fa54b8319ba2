"""Batch renormalisation against NumPy, and the MLP that it stands in."""

from __future__ import annotations

import flax.linen as nn
import jax
import jax.numpy as jnp
import numpy as np
import pytest

from helpers.matrix import family
from jaxrl_fast.networks import BatchNormMLP, initialize
from jaxrl_fast.networks.torsos import BatchRenorm
from jaxrl_fast.spaces import Box

ROWS, WIDTH, MOMENTUM, EPS = 7, 4, 0.8, 1e-3
MAX_R, MAX_D = 1.5, 0.6  # narrow, so that some of both are clipped


def variables(rng, updates):
    normal = lambda: rng.normal(size=WIDTH).astype(np.float32)
    stats = {"mean": normal(), "var": np.float32([0.1, 0.9, 1.1, 6.0]),
             "updates": np.float32(updates)}
    return {"params": {"scale": normal(), "bias": normal()}, "batch_stats": stats}


def module(train):
    return BatchRenorm(train, MOMENTUM, warmup=3, max_r=MAX_R, max_d=MAX_D, epsilon=EPS)


def by_hand(v, x, updates):
    """Ioffe 2017, algorithm 1, in float64 -> (y, r, d)."""
    stats = v["batch_stats"]
    mean, std = x.mean(0), np.sqrt(x.var(0) + EPS)
    running = np.sqrt(stats["var"] + EPS)
    r, d = np.ones(WIDTH), np.zeros(WIDTH)
    if updates >= 3:
        r = np.clip(std / running, 1 / MAX_R, MAX_R)
        d = np.clip((mean - stats["mean"]) / running, -MAX_D, MAX_D)
    return ((x - mean) / std * r + d) * v["params"]["scale"] + v["params"]["bias"], r, d


@pytest.mark.parametrize("updates", [0, 2, 3, 500])
def test_training_equals_numpy(updates, rng):
    v, x = variables(rng, updates), rng.normal(0.5, 1.3, (ROWS, WIDTH)).astype(np.float32)
    y, seen = module(True).apply(v, x, mutable=["batch_stats"])
    expected, r, d = by_hand(v, x.astype(np.float64), updates)
    np.testing.assert_allclose(y, expected, rtol=1e-4, atol=1e-5)
    stats = v["batch_stats"]
    if updates >= 3:
        plain, _, _ = by_hand(v, x.astype(np.float64), 0)
        assert (r == MAX_R).any() or (r == 1 / MAX_R).any()
        assert (
            (np.abs(d) == MAX_D).any() and ((r != 1) & (np.abs(d) < MAX_D)).any()
            and np.abs(expected - plain).max() > 0.1
        )
    np.testing.assert_allclose(seen["batch_stats"]["mean"],
                               MOMENTUM * stats["mean"] + (1 - MOMENTUM) * x.mean(0), rtol=1e-5)
    np.testing.assert_allclose(seen["batch_stats"]["var"],
                               MOMENTUM * stats["var"] + (1 - MOMENTUM) * x.var(0), rtol=1e-5)
    assert seen["batch_stats"]["updates"] == updates + 1


def test_running_statistics_are_used_and_fixed_outside_training(rng):
    v, x = variables(rng, 500), rng.normal(0.5, 1.3, (ROWS, WIDTH)).astype(np.float32)
    y, seen = module(False).apply(v, x, mutable=["batch_stats"])
    stats, params = v["batch_stats"], v["params"]
    expected = (x - stats["mean"]) / np.sqrt(stats["var"] + EPS) * params["scale"] + params["bias"]
    np.testing.assert_allclose(y, expected, rtol=1e-4, atol=1e-5)
    for name, x in seen["batch_stats"].items():
        np.testing.assert_array_equal(x, stats[name])


@pytest.mark.parametrize("updates", [0, 3])
def test_no_gradient_passes_r_d_and_the_running_statistics(updates, rng):
    """The gradient of x has r and d held constant; the gradient of the running statistics is
    zero."""
    v, x = variables(rng, updates), rng.normal(0.5, 1.3, (ROWS, WIDTH)).astype(np.float32)
    w = rng.normal(size=(ROWS, WIDTH)).astype(np.float32)

    def loss(v, x):
        y, seen = module(True).apply(v, x, mutable=["batch_stats"])
        return jnp.sum(w * y) + sum(jnp.sum(leaf) for leaf in jax.tree.leaves(seen))

    in_variables, in_x = jax.grad(loss, argnums=(0, 1))(v, x)
    stats = in_variables["batch_stats"]
    assert not np.asarray(stats["mean"]).any() and not np.asarray(stats["var"]).any()
    _, r, _ = by_hand(v, x.astype(np.float64), updates)
    std = np.sqrt(x.var(0) + EPS)
    normal, slope = (x - x.mean(0)) / std, w * v["params"]["scale"] * r
    # of batch normalisation
    expected = (slope - slope.mean(0) - normal * (slope * normal).mean(0)) / std
    np.testing.assert_allclose(in_x, expected, rtol=1e-3, atol=1e-4)


@pytest.mark.parametrize("action", family([False, True], [False]))
def test_the_mlp_renormalises_its_input_and_every_layer(action, rng):
    space = Box(-1, 1, (3,))
    mlp = BatchNormMLP(space, (5, 6), "relu", None, action, True, MOMENTUM)
    x = rng.normal(2, 3, (ROWS, 3)).astype(np.float32)
    x = {"observation": x, "action": rng.normal(size=(ROWS, 2)).astype(np.float32)} if action else x
    torso = {"torso": (mlp.clone(train=False), x)}
    v = jax.device_get(jax.jit(lambda key: initialize(key, torso))(jax.random.key(0))["torso"])
    widths = (5, 5, 6) if action else (3, 5, 6)
    assert (
        [v["batch_stats"][f"BatchRenorm_{i}"]["mean"].shape for i in range(3)]
        == [(n,) for n in widths]
    )
    y, seen = jax.jit(lambda v, x: mlp.apply(v, x, mutable=["batch_stats"]))(v, x)
    expected = np.concatenate([x["observation"], x["action"]], 1) if action else x
    norm = lambda x: (x - x.mean(0)) / np.sqrt(x.var(0) + EPS)
    expected = norm(expected)
    for i in range(2):
        layer = v["params"][f"Dense_{i}"]
        expected = norm(np.maximum(expected @ layer["kernel"] + layer["bias"], 0))
    np.testing.assert_allclose(y, expected, rtol=1e-3, atol=1e-4)
    assert all(seen["batch_stats"][f"BatchRenorm_{i}"]["updates"] == 1 for i in range(3))


def test_a_users_torso_gets_a_key_and_its_features_are_renormalised():
    class Halves(nn.Module):
        @nn.compact
        def __call__(self, x):
            return nn.Dense(4)(x) / 2

    mlp = BatchNormMLP(Box(-1, 1, (3,)), (5,), torso=Halves(), action=True)
    x = {"observation": jnp.ones((2, 3)), "action": jnp.ones((2, 2))}
    v = jax.eval_shape(lambda: initialize(jax.random.key(0), {"torso": (mlp, x)})["torso"])
    assert v["params"]["torso"]["Dense_0"]["kernel"].shape == (3, 4)
    assert v["batch_stats"]["BatchRenorm_0"]["mean"].shape == (6,)
