"""Positions of the TIA's objects: resets, and HMOVE by the cycle in which it comes."""

from __future__ import annotations

import jax
import jax.numpy as jnp

from jaxrl_fast.envs.atari.state import BLANK, WIDTH

WITHIN, WAITING, APART = 1, -1, 0
_LEAD = 4  # clocks from a player's position counter to its first pixel
# Distance of a copy, and a bit for each size that has it.
_COPIES = ((16, 0b00001010), (32, 0b01001100), (64, 0b01010000))


def reset_place(place: jax.Array, is_player: bool) -> jax.Array:
    """Return an object's position after a reset at clock `place` of the line."""
    late = int(is_player)  # players begin one clock later
    return jnp.where(place < BLANK, 2 + late, (place - BLANK + 4 + late) % WIDTH)


def reset_meets(old: jax.Array, new: jax.Array, size: jax.Array) -> jax.Array:
    """Return whether a player's reset comes within a copy, in the wait before it, or apart."""
    width = jnp.where(size == 5, 16, jnp.where(size == 7, 32, 8))
    result = jnp.full_like(old, APART)
    for distance, sizes in ((0, 0xFF), *_COPIES):
        has = (sizes >> size) & 1 == 1
        past = jnp.remainder(new - old - distance, WIDTH)
        result = jnp.where(has & (past < _LEAD), WAITING, result)
        result = jnp.where(has & (past >= _LEAD) & (past < _LEAD + width), WITHIN, result)
    return result


def hmove(motion: jax.Array, cycle: jax.Array) -> jax.Array:
    """Return how far an object moves right when HMOVE comes in `cycle` of its line, 0 to 75.

    HMOVE counts sixteen pulses, one every four clocks, and each object takes them until its own
    number is reached: `motion` + 8 of them, each a step to the left. The beam waits eight clocks
    longer before its first pixel, which is eight steps to the right. A late HMOVE misses pulses
    that come after the first pixel; a very late one gives its last pulses to the next line, which
    does not wait.
    """
    steps = -jnp.where(motion >= 8, motion - 16, motion)
    missed = jnp.maximum(steps, (3 * cycle - 35) // 4)
    early = jnp.minimum(0, steps - (3 * cycle - 187) // 4)
    return jnp.where(combs(cycle), jnp.where(cycle == 75, steps, missed), early)


def combs(cycle: jax.Array) -> jax.Array:
    """Return whether an HMOVE in `cycle` makes the beam wait, which blackens eight pixels."""
    return (cycle <= 20) | (cycle == 75)
