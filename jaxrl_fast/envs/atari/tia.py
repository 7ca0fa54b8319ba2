"""The TIA as the processor sees it: when accesses take effect, and the bytes of reads."""

from __future__ import annotations

import jax
import jax.numpy as jnp

from jaxrl_fast.envs.atari import motion
from jaxrl_fast.envs.atari.picture import BL, M0, M1, P0, P1, PAIRS, PF
from jaxrl_fast.envs.atari.state import LINE, Inputs, Tia

(
    VSYNC, VBLANK, WSYNC, RSYNC, NUSIZ0, NUSIZ1, COLUP0, COLUP1, COLUPF, COLUBK, CTRLPF, REFP0,
    REFP1, PF0, PF1, PF2, RESP0, RESP1, RESM0, RESM1, RESBL,
) = range(0x15)  # fmt: skip
(
    GRP0, GRP1, ENAM0, ENAM1, ENABL, HMP0, HMP1, HMM0, HMM1, HMBL, VDELP0, VDELP1, VDELBL, RESMP0,
    RESMP1, HMOVE, HMCLR, CXCLR,
) = range(0x1B, 0x2D)  # fmt: skip

# Clocks from the processor's write to its effect on the picture, as a color clock shows it.
_DELAYS = {
    VBLANK: 1, NUSIZ0: 8, NUSIZ1: 8, REFP0: 1, REFP1: 1, RESM0: 8, RESM1: 8, GRP0: 1, GRP1: 1,
    HMOVE: 3,
}  # fmt: skip
# What CXM0P to CXPPMM report in bits 7 and 6.
_LATCHES = (
    ((M0, P1), (M0, P0)), ((M1, P0), (M1, P1)), ((P0, PF), (P0, BL)), ((P1, PF), (P1, BL)),
    ((M0, PF), (M0, BL)), ((M1, PF), (M1, BL)), ((BL, PF), None), ((P0, P1), (M0, M1)),
)  # fmt: skip
_PLAYER_LEAD = 11  # clocks that a player shows on after a reset within it


def _among(register: jax.Array, registers: tuple[int, ...]) -> jax.Array:
    total = sum(1 << r for r in registers)
    low, high = total & 0x7FFFFFFF, total >> 31
    word = jnp.where(register < 31, low, high)
    # Register 63 would be a shift by 32, which a GPU leaves undefined.
    return (word >> jnp.where(register < 31, register, jnp.minimum(register - 31, 31))) & 1 == 1


def position(tia: Tia, clock: jax.Array) -> jax.Array:
    """Return the place of `clock` in its line, 0 to 227."""
    return jnp.remainder(clock - tia.origin, LINE)


def write_clock(tia: Tia, register: jax.Array, clock: jax.Array) -> jax.Array:
    """Return the clock up to which the picture is drawn before a write at `clock` takes effect."""
    place = position(tia, clock)
    delay = jnp.zeros_like(clock)
    for wait in sorted(set(_DELAYS.values())):
        registers = tuple(r for r, d in _DELAYS.items() if d == wait)
        delay = jnp.where(_among(register, registers), wait, delay)
    # The playfield is latched every four clocks, at least two clocks after the write.
    delay = jnp.where(_among(register, (PF0, PF1, PF2)), (place + 5) // 4 * 4 - place, delay)
    second = register == RESP1
    old, nusiz = jnp.where(second, tia.x1, tia.x0), jnp.where(second, tia.nusiz1, tia.nusiz0)
    shown = motion.reset_meets(old, motion.reset_place(place, True), nusiz & 7) == motion.WITHIN
    return clock + jnp.where(_among(register, (RESP0, RESP1)) & shown, _PLAYER_LEAD, delay)


def read(
    tia: Tia, inputs: Inputs, register: jax.Array, cycles: jax.Array, bus: jax.Array
) -> jax.Array:
    """Return the byte that the processor reads; its lowest six bits are the bus's last byte."""
    register = register & 0x0F
    value = jnp.zeros_like(register)
    for i, (high, low) in enumerate(_LATCHES):
        value = jnp.where(register == i, _pair(tia, high) << 7 | _pair(tia, low) << 6, value)
    charged = cycles - tia.charge_at
    for i, needed in enumerate((inputs.charge0, inputs.charge1, inputs.charge2, inputs.charge3)):
        within = needed >= -tia.charge_at  # ALE: a charge that ended in an earlier frame is lost
        full = (needed < 0) | ((tia.dumped == 0) & (charged > needed) & within)
        value = jnp.where((register == 8 + i) & full, 0x80, value)
    value = jnp.where(register == 12, inputs.fire0, value)
    value = jnp.where(register == 13, inputs.fire1, value)
    return value | bus & 0x3F


def _pair(tia: Tia, pair: tuple[int, int] | None) -> jax.Array | int:
    return 0 if pair is None else (tia.collisions >> PAIRS.index(pair)) & 1
