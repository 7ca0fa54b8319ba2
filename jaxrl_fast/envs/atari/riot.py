"""The 6532 RIOT: its timer and its two ports."""

from __future__ import annotations

import jax
import jax.numpy as jnp

from jaxrl_fast.envs.atari.bits import choose
from jaxrl_fast.envs.atari.state import Inputs, Riot

_SHIFTS = (0, 3, 6, 10)  # log2 of the timer's intervals: 1, 8, 64, 1024 cycles


def read(
    riot: Riot, inputs: Inputs, address: jax.Array, cycles: jax.Array
) -> tuple[jax.Array, jax.Array]:
    """Return the byte at an I/O address and whether the read saw the timer past its end."""
    passed = cycles - 1 - riot.set_at
    count = riot.timer - (passed >> riot.shift) - 1
    over = (riot.timer << riot.shift) - passed - 1
    sees_end = (count < 0) & (over <= -2) & (riot.late == 0)
    late_at = jnp.where(sees_end, cycles, riot.late_at)
    offset = late_at - (riot.set_at + (riot.timer << riot.shift))
    counted = riot.timer - (passed >> riot.shift) - offset
    after = jnp.where((riot.late == 1) | sees_end, counted, over)
    timer = jnp.where(count >= 0, count, after) & 0xFF
    flag = jnp.where((count >= 0) | (riot.late == 1), 0, 0x80)
    ports = choose(address & 3, (inputs.port_a, riot.dir_a, inputs.port_b), riot.dir_b)
    value = jnp.where(address & 4 == 0, ports, jnp.where(address & 1 == 0, timer, flag))
    return value, sees_end & (address & 5 == 4)


def mark_late(riot: Riot, on: jax.Array, cycles: jax.Array) -> Riot:
    """Return the RIOT after a read that saw the timer past its end, where `on`."""
    late_at = jnp.where(on, cycles, riot.late_at)
    return riot._replace(late=jnp.where(on, 1, riot.late), late_at=late_at)


def write(
    riot: Riot, address: jax.Array, value: jax.Array, on: jax.Array, cycles: jax.Array
) -> Riot:
    """Return the RIOT after a write where `on`."""
    sets = on & (address & 0x14 == 0x14)
    port = on & (address & 4 == 0)
    interval = choose(address & 3, _SHIFTS, 0)

    def kept(number: int, old: jax.Array) -> jax.Array:
        return jnp.where(port & (address & 3 == number), value, old)

    return riot._replace(
        timer=jnp.where(sets, value, riot.timer),
        shift=jnp.where(sets, interval, riot.shift),
        set_at=jnp.where(sets, cycles, riot.set_at),
        late=jnp.where(sets, 0, riot.late),
        out_a=kept(0, riot.out_a),
        dir_a=kept(1, riot.dir_a),
        out_b=kept(2, riot.out_b),
        dir_b=kept(3, riot.dir_b),
    )
