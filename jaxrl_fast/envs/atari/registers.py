"""Writes to the TIA's registers."""

from __future__ import annotations

import jax
import jax.numpy as jnp

from jaxrl_fast.envs.atari import motion, tia
from jaxrl_fast.envs.atari.bits import reverse8
from jaxrl_fast.envs.atari.state import LINE, NEVER, WIDTH, Tia

_STAR_CLOCKS = 63  # from HMOVE to the change of HMM0 that lets missile 0 wander
_VSYNC_CLOCKS = 228  # shorter pulses do not end a frame
_MIRROR_UNTIL = 147  # place of the line up to which CTRLPF's reflection counts at once
# Resets that come some cycles after HMOVE at a place of the line: (register, cycles, place, position). ALE has these.
_AFTER_HMOVE = (
    (tia.RESM0, 20, 69, 8), (tia.RESM1, 3, 18, 3), (tia.RESBL, 3, 18, 3), (tia.RESBL, 6, 27, 5), (tia.RESBL, 7, 30, 6),
    (tia.RESBL, 18, 69, 10),
)  # fmt: skip

# Registers that keep bits of the value, and the shift and mask of those bits.
_PLAIN = {
    tia.VSYNC: ("vsync", 0, 0xFF), tia.VBLANK: ("vblank", 0, 0xFF), tia.NUSIZ0: ("nusiz0", 0, 0xFF),
    tia.NUSIZ1: ("nusiz1", 0, 0xFF), tia.COLUP0: ("colup0", 0, 0xFE), tia.COLUP1: ("colup1", 0, 0xFE),
    tia.COLUPF: ("colupf", 0, 0xFE), tia.COLUBK: ("colubk", 0, 0xFE), tia.CTRLPF: ("ctrlpf", 0, 0xFF),
    tia.REFP0: ("refp0", 3, 1), tia.REFP1: ("refp1", 3, 1), tia.GRP0: ("grp0", 0, 0xFF), tia.GRP1: ("grp1", 0, 0xFF),
    tia.ENAM0: ("enam0", 1, 1), tia.ENAM1: ("enam1", 1, 1), tia.ENABL: ("enabl", 1, 1), tia.HMP0: ("hmp0", 4, 15),
    tia.HMP1: ("hmp1", 4, 15), tia.HMM0: ("hmm0", 4, 15), tia.HMM1: ("hmm1", 4, 15), tia.HMBL: ("hmbl", 4, 15),
    tia.VDELP0: ("vdelp0", 0, 1), tia.VDELP1: ("vdelp1", 0, 1), tia.VDELBL: ("vdelbl", 0, 1),
    tia.RESMP0: ("resmp0", 1, 1), tia.RESMP1: ("resmp1", 1, 1),
}  # fmt: skip
_MOVES = (("x0", "hmp0"), ("x1", "hmp1"), ("xm0", "hmm0"), ("xm1", "hmm1"), ("xbl", "hmbl"))


def write(
    t: Tia, register: jax.Array, value: jax.Array, on: jax.Array, clock: jax.Array, cycles: jax.Array
) -> tuple[Tia, jax.Array]:
    """Return the TIA after a write of `value` where `on`, and whether the write ends the frame.

    `clock` is the time of the write, without its delay.
    """

    def at(number: int) -> jax.Array:
        return on & (register == number)

    new = {name: jnp.where(at(r), (value >> s) & m, getattr(t, name)) for r, (name, s, m) in _PLAIN.items()}
    place = tia.position(t, clock)
    new |= _playfield(t, at, value)
    new |= _late_copies(t, at)
    new |= _collisions(t, at)
    new |= _paddles(t, at, value, cycles)
    new |= _positions(t, new, at, place, value, clock)
    mirrors = at(tia.CTRLPF) & (place < _MIRROR_UNTIL)
    new["mirror"] = jnp.where(mirrors, value & 1, t.mirror)
    starts, ends = at(tia.VSYNC) & (value & 2 != 0), at(tia.VSYNC) & (value & 2 == 0) & (clock >= t.vsync_end)
    new["vsync_end"] = jnp.where(starts, clock + _VSYNC_CLOCKS, jnp.where(ends, NEVER, t.vsync_end))
    for name in ("hmp0", "hmp1", "hmm0", "hmm1", "hmbl"):
        new[name] = jnp.where(at(tia.HMCLR), 0, new[name])
    return t._replace(**new), ends


