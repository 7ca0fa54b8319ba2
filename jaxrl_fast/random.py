"""Random numbers for inner loops: JAX's threefry2x32, unrolled so that XLA fuses it.

The cipher, its keys and its quality are those of `jax.random` (Salmon et al. 2011, "Parallel random
numbers: as easy as 1, 2, 3"); the streams differ. Functions of the key alone, elementwise: under
`vmap` every lane equals its single run. Keys of another implementation (`rbg`) go to `jax.random`.
"""

from __future__ import annotations

import functools
import math
from collections.abc import Callable, Sequence
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np

from jaxrl_fast.errors import ConfigError
from jaxrl_fast.ops import lowering

_ROTATIONS = ((13, 15, 26, 6), (17, 29, 16, 24))
_PARITY = np.uint32(0x1BD11BDA)


@jax.jit  # traced once a shape
def threefry2x32(k0: jax.Array, k1: jax.Array, x0: jax.Array,
                 x1: jax.Array) -> tuple[jax.Array, jax.Array]:
    """Return twenty rounds of threefry on two counter words under two key words, all uint32."""
    add, xor = jax.lax.add, jax.lax.bitwise_xor  # jnp traces ten times slower
    full = functools.cache(functools.partial(jax.lax.full_like, x0))
    k0, k1 = jnp.broadcast_to(k0, x0.shape), jnp.broadcast_to(k1, x0.shape)
    keys = (k0, k1, xor(xor(k0, k1), full(_PARITY)))
    x0, x1 = add(x0, keys[0]), add(x1, keys[1])
    for i in range(5):
        for r in _ROTATIONS[i % 2]:
            x0 = add(x0, x1)
            left = jax.lax.shift_left(x1, full(r))
            right = jax.lax.shift_right_logical(x1, full(32 - r))
            x1 = xor(x0, jax.lax.bitwise_or(left, right))
        x0, x1 = add(x0, keys[(i + 1) % 3]), add(add(x1, keys[(i + 2) % 3]), full(i + 1))
    return x0, x1


def _is_threefry(key: jax.Array) -> bool:
    return str(jax.random.key_impl(key)) in ("threefry2x32", "fry")


def _words(key: jax.Array) -> tuple[jax.Array, jax.Array]:
    """Return the two words of keys [...]."""
    data = jax.random.key_data(key)
    # a CPU would compute the key anew for every element of a fusion; for a GPU see `_wrap_keys`
    data = data if lowering.reaches_a_gpu() else jax.lax.optimization_barrier(data)
    return data[..., 0], data[..., 1]


def _wrap_keys(words: jax.Array) -> jax.Array:
    """Return keys of their words [..., 2]."""
    # the same on a GPU, where the key is made: at its use each key would be a launch to copy it
    words = jax.lax.optimization_barrier(words) if lowering.reaches_a_gpu() else words
    return jax.random.wrap_key_data(words, impl="threefry2x32")


def is_typed(x: Any) -> bool:
    """Return whether `x` is an array of typed keys."""
    return jax.dtypes.issubdtype(getattr(x, "dtype", None), jax.dtypes.prng_key)


def as_data(x: Any) -> Any:
    """Return typed keys as their words, other arrays as they are."""
    return jax.random.key_data(x) if is_typed(x) else x


def on_host(tree: Any) -> Any:
    """Return a tree's arrays in NumPy; typed keys have no such form and stay keys."""
    return jax.tree.map(lambda x: x if is_typed(x) else np.asarray(x), tree)


def check_key(argument: str, value: Any, valid: str = "a jax.random.key") -> None:
    """Raise ConfigError unless `value` is one random key, traced or not, typed or two words."""
    words = isinstance(value, (jax.Array, np.ndarray)) and value.dtype == np.uint32
    raw = words and value.shape in ((2,), (4,))
    one = isinstance(value, jax.Array) and is_typed(value) and value.shape == ()
    if not raw and not one:
        raise ConfigError(argument, value, valid)


def typed_key(key: jax.Array) -> jax.Array:
    """Return a checked key as a typed one."""
    return key if is_typed(key) else jax.random.wrap_key_data(key)


def bits(key: jax.Array, shape: tuple[int, ...]) -> jax.Array:
    """Return uniform uint32 of `shape`; at most 2^33 of them."""
    return from_bits(key, shape, lambda bits: bits)


