"""Random 6507 programs for the Atari 2600, which ALE plays under the name of a game."""

from __future__ import annotations

import numpy as np

from jaxrl_fast.envs.atari import opcodes as op

NAME = "boxing"  # a game that ALE starts without looking at its RAM
_ORIGIN = 0xF000
_CHIP = 0x80  # bytes that the chip's registers take from each bank
_LAST_PAGE = 0xFFC0  # instructions there clock the chip's random number
# RAM that programs use: below it ALE looks for the game's end, above lie pointer and stack.
_SCRATCH, _BYTES = 0x98, 80
_POINTER = 0xF0
_TIMERS = (0x94, 0x95, 0x96, 0x97, 0x9C, 0x9F)
_PORTS = (0x80, 0x81, 0x82, 0x83, 0x84, 0x85, 0x8C)


def image(body: bytes, offset: int = 0) -> bytes:
    """Return an image whose frame is three lines of VSYNC and `body`."""
    code = bytearray([0x78, 0xD8, 0xA2, 0xFF, 0x9A])  # SEI CLD LDX #$FF TXS
    begin = _ORIGIN + offset
    again = begin + len(code)
    code += bytes([0xA9, 2, 0x85, 0, 0x85, 2, 0x85, 2, 0x85, 2, 0xA9, 0, 0x85, 0]) + body
    code += bytes([0x4C, again & 0xFF, again >> 8])
    rom = bytearray(4096)
    rom[offset : offset + len(code)] = code
    rom[-4:] = bytes([begin & 0xFF, begin >> 8] * 2)
    return bytes(rom)


def lines(count: int) -> bytes:
    """Return code that waits for `count` lines."""
    return bytes([0xA2, count, 0x85, 2, 0xCA, 0xD0, 0xFB])


def _scratch(rng: np.random.Generator) -> int:
    return _SCRATCH + int(rng.integers(_BYTES))


def _operands(rng: np.random.Generator, code: int, word: int) -> bytes:
    """Return an instruction that reads the image or scratch RAM and writes scratch RAM."""
    fields = ("length", "index", "indirect")
    length, index, kind = (int(op.ADDRESS.get(word, name)) for name in fields)
    writes = bool(op.ADDRESS.get(word, "writes"))
    offset = int(rng.integers(256))
    if kind:
        by = offset if kind == op.POINTER_Y else 0
        target = (_scratch(rng) - by) % 0x10000 if writes else 0xF000 + int(rng.integers(0xE00))
        setup = bytes([0xA9, target & 0xFF, 0x85, _POINTER, 0xA9, target >> 8, 0x85, _POINTER + 1])
        load = bytes([0xA0 if kind == op.POINTER_Y else 0xA2, offset, 0xA5, _scratch(rng)])
        at = _POINTER if kind == op.POINTER_Y else _POINTER - offset
        return setup + load + bytes([code, at & 0xFF])
    load = bytes([(0xA2, 0xA0)[index - 1], offset]) if index else b""
    offset = offset if index else 0
    if length == 3:
        target = (_scratch(rng) - offset) % 0x10000 if writes else 0xF000 + int(rng.integers(0xE00))
        return load + bytes([code, target & 0xFF, target >> 8])
    if op.ADDRESS.get(word, "zero_page"):
        return load + bytes([code, (_scratch(rng) - offset) & 0xFF])
    return bytes([code, int(rng.integers(256))][:length])


