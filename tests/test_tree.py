"""Helpers on trees."""

from __future__ import annotations

import jax
import jax.numpy as jnp
import numpy as np

from jaxrl_fast import tree


def test_where_broadcasts_over_trailing_axes_and_takes_keys():
    mask = jnp.array([True, False, True])
    a = {"x": jnp.ones((3, 2, 2)), "n": jnp.ones(3, jnp.int32),
         "key": jax.random.split(jax.random.key(0), 3)}
    b = {"x": jnp.zeros((3, 2, 2)), "n": jnp.zeros(3, jnp.int32),
         "key": jax.random.split(jax.random.key(1), 3)}
    out = jax.jit(tree.where)(mask, a, b)
    np.testing.assert_array_equal(out["x"][:, 0, 0], [1, 0, 1])
    np.testing.assert_array_equal(out["n"], [1, 0, 1])
    expected = [jax.random.key_data((a, b)[i]["key"])[j] for i, j in ((0, 0), (1, 1), (0, 2))]
    np.testing.assert_array_equal(jax.random.key_data(out["key"]), expected)


def test_take_and_merge_axes():
    x = {"a": jnp.arange(24).reshape(2, 3, 4), "b": jnp.arange(6).reshape(2, 3)}
    merged = tree.merge_axes(x)
    assert merged["a"].shape == (6, 4) and merged["b"].tolist() == list(range(6))
    np.testing.assert_array_equal(tree.take(merged, jnp.array([4, 0]))["b"], [4, 0])


def test_copy_survives_a_donation():
    state = {"a": jnp.arange(4.0)}
    kept = jax.jit(tree.copy)(state)
    jax.jit(lambda s: jax.tree.map(lambda x: x + 1, s), donate_argnums=0)(state)
    np.testing.assert_array_equal(kept["a"], np.arange(4.0))


def test_strong_and_as_float32_leave_no_weak_type():
    weak = {"a": jnp.asarray(1.0), "b": jnp.asarray(2), "c": jnp.zeros(3, jnp.uint8)}
    strong = tree.strong(weak)
    assert not any(x.weak_type for x in jax.tree.leaves(strong))
    assert [x.dtype.name for x in jax.tree.leaves(strong)] == ["float32", "int32", "uint8"]
    cast = tree.as_float32(
        {"a": 0.5, "b": 3, "c": True, "d": np.float64(2), "e": np.int64(1), "f": jnp.float32(1)})
    assert {k: v.dtype.name for k, v in cast.items()} == {
        "a": "float32", "b": "int32", "c": "bool", "d": "float32", "e": "int32", "f": "float32"
    }  # fmt: skip
    assert not any(x.weak_type for x in jax.tree.leaves(cast))


def test_all_finite_and_nbytes():
    good = {"a": jnp.ones(3), "n": jnp.array([1]), "u": jnp.zeros((2, 2), jnp.uint8)}
    assert bool(tree.all_finite(good)) and bool(tree.all_finite({})) and bool(
        tree.all_finite({"n": jnp.array([1])}))
    for bad in (jnp.nan, jnp.inf):
        assert not bool(tree.all_finite(good | {"b": jnp.array([0.0, bad])}))
        assert not bool(jax.jit(tree.all_finite)(good | {"h": jnp.full(2**15, bad, jnp.bfloat16)}))
    largest = jnp.full(2**15, jnp.finfo(jnp.float32).max)
    assert bool(jax.jit(tree.all_finite)(good | {"b": largest, "c": -largest[:3]}))
    assert tree.nbytes(good) == 12 + 4 + 4
    assert tree.nbytes(jax.eval_shape(lambda: good)) == 20


def test_struct_is_a_pytree_of_all_its_fields():
    @tree.struct
    class Pair:
        a: int
        b: str

    assert jax.tree.leaves(Pair(1, 2)) == [1, 2]


def test_a_class_of_settings_shows_its_settings():
    import inspect

    @tree.settings
    class Own:
        gain: float = 2.0
        size: int = 3

    assert list(inspect.signature(Own).parameters) == ["gain", "size"]
