"""Actions of the player as what the console's chips read."""

from __future__ import annotations

from typing import NamedTuple

import jax
import jax.numpy as jnp

from jaxrl_fast.envs.atari.state import NEVER, Inputs

JOYSTICK, PADDLES, SWAPPED_PADDLES = range(3)
ACTIONS = 18
# One bit an action, in the order of the Arcade Learning Environment.
_UP, _RIGHT, _LEFT, _DOWN = (
    sum(1 << i for i in chosen)
    for chosen in ((2, 6, 7, 10, 14, 15), (3, 6, 8, 11, 14, 16), (4, 7, 9, 12, 15, 17), (5, 8, 9, 13, 16, 17))
)
_FIRE = sum(1 << i for i in (1, *range(10, 18)))
_LOWEST, _HIGHEST, _STEP = 27_450, 790_196, 23_000  # ohms of a paddle, and a frame's change
_CYCLES_PER_OHM = 1904, 100_000  # to charge the capacitor: a fraction


class Controls(NamedTuple):
    """The controllers' state: int32 [N]."""

    kind: jax.Array  # JOYSTICK, PADDLES or SWAPPED_PADDLES
    left: jax.Array  # ohms of the first paddle
    right: jax.Array
    switches: jax.Array  # SWCHB


def press(controls: Controls, action: jax.Array) -> tuple[Controls, Inputs]:
    """Return the controllers and what the chips read in a frame of `action`, 0 to 17."""

    def down(actions: int) -> jax.Array:
        return (actions >> action) & 1

    paddles = controls.kind != JOYSTICK
    swapped = controls.kind == SWAPPED_PADDLES
    turn = (down(_LEFT) - down(_RIGHT)) * _STEP
    left = jnp.where(paddles, jnp.clip(controls.left + turn, _LOWEST, _HIGHEST), controls.left)
    stick = 0xFF - (down(_UP) << 4 | down(_DOWN) << 5 | down(_LEFT) << 6 | down(_RIGHT) << 7)
    trigger = 0xFF - (down(_FIRE) << jnp.where(swapped, 6, 7))
    numerator, denominator = _CYCLES_PER_OHM
    times = tuple(ohms * numerator // denominator for ohms in (left, controls.right))
    never, always = jnp.full_like(left, NEVER), jnp.full_like(left, -1)
    first, second = jnp.where(swapped, times[1], times[0]), jnp.where(swapped, times[0], times[1])
    inputs = Inputs(
        port_a=jnp.where(paddles, trigger, stick),
        port_b=controls.switches,
        fire0=jnp.where(paddles, 0x80, 0x80 - (down(_FIRE) << 7)),
        fire1=jnp.full_like(left, 0x80),
        charge0=jnp.where(paddles, first, never),
        charge1=jnp.where(paddles, second, never),
        charge2=jnp.where(paddles, always, never),
        charge3=jnp.where(paddles, always, never),
    )
    return controls._replace(left=left), inputs