def from_bits(key: jax.Array, shape: tuple[int, ...], make: Callable) -> jax.Array:
    """Return make(`bits` of `shape`), elementwise, in one kernel of a GPU whatever reads it."""
    if not _is_threefry(key):
        return make(jax.random.bits(key, shape, jnp.uint32))
    n = math.prod(shape)
    half = -(-n // 2)
    counter = jax.lax.iota(jnp.uint32, half)
    pair = threefry2x32(*_words(key), jnp.zeros_like(counter), counter)
    return jax.lax.optimization_barrier(make(jnp.concatenate(pair)[:n].reshape(shape)))


def split(key: jax.Array, num: int | tuple[int, ...] = 2) -> jax.Array:
    """Return new keys of shape `num`, apart from `bits` and `fold_in` on the same key."""
    if not _is_threefry(key):
        return jax.random.split(key, num)
    shape = (num,) if isinstance(num, int) else tuple(num)
    counter = jax.lax.iota(jnp.uint32, math.prod(shape))
    pair = threefry2x32(*_words(key), jnp.full_like(counter, 1), counter)
    return _wrap_keys(jnp.stack(pair, axis=-1).reshape(*shape, 2))


def each_from_bits(keys: jax.Array, sizes: Sequence[int], make: Callable) -> list[jax.Array]:
    """Return from_bits(keys[i], (sizes[i],), make) for each i, all in one kernel. keys: [m]."""
    if not _is_threefry(keys):
        return [from_bits(key, (n,), make) for key, n in zip(keys, sizes, strict=True)]
    words, halves = jnp.stack(_words(keys)), [-(-n // 2) for n in sizes]
    counter = np.concatenate([np.arange(half, dtype=np.uint32) for half in halves])
    ends = np.cumsum(halves)
    own = jnp.broadcast_to(words[:, :1], (2, counter.size))
    for i, start in enumerate(ends[:-1], 1):
        own = jnp.where(np.arange(counter.size) < start, own, words[:, i, None])
    pair = threefry2x32(*own, jnp.zeros(counter.shape, jnp.uint32), jnp.asarray(counter))
    # a CPU fuses no concatenation with its readers, which would all compute it anew
    found = jax.lax.optimization_barrier(jnp.concatenate([make(x) for x in pair]))
    parts = zip(jnp.split(found[: ends[-1]], ends[:-1]), jnp.split(found[ends[-1] :], ends[:-1]),
                sizes, strict=True)  # fmt: skip
    return [jnp.concatenate([first, second])[:n] for first, second, n in parts]


def fold_in(key: jax.Array, data: jax.Array | int) -> jax.Array:
    """Return a key for (key, data), keys [m] for data [m]; data: uint32."""
    if not _is_threefry(key):
        if np.ndim(data) == 0:
            return jax.random.fold_in(key, data)
        return jnp.stack([jax.random.fold_in(key, one) for one in data])
    word = data.astype(jnp.uint32) if hasattr(data, "astype") else jnp.uint32(data)
    word = jnp.asarray(word)
    pair = threefry2x32(*_words(key), jnp.full_like(word, 2), word)
    return _wrap_keys(jnp.stack(pair, axis=-1))


def keys_at(root: jax.Array, t: jax.Array, num: int) -> jax.Array:
    """Return the `num` keys of step t (int32): `split(fold_in(root, t), num)` at once.

    Counter word 0 is t with its top bit set, so these streams are apart from the others.
    """
    if not _is_threefry(root):
        return jax.random.split(jax.random.fold_in(root, t), num)
    counter = jax.lax.iota(jnp.uint32, num)
    step = jnp.broadcast_to(jnp.asarray(t).astype(jnp.uint32) | np.uint32(2**31), counter.shape)
    pair = threefry2x32(*_words(root), step, counter)
    return _wrap_keys(jnp.stack(pair, axis=-1))


def uniform(key: jax.Array, shape: tuple[int, ...] = (), minval=0.0, maxval=1.0) -> jax.Array:
    """Return float32 in [minval, maxval), of 2^23 equally likely values."""
    return from_bits(key, shape, lambda bits: minval + (maxval - minval) * to_uniform(bits))


def to_uniform(bits: jax.Array) -> jax.Array:
    """Return float32 in [0, 1) of uniform uint32."""
    mantissa = (bits >> np.uint32(9)) | np.uint32(0x3F800000)
    return jax.lax.bitcast_convert_type(mantissa, jnp.float32) - 1.0


def gumbel(key: jax.Array, shape: tuple[int, ...]) -> jax.Array:
    """Return standard Gumbel numbers, float32."""
    return from_bits(key, shape, lambda bits: to_gumbel(to_uniform(bits)))


def to_gumbel(u: jax.Array) -> jax.Array:
    """Return standard Gumbel numbers -log(-log(u)) of uniform u in [0, 1)."""
    return -jnp.log(-jnp.log(jnp.maximum(u, np.finfo(np.float32).tiny)))


def normal(key: jax.Array, shape: tuple[int, ...]) -> jax.Array:
    """Return standard normal numbers, float32, by the inverse error function."""
    # the noise of an update is part of the kernel that reads it
    return to_normal(to_uniform(bits(key, shape)))


def to_normal(u: jax.Array) -> jax.Array:
    """Return standard normal numbers of uniform u in [0, 1)."""
    low = np.nextafter(np.float32(-1.0), np.float32(0.0))
    return np.float32(math.sqrt(2)) * jax.lax.erf_inv(low + (np.float32(1.0) - low) * u)


def randint(key: jax.Array, shape: tuple[int, ...], minval: jax.Array | int,
            maxval: jax.Array | int) -> jax.Array:
    """Return int32 in [minval, maxval), with a bias below (maxval - minval) / 2^32."""
    span = jnp.asarray(maxval - minval).astype(jnp.uint32)
    return jnp.asarray(minval, jnp.int32) + (bits(key, shape) % span).astype(jnp.int32)
