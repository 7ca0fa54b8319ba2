"""Actions of the player as inputs of the console's chips."""

from __future__ import annotations

from typing import NamedTuple

import jax
import jax.numpy as jnp

from jaxrl_fast.envs.atari.state import NEVER, Inputs

# `Controls.kind`: FIRST_PADDLES has a joystick in the second port.
JOYSTICK, PADDLES, SWAPPED_PADDLES, FIRST_PADDLES, SECOND_JOYSTICK, JOYSTICK_WITHOUT_FIRE = range(6)
ACTIONS = 18
# One bit an action, in the order of the Arcade Learning Environment.
_UP = sum(1 << i for i in (2, 6, 7, 10, 14, 15))
_RIGHT = sum(1 << i for i in (3, 6, 8, 11, 14, 16))
_LEFT = sum(1 << i for i in (4, 7, 9, 12, 15, 17))
_DOWN = sum(1 << i for i in (5, 8, 9, 13, 16, 17))
_FIRE = sum(1 << i for i in (1, *range(10, 18)))
_STEP = 23_000  # ohms by which a paddle changes in a frame
_CYCLES_PER_OHM = 1904, 100_000  # to charge the capacitor: a fraction


class Controls(NamedTuple):
    """The controllers' state: int32 [N]."""

    kind: jax.Array
    left: jax.Array  # ohms of the first paddle
    right: jax.Array
    lowest: jax.Array  # ohms of a paddle's ends
    highest: jax.Array
    switches: jax.Array  # SWCHB


def press(controls: Controls, action: jax.Array) -> tuple[Controls, Inputs]:
    """Return the controllers and the chips' inputs in a frame of `action`, 0 to 17."""

    ignored = (controls.kind == JOYSTICK_WITHOUT_FIRE) & ((_FIRE >> action) & 1 == 1)
    action = jnp.where(ignored, 0, action)

    def down(actions: int) -> jax.Array:
        return (actions >> action) & 1

    paddles = (controls.kind >= PADDLES) & (controls.kind <= FIRST_PADDLES)
    others = paddles & (controls.kind != FIRST_PADDLES)
    swapped = controls.kind == SWAPPED_PADDLES
    second = controls.kind == SECOND_JOYSTICK
    turn = (down(_LEFT) - down(_RIGHT)) * _STEP
    turned = jnp.clip(controls.left + turn, controls.lowest, controls.highest)
    left = jnp.where(paddles, turned, controls.left)
    stick = down(_UP) | down(_DOWN) << 1 | down(_LEFT) << 2 | down(_RIGHT) << 3
    trigger = down(_FIRE) << jnp.where(swapped, 6, 7)
    fire = 0x80 - (down(_FIRE) << 7)
    numerator, denominator = _CYCLES_PER_OHM
    times = tuple(ohms * numerator // denominator for ohms in (left, controls.right))
    never, always, up = (jnp.full_like(left, value) for value in (NEVER, -1, 0x80))
    inputs = Inputs(
        port_a=0xFF - jnp.where(paddles, trigger, jnp.where(second, stick, stick << 4)),
        port_b=controls.switches,
        fire0=jnp.where(paddles | second, up, fire),
        fire1=jnp.where(second, fire, up),
        charge0=jnp.where(paddles, jnp.where(swapped, times[1], times[0]), never),
        charge1=jnp.where(paddles, jnp.where(swapped, times[0], times[1]), never),
        charge2=jnp.where(others, always, never),
        charge3=jnp.where(others, always, never),
    )
    return controls._replace(left=left), inputs
