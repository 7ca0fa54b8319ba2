"""DPC, the chip of Pitfall II: display data in eight streams, music and random numbers.

A program has this code only where one of its lanes has the chip (`Machine.dpc`). The registers are
those of public lists, which cite US patent 4,644,495; images of ours showed what ALE does at each
access.
"""

from __future__ import annotations

from typing import Any

import jax
import jax.numpy as jnp
from jax import lax

from jaxrl_fast.envs.atari import opcodes as op
from jaxrl_fast.envs.atari.addressing import Access, Instruction, is_cartridge
from jaxrl_fast.envs.atari.bits import choose
from jaxrl_fast.envs.atari.decode import BANK
from jaxrl_fast.envs.atari.memory import Memory
from jaxrl_fast.envs.atari.state import RIOT_RAM, Dpc, Machine

FETCHERS = 8
# The chip's bytes in `Machine.ram`: five rows with a byte a fetcher, then the random number. A row
# has the number of its writes' addresses. HIGH holds three bits of the counter, and `MUSIC`.
TOP, BOTTOM, LOW, HIGH, FLAG, RANDOM = range(RIOT_RAM, RIOT_RAM + 6 * FETCHERS, FETCHERS)
_ROWS = (TOP, BOTTOM, LOW, HIGH, FLAG)
MUSIC = 0x10  # the oscillator moves the fetcher, reads do not
_VOICES = ((5, 4), (6, 5), (7, 6))  # fetchers of the music and the volume of each

_REGISTERS, _WRITES, _END = 0x1000, 0x1040, 0x1080  # addresses that read, that write, end
_COUNTED = 0x1FC0  # ALE: reads of these addresses clock the random number, an instruction's too
_LAST = 2 * BANK + 2047  # of the display data in the image; a counter is a distance from it
_CLOCKS, PERIOD = 1890, 143_183  # the oscillator's clocks in so many cycles: 15,750 Hz