def processor(seed: int, size: int = 3000) -> bytes:
    """Return a program of every supported opcode, the timer, and the chips' reads."""
    rng, table = np.random.default_rng(seed), op.control_words()[:, 0]
    arr = 0x6B  # not supported with decimal digits
    unfit = op.ADDRESS.get(table, "bad") | op.ADDRESS.get(table, "flow")
    usable = [c for c in range(256) if c not in (0x9A, arr) and not unfit[c]]
    out = bytearray()
    while len(out) < size:
        code, at = int(rng.choice(usable)), _scratch(rng)
        moves = op.ADDRESS.get(table[code], "pulls") | op.ADDRESS.get(table[code], "pushes")
        extras = (
            bytes([int(rng.choice([0xF8, 0xD8, 0x38, 0x18]))]),
            bytes([0x85, 2]),  # STA WSYNC
            bytes([0xA5, at, 0x8D, int(rng.choice(_TIMERS)), 2]),
            bytes([0xAD, int(rng.choice(_PORTS)), 2, 0x85, at]),
            bytes([0xA5, int(rng.integers(14)), 0x85, at]),  # the TIA
            bytes([int(rng.choice(range(0x10, 0x100, 0x20))), 2, 0xE6, at]),  # a branch
            bytes([0x08, 0x68, 0x85, at]),  # the flags
        )
        for extra in extras:
            out += extra if rng.random() < 0.1 else b""
        stack = bytes([0xA2, int(rng.choice([0x04, 0xFD, 0xFF])), 0x9A])
        if moves:
            out += stack + bytes([code, 0xA2, 0xFF, 0x9A])
        else:
            out += _operands(rng, code, int(table[code]))
    return image(bytes([0xA2, 0xFF, 0x9A]) + bytes(out) + bytes([0xD8]))


# Every register but VSYNC, WSYNC, RSYNC and sound.
_WRITTEN = (1, *range(4, 0x15), *range(0x1B, 0x2D))
_COLORS = (0x0E, 0x44, 0x88, 0xC6, 0x1A, 0x36)


def _write(rng: np.random.Generator) -> bytes:
    register, value = int(rng.choice(_WRITTEN)), int(rng.integers(256))
    if register == 1:
        value = 2 if rng.random() < 0.2 else 0  # mostly lit
    if register in range(6, 10):
        value = int(rng.choice(_COLORS))
    return bytes([0xA9, value, 0x85, register])


def picture(seed: int, size: int = 3400) -> bytes:
    """Return a program that writes to the TIA at random clocks and keeps its collisions in RAM."""
    rng = np.random.default_rng(seed)
    out = bytearray([0xA9, 0, 0x85, 1]) + b"".join(_write(rng) for _ in range(80)) + lines(10)
    while len(out) < size:
        kind = rng.random()
        if kind < 0.3:
            out += bytes([0x85, 2]) if kind < 0.25 else lines(int(rng.integers(1, 4)))
        elif kind < 0.6:
            idle = bytes([0xEA, 0xEA]) if kind < 0.5 else bytes([0xA5, 0x80])
            out += idle * int(rng.integers(1, 5))
        elif kind < 0.65:
            out += bytes([0xA5, int(rng.integers(8)), 0x85, _scratch(rng)])
        else:
            out += _write(rng)
    return image(bytes(out) + bytes([0x85, 0x2C]))


def chip(seed: int, size: int = 3400) -> bytes:
    """Return a program of DPC's registers, whose reads it keeps in RAM; both banks are the same."""
    rng = np.random.default_rng(seed)
    calls = bytes([0xA5, 0x98, 0xEE, 8, 0xF0, 0xAD, 5, 0xF0, 0x85, 0x99, 0x60])  # the last page's
    out = bytearray()
    while len(out) < size:
        kind, register = rng.random(), int(rng.integers(64))
        if kind < 0.4:
            register = int(rng.choice([register, *range(4, 0x18), *range(0x38, 0x40)]))
            out += bytes([0xAD, register, 0xF0, 0x85, _scratch(rng)])
        elif kind < 0.8:
            value = int(rng.choice([rng.integers(256), rng.integers(6), rng.integers(16, 60)]))
            out += bytes([0xA9, value, 0x8D, 0x40 + register, 0xF0])
        elif kind < 0.85:
            out += lines(int(rng.integers(1, 4)))
        elif kind < 0.9:  # INC of a register, or an indexed read
            spot = int(rng.choice([0xF8, 0xF9]))
            reads = bytes([0xA2, register, 0xBD, 0, 0xF0, 0x85, _scratch(rng)])
            out += bytes([0xEE, register, 0xF0, 0xAD, spot, 0xFF]) if kind < 0.87 else reads
        else:
            out += bytes([0x20, _LAST_PAGE & 0xFF, _LAST_PAGE >> 8])
    bank = bytearray(image(bytes(out), _CHIP))
    bank[_LAST_PAGE - _ORIGIN : _LAST_PAGE - _ORIGIN + len(calls)] = calls
    return bytes(bank) * 2 + rng.bytes(2048)
