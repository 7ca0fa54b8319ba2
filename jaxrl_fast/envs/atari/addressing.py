"""Addressing modes: the place of an instruction's operand, and the cycles to reach it."""

from __future__ import annotations

from collections.abc import Callable
from typing import NamedTuple

import jax
import jax.numpy as jnp

from jaxrl_fast.envs.atari import opcodes as op
from jaxrl_fast.envs.atari.state import Cpu

_VECTOR = 0xFFFE  # where BRK finds its target
_CARTRIDGE, _UPPER, _PORTS = 0x1000, 0x80, 0x200  # address lines that choose a chip

Load = Callable[[jax.Array], jax.Array]


class Instruction(NamedTuple):
    """Words of the instruction at the program counter."""

    code: jax.Array
    address: jax.Array
    operation: jax.Array


class Access(NamedTuple):
    """Addresses of an instruction, its cycles and the next program counter."""

    read_at: jax.Array
    write_at: jax.Array
    cycles: jax.Array
    follow: jax.Array  # program counter behind the instruction or its branch
    absolute: jax.Array  # target of JMP and JSR
    pointer: jax.Array  # target of RTS and RTI
    bus: jax.Array  # last byte of the bus before the access
    bad: jax.Array


def is_cartridge(address: jax.Array) -> jax.Array:
    """Return whether the cartridge answers."""
    return address & _CARTRIDGE != 0


def is_ram(address: jax.Array) -> jax.Array:
    """Return whether the RIOT's RAM answers."""
    return address & (_CARTRIDGE | _UPPER | _PORTS) == _UPPER


def is_ports(address: jax.Array) -> jax.Array:
    """Return whether the RIOT's timer and ports answer."""
    return address & (_CARTRIDGE | _UPPER | _PORTS) == _UPPER | _PORTS


def is_tia(address: jax.Array) -> jax.Array:
    """Return whether the TIA answers."""
    return address & (_CARTRIDGE | _UPPER) == 0


def resolve(cpu: Cpu, word: Instruction, ram: Load, rom: Load) -> Access:
    """Return the accesses of the instruction; `ram` and `rom` load bytes by address."""

    def field(name: str) -> jax.Array:
        return op.ADDRESS.get(word.address, name)

    first, second = (word.code >> 8) & 0xFF, (word.code >> 16) & 0xFF
    absolute = first | second << 8
    flow, kind = field("flow"), field("indirect")
    direct = (kind == op.DIRECT) & (flow != op.RETURN) & (flow != op.RESUME)
    by_y = jnp.where(field("index") == op.BY_Y, cpu.y, 0)
    index = jnp.where(field("index") == op.BY_X, cpu.x, by_y)
    zero_page = field("zero_page") == 1

    stacked = cpu.sp + jnp.where(flow == op.RESUME, 2, 1)
    at = jnp.where(zero_page, (first + jnp.where(kind == op.POINTER_X, cpu.x, 0)) & 0xFF, absolute)
    at = jnp.where(flow == op.BREAK, _VECTOR, at)
    at = jnp.where((flow == op.RETURN) | (flow == op.RESUME), 0x100 | stacked & 0xFF, at)
    after = at & 0xFF00 | (at + 1) & 0xFF
    low = jnp.where(is_cartridge(at), rom(at), ram(at))
    pointer = low | ram(after) << 8

    y = jnp.where(kind == op.POINTER_Y, cpu.y, 0)
    plain = jnp.where(zero_page, (first + index) & 0xFF, (absolute + index) & 0xFFFF)
    read_at = jnp.where(direct, plain, (pointer + y) & 0xFFFF)
    read_at = jnp.where(kind == op.POINTER, after, read_at)
    stack = 0x100 | cpu.sp
    read_at = jnp.where(field("pulls") == 1, 0x100 | (cpu.sp + 1) & 0xFF, read_at)
    write_at = jnp.where(field("pushes") == 1, stack, read_at)

    crosses = jnp.where(direct, (first + index) > 0xFF, (low + y) > 0xFF)
    follow, extra = _branch(cpu, word, first, flow, field("length"))
    cycles = field("cycles") + extra + (crosses & (field("penalty") == 1)).astype(jnp.int32)
    jumps = jnp.where(kind == op.POINTER, low, absolute)
    bus = jnp.where(direct, jnp.where(zero_page, first, second), pointer >> 8)
    top = jnp.where(is_ram(stack), ram(stack), word.code)  # a pull reads the old top first
    bus = jnp.where(field("pulls") == 1, top, bus)
    from_stack = (flow == op.CALL) | (flow == op.BREAK)
    lost = ~direct & (kind != op.POINTER) & ~is_ram(at)
    lost = lost | (from_stack & ~is_ram(stack)) | ~(is_cartridge(cpu.pc) | is_ram(cpu.pc))
    bad = lost | (field("bad") == 1)
    return Access(read_at, write_at, cycles, follow, jumps, pointer, bus, bad)


def _branch(
    cpu: Cpu, word: Instruction, offset: jax.Array, flow: jax.Array, length: jax.Array
) -> tuple[jax.Array, jax.Array]:
    """Return the program counter behind the instruction and the cycles that a taken branch adds."""
    follow = (cpu.pc + length) & 0xFFFF
    which = (word.code >> 6) & 3
    lower = jnp.where(which == 0, cpu.n, cpu.v)
    flag = jnp.where(which < 2, lower, jnp.where(which == 2, cpu.c, cpu.z))
    taken = (flow == op.BRANCH) & (flag == (word.code >> 5) & 1)
    target = (follow + (offset ^ 0x80) - 0x80) & 0xFFFF
    crosses = (follow ^ target) & 0xFF00 != 0
    return jnp.where(taken, target, follow), jnp.where(taken, 1 + crosses.astype(jnp.int32), 0)
