"""A step of physics as a GPU gets it: the same numbers with fewer operations in its loop."""

from __future__ import annotations

from types import SimpleNamespace

import jax
import jax.numpy as jnp
import numpy as np
import pytest

import jaxrl_fast as jf
from jaxrl_fast.envs.physics.rewritten import rewritten
from jaxrl_fast.ops import lowering

PARENTS = np.array([-1, 0, 0, 2, 1, 7])  # -1: the last; 7: out of bounds, dropped
FRAME = np.linspace(-1.0, 1.0, 9, dtype=np.float32).reshape(3, 3)


def substeps(x, far):
    """x [6, 3] through three substeps with sums into segments, small products and constants."""

    @jax.jit
    def frame(x, frame):
        return x @ jnp.linalg.matrix_power(frame, 3)  # the power needs constants alone

    def substep(x, t):
        x = jnp.sin(frame(x, jnp.asarray(FRAME)) + t)
        pulled = jnp.zeros((5, 3)).at[PARENTS].add(x, mode="drop")
        return x + jnp.concatenate([pulled, (far * x.sum()) @ far.T @ x[:1]]), x.sum()

    return jax.lax.scan(substep, x, jnp.arange(3.0))


def test_a_step_is_the_same_to_rounding(rng):
    x = jnp.asarray(rng.normal(size=(4, 6, 3)), jnp.float32)
    # small, or substeps amplify rounding
    far = jnp.asarray(0.2 * rng.normal(size=(4, 1, 12)), jnp.float32)
    each = jax.vmap(substeps)
    wanted = each(x, far)
    flat = lambda *args: jax.tree.leaves(each(*args))
    found = jax.jit(lambda x, far: rewritten(flat, x, far))(x, far)
    close = lambda a, b: np.testing.assert_allclose(a, b, rtol=1e-5, atol=1e-5)
    jax.tree.map(close, [*found], jax.tree.leaves(wanted))


def test_a_rewritten_loop_holds_no_scatters_small_products_or_work_on_constants():
    args = jnp.zeros((4, 6, 3)), jnp.zeros((4, 1, 12))
    each = lambda *args: jax.tree.leaves(jax.vmap(substeps)(*args))
    loop = lambda f: next(e for e in jax.make_jaxpr(f)(*args).jaxpr.eqns
                          if e.primitive.name == "scan").params["jaxpr"]
    text = str(loop(lambda *args: rewritten(each, *args)))
    # the long one stays
    assert str(loop(each)).count("dot_general") > text.count("dot_general") == 1
    assert "scatter" in str(loop(each)) and "scatter" not in text


@pytest.mark.matrix("tests/envs/test_brax.py::test_the_adapter_steps_and_draws_as_brax_does")
@pytest.mark.parametrize("backend",
                         ["positional", pytest.param("generalized", marks=pytest.mark.slow)])
def test_brax_steps_the_same(backend, both_forms):
    env = jf.make("brax/inverted_pendulum", backend=backend)
    state, _ = env.init(jax.random.key(0), 3)
    step = lambda state, action: env.transition((), state, action)
    ours, gpus = both_forms(step, state, jnp.linspace(-1.0, 1.0, 3)[:, None])
    jax.tree.map(lambda a, b: np.testing.assert_allclose(a, b, rtol=1e-4, atol=1e-5), gpus, ours)


def test_a_process_without_a_gpu_spares_the_second_trace(monkeypatch):
    client = SimpleNamespace(platform_version="cuda 12090")
    device = SimpleNamespace(platform="gpu", client=client)
    for devices, reached in ((jax.devices("cpu"), False), ([device], True)):
        monkeypatch.setattr(jax, "devices", lambda *_, found=devices: found)
        assert lowering.reaches_a_gpu() == reached
        with lowering.known(lowering.ALL):
            assert lowering.platform() is None and lowering.reaches_a_gpu() == reached
        for platform in ("cpu", "cuda"):
            with lowering.known(platform):
                assert lowering.reaches_a_gpu() == (platform == "cuda")


def test_programs_are_traced_for_the_default_device():
    for chosen in ("cpu", jax.devices("cpu")[0]):
        with jax.default_device(chosen):
            assert lowering.platform() == "cpu"