def begin(chip: Dpc, back: jax.Array) -> Dpc:
    """Return the oscillator with times `back` cycles earlier."""
    beat = chip.phase + _CLOCKS * back
    return chip._replace(clocks=chip.clocks + beat // PERIOD, phase=beat % PERIOD)


def since(last: int, phase: int) -> tuple[int, int]:
    """Return `Dpc.clocks` and `Dpc.phase` of an oscillator that had `phase` at cycle `last`."""
    return divmod(phase - _CLOCKS * last, PERIOD)


def _after(random: jax.Array) -> jax.Array:
    """Return the random number that follows."""
    odd = random >> 7 ^ random >> 5 ^ random >> 4 ^ random >> 3
    return (random << 1 | ~odd & 1) & 0xFF


def _is_register(at: jax.Array) -> jax.Array:
    return (at >= _REGISTERS) & (at < _END)


def read(
    m: Machine, memory: Memory, word: Instruction, access: Access, cycles: jax.Array, on: jax.Array,
    byte: jax.Array,
) -> tuple[Machine, jax.Array, jax.Array]:
    """Return the machine after an instruction's reads where `on`, its byte, and strayed lanes.

    A lane strays where the program counter is among the registers.
    """
    on = on & (m.dpc.present == 1)
    at, pc = access.read_at & 0x1FFF, m.cpu.pc & 0x1FFF
    length = op.ADDRESS.get(word.address, "length")
    through = op.ADDRESS.get(word.address, "indirect") == op.POINTER
    reads = on & op.ADDRESS.has(word.address, "reads")
    meets = reads & _is_register(at)
    counts = [meets | (reads & (at >= _COUNTED)), on & through & (at > _COUNTED)]
    clocks = jnp.where(on, jnp.clip(pc + length - _COUNTED, 0, length), 0)
    clocks = sum((count.astype(jnp.int32) for count in counts), clocks)

    def meet() -> tuple[Dpc, Any, jax.Array]:
        random = memory.load(m.ram, RANDOM)
        for i in range(5):
            random = jnp.where(i < clocks, _after(random), random)
        ram = memory.store(m.ram, RANDOM, random, on)
        fetches = meets & (at < _WRITES)
        chip, ram, value = _fetch(m, memory, ram, at, random, cycles, fetches)
        return chip, ram, jnp.where(meets, jnp.where(fetches, value, 0), byte)

    met = memory.some(clocks > 0)
    chip, ram, byte = lax.cond(met, meet, lambda: (m.dpc, m.ram, byte))
    return m._replace(dpc=chip, ram=ram), byte, on & _is_register(pc)


def _fetch(
    m: Machine, memory: Memory, ram: Any, at: jax.Array, random: jax.Array, cycles: jax.Array,
    on: jax.Array,
) -> tuple[Dpc, Any, jax.Array]:
    """Return the chip after a read of a register where `on`, and the byte read."""
    fetcher, kind = at & 7, (at >> 3) & 7
    top, bottom, low, high, flag = (memory.load(ram, row + fetcher) for row in _ROWS)
    flag = jnp.where(low == top, 0xFF, jnp.where(low == bottom, 0, flag))
    counter = (high & 7) << 8 | low
    data = memory.image(jnp.where(on, m.cart.start + _LAST - counter, 0)).code & 0xFF
    moves = on & (high & MUSIC == 0)
    counter = counter - 1
    ram = memory.store(ram, FLAG + fetcher, flag, on)
    ram = memory.store(ram, LOW + fetcher, counter & 0xFF, moves)
    ram = memory.store(ram, HIGH + fetcher, (counter >> 8) & 7, moves)
    listens = on & (kind == 0) & (fetcher > 3)
    silent = jnp.zeros_like(at)
    chip, ram, volume = lax.cond(
        memory.some(listens),
        lambda: _play(m.dpc, memory, ram, cycles, listens),
        lambda: (m.dpc, ram, silent),
    )
    first = jnp.where(fetcher > 3, volume, random)
    # ALE: four kinds of reads, for swapped, mirrored and rotated data, give 0
    return chip, ram, choose(kind, (first, data, data & flag, 0, 0, 0, 0), flag)


def _play(
    chip: Dpc, memory: Memory, ram: Any, cycles: jax.Array, on: jax.Array
) -> tuple[Dpc, Any, jax.Array]:
    """Return the chip with the voices moved up to a cycle where `on`, and their volume.

    Each is a square wave: its counter falls from TOP to 0, and is loud above BOTTOM.
    """
    clocks = chip.clocks + (chip.phase + _CLOCKS * cycles) // PERIOD
    volume = jnp.zeros_like(cycles)
    for fetcher, loud in _VOICES:
        top, bottom, low, high, flag = (memory.load(ram, row + fetcher) for row in _ROWS)
        plays = on & (high & MUSIC != 0)
        moves = plays & (clocks > 0)
        low = low - clocks % (top + 1)
        low = jnp.where(low < 0, low + top + 1, low)
        low = jnp.where(top == 0, 0, low)
        level = jnp.where(low <= bottom, 0, jnp.where(low <= top, 0xFF, flag))
        ram = memory.store(ram, LOW + fetcher, low, moves)
        ram = memory.store(ram, FLAG + fetcher, level, moves)
        flag = jnp.where(moves, level, flag)
        volume = volume + jnp.where(plays & (flag != 0), loud, 0)
    return chip._replace(clocks=jnp.where(on, chip.clocks - clocks, chip.clocks)), ram, volume


def write(
    m: Machine, memory: Memory, ram: Any, address: jax.Array, value: jax.Array, on: jax.Array
) -> Any:
    """Return RAM after a write to an address where `on`."""
    on = on & (m.dpc.present == 1) & is_cartridge(address)
    at = address & 0x1FFF

    def meet() -> Any:
        fetcher, kind = at & 7, (at >> 3) & 7
        sets = on & _is_register(at) & (at >= _WRITES)
        top, high = (memory.load(ram, row + fetcher) for row in (TOP, HIGH))
        low = jnp.where(high & MUSIC != 0, top, value)
        bits = jnp.where(fetcher >= _VOICES[0][0], MUSIC | 7, 7)
        random = jnp.where(sets & (kind == 6), 1, _after(memory.load(ram, RANDOM)))
        byte = choose(kind, (value, value, low), value & bits)
        new = memory.store(ram, TOP + kind * FETCHERS + fetcher, byte, sets & (kind < 4))
        new = memory.store(new, FLAG + fetcher, jnp.zeros_like(at), sets & (kind == 0))
        return memory.store(new, RANDOM, random, on)

    return lax.cond(memory.some(on), meet, lambda: ram)
