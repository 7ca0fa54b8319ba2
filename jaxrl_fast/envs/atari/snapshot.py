"""Machines from snapshots of the Arcade Learning Environment.

`ale.cloneState().serialize()` is a row of little-endian int32: numbers, texts (a length and the
characters, not padded) and booleans (two marks). Each chip begins with its name. The meaning of
each number was found by comparing snapshots of programs that differ in one register.
"""

from __future__ import annotations

from typing import NamedTuple

import jax
import numpy as np

from jaxrl_fast.envs.atari import cartridge, dpc
from jaxrl_fast.envs.atari.controls import Controls
from jaxrl_fast.envs.atari.decode import BANK, SLICE, Rom, decode, join
from jaxrl_fast.envs.atari.state import (
    LINE,
    RAM,
    WIDTH,
    Cart,
    Cpu,
    Dpc,
    Machine,
    Riot,
    Tia,
    View,
)
from jaxrl_fast.errors import ConfigError

_TRUE, _FALSE = 0xFAB1FAB2, 0xBAD1BAD2
_SCREEN_LINES = 250
_SWITCHES = 0x3F  # both difficulties B, color, nothing pressed
_PAL_HEIGHT = 250  # lines that ALE shows of a PAL game
_PAL_LINES, _LINES = 342, 290  # after which a frame ends by itself
_FRACTION = 100_000_000  # of a clock of DPC's oscillator

# First hot spot, number of them, bytes of RAM.
_KINDS = {
    "2K": (0, 0, 0),
    "4K": (0, 0, 0),
    "F8": (0x1FF8, 2, 0),
    "F6": (0x1FF6, 4, 0),
    "F4": (0x1FF4, 8, 0),
    "F8SC": (0x1FF8, 2, 128),
    "F6SC": (0x1FF6, 4, 128),
    "E0": (0, 0, 0),
    "FE": (0, 0, 0),
    "DPC": (0x1FF8, 2, 0),
}
# A TIA's numbers in order; a name of `Tia`, or None.
_TIA = (
    "origin", None, None, "drawn", "left", None, None, "vsync_end", None, "vsync", "vblank",
    "nusiz0", "nusiz1", "colup0", "colup1", "colupf", "colubk", "ctrlpf", None, "refp0", "refp1",
    "pf", "grp0", "grp1", "old0", "old1", "enam0", "enam1", "enabl", "oldbl", "hmp0", "hmp1",
    "hmm0", "hmm1", "hmbl", "vdelp0", "vdelp1", "vdelbl", "resmp0", "resmp1", "collisions",
    "x0", "x1", "xm0", "xm1", "xbl", None, None, "moved_at", "comb", "stars", "star", "dumped",
    "charge_at",
)  # fmt: skip
_MASKS = dict.fromkeys(("colup0", "colup1", "colupf", "colubk"), 0xFE)
_MASKS |= dict.fromkeys(("hmp0", "hmp1", "hmm0", "hmm1", "hmbl"), 15)


class Start(NamedTuple):
    """One machine without a lane axis, its controllers and its image."""

    machine: Machine
    controls: Controls
    rom: Rom


class _Reader:
    """Numbers of one chip, in order."""

    def __init__(self, data: bytes, name: str):
        key = len(name).to_bytes(4, "little") + name.encode()
        self._data, self._at = data, data.index(key) + len(key)

    def number(self) -> int:
        value = int.from_bytes(self._data[self._at : self._at + 4], "little")
        self._at += 4
        if value in (_TRUE, _FALSE):
            return int(value == _TRUE)
        return value - (1 << 32) if value >= 1 << 31 else value

    def numbers(self, count: int) -> list[int]:
        return [self.number() for _ in range(count)]


def kind_of(data: bytes) -> str:
    """Return the kind of cartridge that a snapshot names."""
    at = data.index(b"Cartridge")
    length = int.from_bytes(data[at - 4 : at], "little")
    return data[at : at + length].decode().removeprefix("Cartridge")


def _cpu(data: bytes) -> tuple[Cpu, int]:
    """Return the processor, and 1 if the frame is not over."""
    r = _Reader(data, "M6502Low")
    a, x, y, sp, _, pc, n, v, _, d, i, not_zero, c, stopped = r.numbers(14)
    return Cpu(a, x, y, sp, pc, n, int(not not_zero), c, v, d, i), int(stopped & 1 == 0)


def _riot(data: bytes) -> tuple[Riot, list[int]]:
    r = _Reader(data, "M6532")
    ram = r.numbers(r.number())
    timer, shift, set_at, late_at, late, dir_a, dir_b = r.numbers(7)
    return Riot(timer, shift, set_at, late_at, late, 0, dir_a, 0, dir_b), ram


def _playfield(pf: int) -> int:
    """Return the playfield's bits from left to right; in a snapshot PF1's byte is not reversed."""
    middle = int(f"{pf >> 4 & 0xFF:08b}"[::-1], 2)
    return pf & 0xFF00F | middle << 4


