"""The optimizers against Adam and RMSProp written out in NumPy."""

from __future__ import annotations

import jax
import jax.numpy as jnp
import numpy as np
import pytest

from jaxrl_fast.ops import lowering, optim
from jaxrl_fast.ops.scopes import OPTIMIZER

PARAMS = {"w": jnp.array([[1.0, 2.0], [3.0, 4.0]]), "b": jnp.array([0.5])}


def gradients(step):
    rng = np.random.default_rng(step)
    return {"w": rng.normal(size=(2, 2)).astype(np.float32),
            "b": rng.normal(size=1).astype(np.float32)}


@pytest.mark.parametrize("clip", [None, 0.5, 100.0])
def test_adam_with_global_norm_clipping(clip):
    rate, eps = 0.1, 1e-5
    expected = {k: np.asarray(v, np.float64) for k, v in PARAMS.items()}
    m = dict.fromkeys(PARAMS, 0.0)
    v = dict.fromkeys(PARAMS, 0.0)
    tx = optim.adam(clip, eps)
    params, state = PARAMS, tx.init(PARAMS)

    @jax.jit
    def step(clip, rate, params, grads, state):  # clip and rate are traced, as in a sweep
        return optim.apply(optim.adam(clip, eps), rate, params, grads, state)

    for i in range(1, 4):
        grads = gradients(i)
        norm = np.sqrt(sum((g.astype(np.float64) ** 2).sum() for g in grads.values()))
        assert float(optim.global_norm(grads)) == pytest.approx(norm, rel=1e-6)
        scale = 1.0 if clip is None or norm < clip else clip / norm  # over all parameters at once
        for name, g in grads.items():
            g = g.astype(np.float64) * scale
            m[name] = 0.9 * m[name] + 0.1 * g
            v[name] = 0.999 * v[name] + 0.001 * g**2
            direction = (m[name] / (1 - 0.9**i)) / (np.sqrt(v[name] / (1 - 0.999**i)) + eps)
            expected[name] = expected[name] - rate * direction
        params, state = step(clip, rate, params, grads, state)
        for name in PARAMS:
            np.testing.assert_allclose(params[name], expected[name], rtol=1e-5)
            assert params[name].dtype == jnp.float32


@pytest.mark.parametrize("clip", [None, 0.5])
def test_rmsprop_is_tensorflows(clip):
    """v from 1, epsilon within the root; settings traced."""
    rate, eps, decay = 0.1, 1e-3, 0.9

    @jax.jit
    def step(clip, eps, decay, params, grads, state):
        return optim.apply(optim.rmsprop(clip, eps, decay), rate, params, grads, state)

    params, state = PARAMS, optim.rmsprop(clip).init(PARAMS)
    expected, v = (
        {k: np.asarray(x, np.float64) for k, x in PARAMS.items()}, dict.fromkeys(PARAMS, 1.0))
    for i in range(1, 4):
        grads = gradients(i)
        norm = np.sqrt(sum((g.astype(np.float64) ** 2).sum() for g in grads.values()))
        params, state = step(clip, eps, decay, params, grads, state)
        for name, g in grads.items():
            g = g.astype(np.float64) * (1.0 if clip is None else min(1.0, clip / norm))
            v[name] = decay * v[name] + (1 - decay) * g**2
            expected[name] = expected[name] - rate * g / np.sqrt(v[name] + eps)
            np.testing.assert_allclose(params[name], expected[name], rtol=1e-5)
            assert params[name].dtype == jnp.float32


def test_polyak_averages_and_copies_exactly_at_tau_one():
    target, params = {"a": jnp.array([0.0, 4.0])}, {"a": jnp.array([1.0, 8.0])}
    np.testing.assert_allclose(optim.polyak(target, params, 0.25)["a"], [0.25, 5.0])
    drawn = (
        {"a": jnp.asarray(np.random.default_rng(0).normal(size=1000)
                          * 10.0 ** np.arange(-9, 1).repeat(100), jnp.float32)}
    )
    np.testing.assert_array_equal(optim.polyak(jax.tree.map(jnp.ones_like, drawn), drawn, 1.0)["a"],
                                  drawn["a"])
    np.testing.assert_array_equal(optim.polyak(target, params, 0.0)["a"], target["a"])


@pytest.mark.parametrize(("due", "other"), [(True, jnp.float32), (False, jnp.float32),
                                            (True, jnp.bfloat16)])
def test_a_target_moves_when_it_is_due(due, other, both_forms):
    """On a GPU as vectors, if all parameters have one dtype."""
    target = {"a": jnp.arange(6.0).reshape(2, 3), "b": jnp.ones(optim.SMALL + 1),
              "c": jnp.full(4, 8, other)}
    params = jax.tree.map(lambda x: 2 * x + 1, target)
    moved = optim.polyak(target, params, 0.25) if due else target
    move = lambda due, target, params: optim.move_target(due, target, params, 0.25)
    for found in both_forms(move, jnp.array(due), target, params):
        jax.tree.map(np.testing.assert_array_equal, found, moved)
    with lowering.known("cuda"):
        made = jax.make_jaxpr(move)(jnp.array(due), target, params).jaxpr
    assert any(OPTIMIZER in str(eqn.source_info.name_stack) for eqn in made.eqns)


def texts(function, *args):
    """Return the programs for a CPU and for a GPU."""
    with lowering.known(lowering.ALL):
        traced = jax.jit(function).trace(*args)
    return [traced.lower(lowering_platforms=(on,)).as_text() for on in ("cpu", "cuda")]


def norms(text):
    """Return the number of reductions of a program."""
    return text.count("stablehlo.reduce(")


@pytest.mark.parametrize("make", [optim.adam, optim.radam, optim.rmsprop])
def test_a_gpu_steps_on_one_vector(make, both_forms, rng):
    """Equal parameters and a state of the same form; one norm instead of one a large leaf."""
    params = {name: jnp.asarray(rng.normal(size=(65, 64)), jnp.float32) for name in "uvw"}
    params |= {"b": jnp.zeros(64)}
    grads = jax.tree.map(lambda x: 3.0 * x + 1.0, params)
    state = make(0.5).init(params)

    def steps(params, grads, state):
        for _ in range(2):
            params, state = optim.apply(make(0.5), 0.1, params, grads, state)
        return params, state

    ours, gpus = both_forms(steps, params, grads, state)
    jax.tree.map(lambda x, y: np.testing.assert_allclose(x, y, rtol=2e-6, atol=1e-6), ours, gpus)
    assert [norms(x) for x in texts(steps, params, grads, state)] == [2 * 4, 2]


@pytest.mark.parametrize(("clip", "size"), [(0.5, optim.VECTOR // 2 + 1), (None, optim.SMALL + 1)])
def test_a_gpu_joins_nothing_large_and_nothing_without_a_norm(clip, size):
    params = {"u": jnp.ones(size), "v": jnp.ones(size)}
    step = lambda state: optim.apply(optim.adam(clip), 0.1, params, params, state)
    state = optim.adam(clip).init(params)
    cpu, gpu = texts(step, state)
    assert cpu == gpu
