"""How a step reaches RAM, image and screens: as arrays here, as references in `kernel`."""

from __future__ import annotations

import functools
from collections.abc import Callable
from typing import Any, NamedTuple

import jax
import jax.numpy as jnp

from jaxrl_fast.envs.atari import opcodes, picture
from jaxrl_fast.envs.atari.decode import Rom

Rare = Callable[[jax.Array, Callable[[], Any], Any], Any]  # see `Memory.rare`


class Memory(NamedTuple):
    """Accesses of a step. RAM and screens are values of the caller's kind; lanes come first.

    Attributes:
        image: Returns the words (code, address, operation) at a place of the joined tables.
        opcode: Returns the words (address, operation) of an opcode.
        load: Returns the byte of RAM at an index, int32.
        store: Returns RAM with a byte at an index, where a mask is set.
        paint: Returns the screens with a strip on that of `Machine.turn`.
        some: Returns whether a mask is set in any lane, a scalar.
        rare: Returns a function's result, or another one where a mask is set in no lane.
        admit: Returns which of the active lanes step, given those that access the TIA.
    """

    image: Callable[[jax.Array], Rom]
    opcode: Callable[[jax.Array], tuple[jax.Array, jax.Array]]
    load: Callable[[Any, jax.Array], jax.Array]
    store: Callable[[Any, jax.Array, jax.Array, jax.Array], Any]
    paint: Callable[[Any, jax.Array, picture.Strip], Any]
    some: Callable[[jax.Array], jax.Array]
    rare: Rare
    admit: Callable[[jax.Array, jax.Array], jax.Array]


def of_arrays(rom: Rom, put: picture.Put = picture.scatter) -> Memory:
    """Return the accesses to `Machine.ram` [N, 256] and `Machine.screens` [N, 2, lines, 160]."""

    def store(ram: jax.Array, index: jax.Array, value: jax.Array, on: jax.Array) -> jax.Array:
        return put(ram, (jnp.broadcast_to(index, on.shape),), value.astype(ram.dtype), on)

    def opcode(code: jax.Array) -> tuple[jax.Array, jax.Array]:
        words = jnp.asarray(opcodes.control_words())[code]
        return words[:, 0], words[:, 1]

    return Memory(
        image=lambda at: Rom(*(table[at] for table in rom)),
        opcode=opcode,
        load=_load,
        store=store,
        paint=functools.partial(picture.paint, put=put),
        some=jnp.any,
        rare=lambda on, of_some, _: of_some(),  # a branch would part a fusion
        admit=lambda active, _: active,
    )


def _load(ram: jax.Array, index: jax.Array) -> jax.Array:
    return ram[jnp.arange(ram.shape[0]), index].astype(jnp.int32)
