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
# ALE's exceptions, (register, cycles after HMOVE, place in the line, position).
_AFTER_HMOVE = (
    (tia.RESM0, 20, 69, 8),
    (tia.RESM1, 3, 18, 3),
    (tia.RESBL, 3, 18, 3),
    (tia.RESBL, 6, 27, 5),
    (tia.RESBL, 7, 30, 6),
    (tia.RESBL, 18, 69, 10),
)

_PLAYERS = (
    ("0", tia.RESP0, tia.RESM0, tia.RESMP0, tia.NUSIZ0),
    ("1", tia.RESP1, tia.RESM1, tia.RESMP1, tia.NUSIZ1),
)


def _plain() -> dict[int, tuple[str, int, int]]:
    """Return the registers that keep bits of the value: field, shift and mask."""
    whole = ("vsync", "vblank", "nusiz0", "nusiz1", "ctrlpf", "grp0", "grp1")
    colors = ("colup0", "colup1", "colupf", "colubk")
    motions = ("hmp0", "hmp1", "hmm0", "hmm1", "hmbl")
    lowest = ("vdelp0", "vdelp1", "vdelbl")
    second = ("enam0", "enam1", "enabl", "resmp0", "resmp1")
    kinds = (whole, 0, 0xFF), (colors, 0, 0xFE), (motions, 4, 15), (lowest, 0, 1), (second, 1, 1)
    fields = {name: (name, shift, mask) for names, shift, mask in kinds for name in names}
    fields |= {name: (name, 3, 1) for name in ("refp0", "refp1")}
    return {getattr(tia, name.upper()): field for name, field in fields.items()}


_PLAIN = _plain()


def write(
    t: Tia,
    register: jax.Array,
    value: jax.Array,
    on: jax.Array,
    clock: jax.Array,
    cycles: jax.Array,
) -> tuple[Tia, jax.Array]:
    """Return the TIA after a write of `value` where `on`, and whether the write ends the frame.

    `clock` is the time of the write, without its delay.
    """

    def at(number: int) -> jax.Array:
        return on & (register == number)

    new = {
        name: jnp.where(at(number), (value >> shift) & mask, getattr(t, name))
        for number, (name, shift, mask) in _PLAIN.items()
    }
    place = tia.position(t, clock)
    new["pf"] = playfield(t.pf, jnp.where(on, register, -1), value)
    new |= _late_copies(t, at)
    new |= _collisions(t, at)
    new |= _paddles(t, at, value, cycles)
    new |= _positions(t, at, place, value, clock)
    new |= _skips(t, at, place)
    new |= _motion(t, at, place, value, clock)
    mirrors = at(tia.CTRLPF) & (place < _MIRROR_UNTIL)
    new["mirror"] = jnp.where(mirrors, value & 1, t.mirror)
    starts = at(tia.VSYNC) & (value & 2 != 0)
    ends = at(tia.VSYNC) & (value & 2 == 0) & (clock >= t.vsync_end)
    until = jnp.where(ends, NEVER, t.vsync_end)
    new["vsync_end"] = jnp.where(starts, clock + _VSYNC_CLOCKS, until)
    for name in ("hmp0", "hmp1", "hmm0", "hmm1", "hmbl"):
        new[name] = jnp.where(at(tia.HMCLR), 0, new[name])
    return t._replace(**new), ends


def playfield(pf: jax.Array, register: jax.Array, value: jax.Array) -> jax.Array:
    """Return the playfield's bits after a write; PF1 alone is shown from its highest bit on.

    One merge under a mask: jaxlib 0.10.2 computes a `where` around a merge of constant masks
    wrongly on CPUs with AVX-512, for some numbers of lanes.
    """
    parts = (
        (tia.PF0, 0x0000F, value >> 4),
        (tia.PF1, 0x00FF0, reverse8(value) << 4),
        (tia.PF2, 0xFF000, value << 12),
    )
    mask = bits = jnp.zeros_like(value)
    for number, part, shown in parts:
        mask = jnp.where(register == number, part, mask)
        bits = jnp.where(register == number, shown, bits)
    return pf & ~mask | bits & mask


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


def _positions(
    t: Tia, at, place: jax.Array, value: jax.Array, clock: jax.Array
) -> dict[str, jax.Array]:
    """Return the positions after resets, HMOVE and the release of missiles from players."""
    moves, cycle, since = at(tia.HMOVE), place // 3, clock - t.moved_at

    def after(x: str, hm: str, reset: int, is_player: bool) -> jax.Array:
        landed = motion.reset_place(place, is_player)
        for register, cycles, spot, position in _AFTER_HMOVE:
            if register == reset:
                landed = jnp.where((since == 3 * cycles) & (place == spot), position, landed)
        old = getattr(t, x)
        moved = jnp.remainder(old + motion.hmove(getattr(t, hm), cycle), WIDTH)
        return jnp.where(at(reset), landed, jnp.where(moves, moved, old))

    new = {"xbl": after("xbl", "hmbl", tia.RESBL, False)}
    for i, player_reset, missile_reset, lock, _ in _PLAYERS:
        new[f"x{i}"] = after(f"x{i}", f"hmp{i}", player_reset, True)
        missile = after(f"xm{i}", f"hmm{i}", missile_reset, False)
        size = getattr(t, f"nusiz{i}") & 7
        middle = jnp.where(size == 5, 8, jnp.where(size == 7, 16, 4))
        frees = at(lock) & (getattr(t, f"resmp{i}") == 1) & (value & 2 == 0)
        new[f"xm{i}"] = jnp.where(frees, (getattr(t, f"x{i}") + middle) % WIDTH, missile)
    return new


def _skips(t: Tia, at, place: jax.Array) -> dict[str, jax.Array]:
    """Return whether each player's first copy is hidden for the rest of the line."""
    new, landed = {}, motion.reset_place(place, True)
    for i, reset, _, _, size in _PLAYERS:
        meets = motion.reset_meets(getattr(t, f"x{i}"), landed, getattr(t, f"nusiz{i}") & 7)
        kept = jnp.where(at(tia.HMOVE) | at(size), 0, getattr(t, f"skip{i}"))
        hides = (meets != motion.WAITING).astype(jnp.int32)
        new[f"skip{i}"] = jnp.where(at(reset), hides, kept)
    return new


def _motion(
    t: Tia, at, place: jax.Array, value: jax.Array, clock: jax.Array
) -> dict[str, jax.Array]:
    """Return what HMOVE starts: the black pixels, and missile 0's wander if HMM0 changes late."""
    moves = at(tia.HMOVE)
    late = clock == t.moved_at + _STAR_CLOCKS
    wanders = at(tia.HMM0) & late & (t.hmm0 == 7) & (value >> 4 == 6)
    return {
        "stars": jnp.where(wanders, 1, jnp.where(moves, 0, t.stars)),
        "star": jnp.where(wanders, 0, t.star),
        "moved_at": jnp.where(moves, clock, t.moved_at),
        "comb": jnp.where(moves & motion.combs(place // 3), 1, t.comb),
    }


def wait_cycles(t: Tia, cycles: jax.Array) -> jax.Array:
    """Return the cycles to the end of the line, 0 at its start."""
    line = LINE // 3
    return jnp.remainder(-(cycles - t.origin // 3), line)