def _playfield(t: Tia, at, value: jax.Array) -> dict[str, jax.Array]:
    """Return the playfield's bits; PF0 and PF2 are shown from their lowest bit on, PF1 from its highest."""
    pf = jnp.where(at(tia.PF0), t.pf & ~0x0000F | (value >> 4) & 0x0F, t.pf)
    pf = jnp.where(at(tia.PF1), t.pf & ~0x00FF0 | reverse8(value) << 4, pf)
    return {"pf": jnp.where(at(tia.PF2), t.pf & ~0xFF000 | (value & 0xFF) << 12, pf)}


def _late_copies(t: Tia, at) -> dict[str, jax.Array]:
    """Return the delayed graphics: a write to one player copies the other's."""
    return {
        "old0": jnp.where(at(tia.GRP1), t.grp0, t.old0),
        "old1": jnp.where(at(tia.GRP0), t.grp1, t.old1),
        "oldbl": jnp.where(at(tia.GRP1), t.enabl, t.oldbl),
    }


def _collisions(t: Tia, at) -> dict[str, jax.Array]:
    return {"collisions": jnp.where(at(tia.CXCLR), 0, t.collisions)}


def _paddles(t: Tia, at, value: jax.Array, cycles: jax.Array) -> dict[str, jax.Array]:
    """Return the state of the paddles' capacitors, which VBLANK's highest bit grounds."""
    was, now = t.vblank & 0x80 != 0, value & 0x80 != 0
    grounds, frees = at(tia.VBLANK) & ~was & now, at(tia.VBLANK) & was & ~now
    return {
        "dumped": jnp.where(grounds, 1, jnp.where(frees, 0, t.dumped)),
        "charge_at": jnp.where(frees, cycles, t.charge_at),
    }


def _positions(t: Tia, new: dict, at, place: jax.Array, value: jax.Array, clock: jax.Array) -> dict[str, jax.Array]:
    """Return the positions after resets, HMOVE and the release of missiles from players."""
    result = {}
    moves = at(tia.HMOVE)
    cycle = place // 3
    player_place, other_place = motion.reset_place(place, True), motion.reset_place(place, False)
    resets = {"x0": tia.RESP0, "x1": tia.RESP1, "xm0": tia.RESM0, "xm1": tia.RESM1, "xbl": tia.RESBL}
    for x, hm in _MOVES:
        old = getattr(t, x)
        moved = jnp.remainder(old + motion.hmove(getattr(t, hm), cycle) + WIDTH, WIDTH)
        landed = player_place if x in ("x0", "x1") else other_place
        for register, cycles, spot, position in _AFTER_HMOVE:
            if register == resets[x]:
                landed = jnp.where((clock - t.moved_at == 3 * cycles) & (place == spot), position, landed)
        result[x] = jnp.where(at(resets[x]), landed, jnp.where(moves, moved, old))
    for i, (lock, missile, player, nusiz) in enumerate((("resmp0", "xm0", "x0", "nusiz0"), ("resmp1", "xm1", "x1", "nusiz1"))):
        size = getattr(t, nusiz) & 7
        middle = jnp.where(size == 5, 8, jnp.where(size == 7, 16, 4))
        frees = at((tia.RESMP0, tia.RESMP1)[i]) & (getattr(t, lock) == 1) & (value & 2 == 0)
        result[missile] = jnp.where(frees, (getattr(t, player) + middle) % WIDTH, result[missile])
    for skip, x, nusiz, reset, size_register in (
        ("skip0", "x0", "nusiz0", tia.RESP0, tia.NUSIZ0),
        ("skip1", "x1", "nusiz1", tia.RESP1, tia.NUSIZ1),
    ):
        meets = motion.reset_meets(getattr(t, x), player_place, getattr(t, nusiz) & 7)
        hides = (meets != motion.WAITING).astype(jnp.int32)
        cleared = jnp.where(moves | at(size_register), 0, getattr(t, skip))
        result[skip] = jnp.where(at(reset), hides, cleared)
    wanders = at(tia.HMM0) & (clock == t.moved_at + _STAR_CLOCKS) & (t.hmm0 == 7) & (value >> 4 == 6)
    result["stars"] = jnp.where(wanders, 1, jnp.where(moves, 0, t.stars))
    result["star"] = jnp.where(wanders, 0, t.star)
    result["moved_at"] = jnp.where(moves, clock, t.moved_at)
    result["comb"] = jnp.where(moves & motion.combs(cycle), 1, t.comb)
    return result


def wait_cycles(t: Tia, cycles: jax.Array) -> jax.Array:
    """Return the cycles to the end of the line, 0 at its start."""
    line = LINE // 3
    return jnp.remainder(-(cycles - t.origin // 3), line)
