"""Counts of traced programs: arithmetic, bytes and what a GPU launches."""

from __future__ import annotations

import jax
import jax.numpy as jnp
import pytest

from jaxrl_fast.forecast import work
from jaxrl_fast.ops.lowering import on_gpu
from jaxrl_fast.profiling import hlo

X = jax.ShapeDtypeStruct((16, 32), jnp.float32)
SQUARE = jax.ShapeDtypeStruct((16, 16), jnp.float32)
W = jax.ShapeDtypeStruct((32, 64), jnp.float32)


def count(fn, *args, platform="cpu"):
    return work.of(fn, *args, platform=platform)


def test_a_product_has_its_arithmetic_and_bytes():
    found = count(lambda x, w: x @ w, X, W)
    assert found["products"] == 1 and found["flops"] == 2 * 16 * 32 * 64
    assert found["bytes"] == 4 * (16 * 32 + 32 * 64 + 16 * 64)


def test_a_convolution_has_its_arithmetic():
    image = jax.ShapeDtypeStruct((2, 10, 10, 4), jnp.float32)
    kernel = jax.ShapeDtypeStruct((3, 3, 4, 8), jnp.float32)
    names = ("NHWC", "HWIO", "NHWC")
    convolve = lambda x, k: jax.lax.conv_general_dilated(
        x, k, (1, 1), "VALID", dimension_numbers=names
    )
    assert count(convolve, image, kernel)["flops"] == 2 * (2 * 8 * 8 * 8) * (3 * 3 * 4)


def test_the_compiled_program_has_the_arithmetic_of_the_traced_one():
    loss = lambda w, v, x: jnp.sum(jnp.tanh(jnp.tanh(x @ w) @ v))
    shapes = [jax.ShapeDtypeStruct(shape, jnp.float32) for shape in ((32, 64), (64, 64), (48, 32))]
    gradient = jax.grad(loss, argnums=(0, 1))
    module = hlo.parse(jax.jit(gradient).lower(*shapes).compile().as_text())
    *_, entry = module.computations.values()
    compiled = sum(module.cost(one.name).flops for one in entry)
    traced = count(gradient, *shapes)["flops"]
    assert traced <= compiled < 1.1 * traced  # elementwise operations count there alone


@pytest.mark.parametrize("write", [
    lambda ring, rows: jax.lax.dynamic_update_slice(ring, rows, (0, 0)),
    lambda ring, rows: ring.at[jnp.arange(16)].set(rows),
    lambda ring, rows: ring.at[jnp.arange(16)].add(rows),
])
def test_a_write_into_an_array_moves_the_written_part(write):
    ring = jax.ShapeDtypeStruct((100_000, 32), jnp.float32)
    assert count(write, ring, X)["bytes"] == 2 * 4 * 16 * 32


def test_a_product_of_few_terms_is_part_of_another_kernel():
    short = jax.ShapeDtypeStruct((3, 3), jnp.float32)
    found = count(lambda x: x @ x, short)
    assert found["products"] == 0 and found["tiny"] == 1


@pytest.mark.parametrize(("unroll", "turns"), [(1, 12), (4, 3)])
def test_a_loop_counts_each_turn_of_its_body(unroll, turns):
    step = lambda c, _: (jnp.tanh(c @ c), jnp.sum(c))
    loop = lambda x: jax.lax.scan(step, x, length=12, unroll=unroll)
    found = count(loop, SQUARE)
    assert (found["products"], found["reductions"], found["turns"]) == (12, 12, turns)


def test_a_loop_without_a_known_end_counts_once():
    found = count(lambda x: jax.lax.while_loop(lambda c: c[0, 0] < 3, lambda c: c @ c, x), SQUARE)
    assert found["products"] == 1 and found["open"] == 1


@pytest.mark.parametrize(("platform", "products"), [("cuda", 2), ("cpu", 1), ("tpu", 1)])
@pytest.mark.usefixtures("every_platform")
def test_the_branch_of_the_platform_counts(platform, products):
    choose = lambda x: on_gpu(lambda x: (x @ x) @ x, lambda x: x @ x, x)
    assert count(choose, SQUARE, platform=platform)["products"] == products


def test_the_larger_side_of_a_branch_over_data_counts():
    fn = lambda x: jax.lax.cond(x[0, 0] > 0, lambda: x @ x @ x, lambda: x)
    assert count(fn, SQUARE)["products"] == 2


def test_gradients_and_jitted_functions_are_looked_into():
    loss = jax.grad(jax.jit(lambda w, x: jnp.sum(jax.nn.relu(x @ w))))
    assert count(loss, W, X)["products"] == 2  # forward, and of the weights
