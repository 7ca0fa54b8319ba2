"""Streams of a run's root key: named in one place, and none meets another."""

from __future__ import annotations

from pathlib import Path

import jax
import numpy as np
import pytest

import jaxrl_fast
from jaxrl_fast.engine import streams
from jaxrl_fast.engine.placement import plan_population

PACKAGE = Path(jaxrl_fast.__file__).parent


def test_no_two_streams_share_a_key(key):
    """The first iterations and rows, and the numbers nearest to the ends of their ranges."""
    times = [0, 1, 2, 2**30, 2**31 - 3, 2**31 - 2, 2**31 - 1]
    found = [streams.init_key(key)]
    for t in times:
        found += [*streams.iteration_keys(key, np.int32(t))]
        found += [streams.evaluation_key(key, t), streams.host_seed_key(key, t)]
    words = {tuple(np.asarray(jax.random.key_data(one)).tolist()) for one in found}
    assert len(words) == len(found)


@pytest.mark.parametrize("size", [1, 3])
def test_root_keys_equal_jaxs(size):
    population = plan_population(size, "auto", jax.devices()[:1])
    found = population.keys([7, 0, 2**32 - 1][:size])
    made = jax.vmap(jax.random.key)(np.array([7, 0, 2**32 - 1], np.uint32))[:size]
    assert found.dtype == made.dtype and found.shape == ((size,) if size > 1 else ())
    words = np.asarray(jax.random.key_data(found)).reshape(size, 2)
    np.testing.assert_array_equal(words, jax.random.key_data(made))


def test_streams_are_numbered_in_one_file():
    """A number from the top of the uint32 range elsewhere would be a stream that nobody sees."""
    for file in PACKAGE.rglob("*.py"):
        if file.name != "streams.py":
            assert "2**32 - 2" not in file.read_text() and "2**32 - 3" not in file.read_text(), file