def _tia(data: bytes) -> tuple[Tia, View]:
    numbers = _Reader(data, "TIA").numbers(len(_TIA))
    fields = {n: v & _MASKS.get(n, -1) for n, v in zip(_TIA, numbers, strict=True) if n}
    fields |= {"pf": _playfield(fields["pf"]), "mirror": fields["ctrlpf"] & 1}
    origin, start, stop = numbers[:3]
    height = (stop - start) // LINE
    pal = height == _PAL_HEIGHT
    view = View((start - origin) // LINE, height, _PAL_LINES if pal else _LINES, int(pal), 1)
    return Tia(**fields, skip0=0, skip1=0, loss=0), view


def _cart(data: bytes) -> tuple[Cart, list[int], Dpc]:
    """Return the cartridge's state, the bytes that it holds in `Machine.ram`, and DPC."""
    name = kind_of(data)
    if name not in _KINDS:
        raise ConfigError("cartridge", name, f"one of {', '.join(_KINDS)}")
    first, banks, extra = _KINDS[name]
    r = _Reader(data, f"Cartridge{name}")
    kind = {"E0": cartridge.SLICES, "FE": cartridge.BY_ADDRESS}.get(name, cartridge.BANKS)
    if name == "E0":
        slices = [s * SLICE for s in r.numbers(r.number())]
    else:
        bank = r.number() if banks else 0
        slices = [bank * BANK + i * SLICE for i in range(4)]
    ram, chip = r.numbers(r.number()) if extra else [], Dpc(0, 0, 0)
    if name == "DPC":
        ram, chip = _dpc(r)
    return Cart(0, kind, first, banks, extra, *slices), ram, chip


def _dpc(r: _Reader) -> tuple[list[int], Dpc]:
    """Return the bytes of `dpc` in RAM, and its oscillator."""
    tops, bottoms, counters, flags, plays = (r.numbers(r.number()) for _ in range(5))
    random, last, fraction = r.numbers(3)
    high = [c >> 8 | p * dpc.MUSIC for c, p in zip(counters, [0] * 5 + plays, strict=True)]
    low = [c & 0xFF for c in counters]
    phase = round(fraction * dpc.PERIOD / _FRACTION)
    return [*tops, *bottoms, *low, *high, *flags, random], Dpc(1, *dpc.since(last, phase))


def parse(
    data: bytes,
    image: bytes,
    controller: int,
    shown: np.ndarray,
    before: np.ndarray,
    combs: bool = True,
) -> Start:
    """Return the machine of a snapshot. Raises ConfigError for an unsupported cartridge.

    Args:
        data: What `serialize` returns.
        image: The ROM.
        controller: The kind, see `games.controller`.
        shown: The screen at the snapshot, uint8 [height, 160], which a snapshot lacks.
        before: The screen of the frame before.
        combs: Whether HMOVE blackens eight pixels.
    """
    cpu, partial = _cpu(data)
    riot, inner = _riot(data)
    tia, view = _tia(data)
    view = view._replace(combs=int(combs))
    cart, outer, chip = _cart(data)
    memory = np.zeros(RAM, np.uint8)
    memory[:128] = inner
    memory[128 : 128 + len(outer)] = outer
    cycles = _Reader(data, "System").number()
    ends = (0, 4, len(data) - 8, len(data) - 4)
    paddles = [int.from_bytes(data[i : i + 4], "little") for i in ends]
    screens = np.zeros((2, _SCREEN_LINES, WIDTH), np.uint8)
    screens[0, : len(shown)], screens[1, : len(before)] = shown, before
    machine = Machine(
        cpu, riot, tia, cart, view, memory, screens, 0, cycles, 0, partial, 0, 0, chip
    )
    rom = decode(image + bytes(-len(image) % BANK if chip.present else 0))
    return Start(machine, Controls(controller, *paddles, _SWITCHES), rom)


def batch(starts: list[Start]) -> tuple[Machine, Controls, Rom]:
    """Return machines as lanes; images that are the same object are joined once.

    `Machine.dpc` is left out unless a lane has the chip.
    """
    images = list({id(s.rom): s.rom for s in starts}.values())
    rom, begins = join(images)
    where = {id(image): int(begin) for image, begin in zip(images, begins, strict=True)}
    carts = [s.machine.cart._replace(start=where[id(s.rom)]) for s in starts]
    lanes = [s.machine._replace(cart=cart) for s, cart in zip(starts, carts, strict=True)]
    if not any(lane.dpc.present for lane in lanes):
        lanes = [lane._replace(dpc=()) for lane in lanes]

    def stack(*leaves):
        leaf = np.stack([np.asarray(x) for x in leaves])
        return leaf if leaf.dtype == np.uint8 else leaf.astype(np.int32)

    return jax.tree.map(stack, *lanes), jax.tree.map(stack, *[s.controls for s in starts]), rom
