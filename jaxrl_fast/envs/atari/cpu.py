"""The 6507's two stages: registers, flags and the stored byte of an instruction."""

from __future__ import annotations

import jax
import jax.numpy as jnp

from jaxrl_fast.envs.atari import opcodes as op
from jaxrl_fast.envs.atari.addressing import Access, Instruction
from jaxrl_fast.envs.atari.bits import choose
from jaxrl_fast.envs.atari.memory import Rare
from jaxrl_fast.envs.atari.state import Cpu


def _bit(value: jax.Array, at: int) -> jax.Array:
    return (value >> at) & 1


def is_unsupported(cpu: Cpu, word: Instruction) -> jax.Array:
    """Return whether the instruction is ARR of decimal digits."""
    return op.OPERATION.has(word.operation, "arr") & (cpu.d == 1)


def flags(cpu: Cpu) -> jax.Array:
    """Return the flags as the byte that PHP and BRK push."""
    return cpu.n << 7 | cpu.v << 6 | 0x30 | cpu.d << 3 | cpu.i << 2 | cpu.z << 1 | cpu.c


def execute(
    cpu: Cpu,
    word: Instruction,
    access: Access,
    memory: jax.Array,
    rare: Rare,
) -> tuple[Cpu, jax.Array]:
    """Return the processor after the instruction and the byte that it stores.

    `memory` is the byte at `access.read_at`; `rare`: see `Memory`.
    """

    def field(name: str) -> jax.Array:
        return op.OPERATION.get(word.operation, name)

    def has(name: str) -> jax.Array:
        return op.OPERATION.has(word.operation, name)

    operand = jnp.where(op.ADDRESS.has(word.address, "immediate"), (word.code >> 8) & 0xFF, memory)
    shifted, carry = _shift(cpu, field("source"), field("shift"), operand)
    carry = jnp.where(has("shift_carry"), carry, cpu.c)
    left = choose(field("left"), (cpu.a, cpu.x, cpu.y), cpu.a & cpu.x)
    result, carry_out, overflow = _combine(field("alu"), left, shifted, carry, cpu.d, rare)

    bit = field("alu") == op.BIT
    n = jnp.where(has("zn"), _bit(jnp.where(bit, shifted, result), 7), cpu.n)
    z = jnp.where(has("zn"), (result == 0).astype(jnp.int32), cpu.z)
    c = jnp.where(has("alu_carry"), carry_out, carry)
    c = jnp.where(has("anc"), n, jnp.where(has("arr"), _bit(result, 6), c))
    v = jnp.where(has("overflow"), overflow, cpu.v)
    v = jnp.where(has("arr"), _bit(result, 6) ^ _bit(result, 5), v)
    d, i = cpu.d, cpu.i

    pulled = has("to_flags")
    n, v, d, i, z, c = (jnp.where(pulled, _bit(memory, at), old)
                        for at, old in ((7, n), (6, v), (3, d), (2, i), (1, z), (0, c)))
    flag, value = field("flag"), field("flag_value")
    c = jnp.where(flag == op.CARRY, value, c)
    i = jnp.where(flag == op.INTERRUPT, value, i)
    v = jnp.where(flag == op.OVERFLOW, value, v)
    d = jnp.where(flag == op.DECIMAL, value, d)

    sp = (cpu.sp + op.ADDRESS.get(word.address, "stack") - op.STACK_MIDDLE) & 0xFF
    new = Cpu(
        a=jnp.where(has("to_a"), result, cpu.a),
        x=jnp.where(has("to_x"), result, cpu.x),
        y=jnp.where(has("to_y"), result, cpu.y),
        sp=jnp.where(has("to_sp"), result, sp),
        pc=_next(word, access, memory),
        n=n, z=z, c=c, v=v, d=d, i=i,
    )  # fmt: skip
    return new, shifted


def _next(word: Instruction, access: Access, memory: jax.Array) -> jax.Array:
    """Return the program counter of the next instruction."""
    flow = op.ADDRESS.get(word.address, "flow")
    through_memory = op.ADDRESS.get(word.address, "indirect") == op.POINTER
    jump = jnp.where(through_memory, access.absolute | memory << 8, access.absolute)
    to = jnp.where((flow == op.JUMP) | (flow == op.CALL) | (flow == op.BREAK), jump, access.follow)
    to = jnp.where(flow == op.RETURN, access.pointer + 1, to)
    return jnp.where(flow == op.RESUME, access.pointer, to) & 0xFFFF


def _shift(
    cpu: Cpu, source: jax.Array, kind: jax.Array, operand: jax.Array
) -> tuple[jax.Array, jax.Array]:
    """Return the first stage's byte and the bit that left it."""
    choices = [operand, cpu.a, cpu.x, cpu.y, cpu.sp, cpu.a & cpu.x, cpu.a & operand]
    value = choose(source, choices, flags(cpu))
    left, right = value << 1, value >> 1
    by_kind = [value, left, right, left | cpu.c, right | cpu.c << 7, value + 1, value - 1]
    shifted = choose(kind, by_kind[:6], by_kind[6]) & 0xFF
    return shifted, jnp.where((kind == op.ASL) | (kind == op.ROL), value >> 7, value & 1)


def _combine(
    alu: jax.Array, left: jax.Array, right: jax.Array, carry: jax.Array, decimal: jax.Array,
    rare: Rare,
) -> tuple[jax.Array, jax.Array, jax.Array]:
    """Return the second stage's byte, carry and overflow."""
    subtracts = (alu == op.SBC) | (alu == op.CMP)
    addend = jnp.where(subtracts, right ^ 0xFF, right)
    total = left + addend + jnp.where(alu == op.CMP, 1, carry)
    added, carry_out = total & 0xFF, total >> 8
    by_ten = (decimal == 1) & ((alu == op.ADC) | (alu == op.SBC))
    tens, tens_carry = rare(
        by_ten, lambda: _decimal(left, right, carry, alu == op.SBC), (added, carry_out)
    )
    carry_out = jnp.where(by_ten, tens_carry, carry_out)
    added = jnp.where(by_ten, tens, added)
    overflow = _bit(jnp.where(by_ten, right ^ added, ~(left ^ addend)) & (left ^ added), 7)
    result = choose(alu, (right, left | right, left & right, left ^ right), added)
    result = jnp.where(alu == op.BIT, left & right, result)
    return result, carry_out, jnp.where(alu == op.BIT, _bit(right, 6), overflow)


def _decimal(
    left: jax.Array, right: jax.Array, carry: jax.Array, subtracts: jax.Array
) -> tuple[jax.Array, jax.Array]:
    """Return the sum or difference of two bytes of decimal digits, and its carry.

    Bytes with digits above nine give ALE's results.
    """

    def number(byte: jax.Array) -> jax.Array:
        return (byte >> 4) * 10 + (byte & 0x0F)

    total = number(left) + number(right) + carry
    borrowed = number(left) - number(right) - (1 - carry)
    difference = jnp.where(borrowed < 0, borrowed + 100, borrowed)
    value = jnp.where(subtracts, difference, total & 0xFF) % 100
    odd = subtracts & (difference < 0)
    digits = jnp.where(odd, number(difference & 0xFF), value // 10 << 4 | value % 10)
    carries = jnp.where(subtracts, left >= right + 1 - carry, total > 99)
    return digits, carries.astype(jnp.int32)
