"""`tree.all_finite` on agents with one number that is not finite."""

from __future__ import annotations

import jax
import jax.numpy as jnp
import numpy as np
import pytest

from jaxrl_fast import tree

SIZES = {"small": (3,), "large": (tree.JOINED + 1,), "other large": (tree.JOINED + 1,),
         "rows": (200, 100), "empty": (0,)}  # fmt: skip


def agent():
    largest = np.finfo(np.float32).max
    leaves = {name: np.full(shape, largest, np.float32) for name, shape in SIZES.items()}
    return leaves | {"half": np.ones(2, jnp.bfloat16), "count": np.int32(1)}


@pytest.mark.parametrize("value", [np.nan, np.inf, -np.inf])
def test_one_number_that_is_not_finite_is_found_in_every_leaf(value):
    check = jax.jit(tree.all_finite)
    assert check(agent())
    for name in ("small", "large", "other large", "rows", "half"):
        broken = agent()
        broken[name].flat[-1] = value
        assert not check(broken), name


def test_an_agent_without_numbers_is_finite():
    assert tree.all_finite({}) and tree.all_finite({"count": jnp.int32(1)})
