"""Places that are never negative equal NumPy's."""

from __future__ import annotations

import jax
import jax.numpy as jnp
import numpy as np
import pytest

from jaxrl_fast.ops import places


@pytest.mark.parametrize("by", [1, 2, 7, 1000])
@pytest.mark.parametrize("dtype", [np.int32, np.uint32])
def test_quotient_and_remainder_are_numpys(by, dtype):
    x = np.array([0, 1, 6, 7, 8, 999, 2**31 - 1], dtype)
    np.testing.assert_array_equal(places.quotient(x, by), x // by)
    np.testing.assert_array_equal(places.remainder(x, by), x % by)
    assert places.quotient(x, by).dtype == places.remainder(x, by).dtype == dtype


def test_taking_and_putting_are_numpys():
    x, rows, columns = np.arange(60).reshape(5, 4, 3), np.array([4, 0, 2]), np.array([3, 3, 0])
    np.testing.assert_array_equal(places.take(jnp.asarray(x), rows, columns), x[rows, columns])
    np.testing.assert_array_equal(places.take_block(jnp.asarray(x), jnp.int32(2), 3), x[2:])
    found = places.put(jnp.arange(9), jnp.array([10, 11, 12]), rows)
    np.testing.assert_array_equal(found, [11, 1, 12, 3, 10, 5, 6, 7, 8])
    expected, new = x.copy(), np.zeros((3, 3), int)
    expected[rows, columns] = new
    found = places.put(jnp.asarray(x), jnp.asarray(new), rows, columns)
    np.testing.assert_array_equal(found, expected)
    found = places.put_block(jnp.asarray(x), jnp.zeros((2, 4, 3), int), jnp.int32(1))
    np.testing.assert_array_equal(found, np.concatenate([x[:1], 0 * x[1:3], x[3:]]))


def test_scalars_together_are_themselves():
    found = jax.jit(places.together)(jnp.int32(3), jnp.int32(8))
    assert [int(x) for x in found] == [3, 8]


def test_blocks_have_places_of_one_dtype_with_64_bits():
    with jax.enable_x64(True):
        x, start = jnp.zeros((5, 2), jnp.float32), jnp.int32(1)
        assert places.put_block(x, places.take_block(x, start, 2) + 1, start).sum() == 4
