"""Cartridges: which byte of the image an address names, and the hot spots that change it."""

from __future__ import annotations

import jax
import jax.numpy as jnp

from jaxrl_fast.envs.atari.decode import BANK, SLICE
from jaxrl_fast.envs.atari.state import Cart

BANKS, SLICES, BY_ADDRESS = range(3)  # `Cart.kind`
_E0_FIRST = 0x1FE0
_EXTRA_AT = 128  # where a cartridge's RAM lies in `Machine.ram`


def place(cart: Cart, address: jax.Array) -> jax.Array:
    """Return where the byte at a cartridge's address lies in the joined tables."""
    part = (address >> 10) & 3
    lower = jnp.where(part == 0, cart.s0, cart.s1)
    base = jnp.where(part < 2, lower, jnp.where(part == 2, cart.s2, cart.s3))
    chosen = base + (address & (SLICE - 1))
    whole = (address & (BANK - 1)) + jnp.where(address & 0x2000 == 0, BANK, 0)
    return cart.start + jnp.where(cart.kind == BY_ADDRESS, whole, chosen)


def extra(cart: Cart, address: jax.Array, reads: bool) -> tuple[jax.Array, jax.Array]:
    """Return whether an access meets the cartridge's RAM, and where it lies in `Machine.ram`.

    The lower half of its addresses writes, the upper half reads.
    """
    inside = address & 0x1FFF
    begin = 0x1000 + (cart.extra if reads else 0)
    index = inside - begin
    return (index >= 0) & (index < cart.extra), _EXTRA_AT + index


def switch(cart: Cart, address: jax.Array, on: jax.Array) -> Cart:
    """Return the cartridge after an access to `address` where `on`."""
    inside = address & 0x1FFF
    bank = inside - cart.first
    whole = on & (cart.kind == BANKS) & (bank >= 0) & (bank < cart.banks)
    spot = inside - _E0_FIRST
    part = on & (cart.kind == SLICES) & (spot >= 0) & (spot < 24)

    def slice_of(i: int, old: jax.Array) -> jax.Array:
        chosen = jnp.where(whole, bank * BANK + i * SLICE, old)
        return jnp.where(part & (spot >> 3 == i), (spot & 7) * SLICE, chosen)

    slices = (cart.s0, cart.s1, cart.s2, cart.s3)
    return cart._replace(**{f"s{i}": slice_of(i, old) for i, old in enumerate(slices)})
