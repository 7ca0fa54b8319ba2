"""Objects of a line as five words of 32 pixels, the leftmost pixel in the lowest bit."""

from __future__ import annotations

from collections.abc import Sequence

import jax
import jax.numpy as jnp

Words = tuple[jax.Array, ...]
WORDS = 5
FULL = 0xFFFFFFFF
# Bit n: size n has a copy at 16, 32 or 64 pixels.
_TWO_CLOSE, _TWO_MEDIUM, _TWO_WIDE = 0b00001010, 0b01001100, 0b01010000


def choose(index: jax.Array, choices: Sequence[jax.Array | int], other: jax.Array) -> jax.Array:
    """Return choices[index], or `other` past the last; by selections, for kernels lack `argmax`."""
    for i, choice in enumerate(choices):
        other = jnp.where(index == i, choice, other)
    return other


def u32(x: jax.Array) -> jax.Array:
    """Return `x` as uint32."""
    return x.astype(jnp.uint32)


def reverse8(x: jax.Array) -> jax.Array:
    """Return the lowest eight bits in reverse order."""
    x = ((x >> 4) & 0x0F) | ((x & 0x0F) << 4)
    x = ((x >> 2) & 0x33) | ((x & 0x33) << 2)
    return ((x >> 1) & 0x55) | ((x & 0x55) << 1)


def reverse20(x: jax.Array) -> jax.Array:
    """Return the lowest twenty bits in reverse order."""
    low, middle, high = (reverse8((x >> at) & 0xFF) for at in (0, 8, 16))
    return (low << 12 | middle << 4 | high >> 4) & 0xFFFFF


def double8(x: jax.Array) -> jax.Array:
    """Return eight bits as sixteen, each twice."""
    x = (x | x << 4) & 0x0F0F
    x = (x | x << 2) & 0x3333
    x = (x | x << 1) & 0x5555
    return x * 3


def quadruple8(x: jax.Array) -> jax.Array:
    """Return eight bits as 32, each four times."""
    x = (x | x << 12) & 0x000F000F
    x = (x | x << 6) & 0x03030303
    x = (x | x << 3) & 0x11111111
    return x * 15


def below(x: jax.Array) -> Words:
    """Return the words of the pixels left of `x`, 0 to 160."""
    words = []
    for i in range(WORDS):
        n = jnp.clip(x - 32 * i, 0, 32)
        some = (jnp.uint32(2) << u32(jnp.maximum(n - 1, 0))) - jnp.uint32(1)
        words.append(jnp.where(n > 0, some, jnp.uint32(0)))
    return tuple(words)


def place(words: Words, x: jax.Array) -> Words:
    """Return three words moved `x` pixels to the right on the ring of 160 pixels."""
    zero = jnp.zeros_like(words[0])
    ring = (*words, zero, zero)
    for bit in range(3):
        turn, by = (x >> (5 + bit)) & 1, 1 << bit
        ring = tuple(jnp.where(turn == 1, ring[(i - by) % WORDS], ring[i]) for i in range(WORDS))
    r = u32(x & 31)
    return tuple(ring[i] << r | (ring[i - 1] >> 1) >> (31 - r) for i in range(WORDS))


def copies(pattern: jax.Array, size: jax.Array, first: jax.Array) -> Words:
    """Return a pattern of at most 16 pixels with the copies that NUSIZ's `size` asks for."""
    pattern, zero = u32(pattern), jnp.zeros_like(u32(pattern))

    def copy(sizes: int) -> jax.Array:
        return jnp.where((sizes >> size) & 1 == 1, pattern, zero)

    head = jnp.where(first, pattern, zero) | copy(_TWO_CLOSE) << 16
    return head, copy(_TWO_MEDIUM), copy(_TWO_WIDE)


def player(
    graphics: jax.Array, reflected: jax.Array, nusiz: jax.Array, x: jax.Array, skip: jax.Array
) -> Words:
    """Return a player's pixels; wide players begin one pixel later."""
    size, shown = nusiz & 7, skip == 0
    pattern = jnp.where(reflected == 1, graphics, reverse8(graphics))
    narrow = copies(pattern, size, shown)
    wide = jnp.where(size == 5, u32(double8(pattern)), quadruple8(u32(pattern)))
    wide = jnp.where(shown, wide, jnp.uint32(0))
    single = (size == 5) | (size == 7)
    zero = jnp.zeros_like(wide)
    words = (wide << 1, wide >> 31, zero)
    return place(tuple(jnp.where(single, w, n) for w, n in zip(words, narrow, strict=True)), x)


def missile(on: jax.Array, nusiz: jax.Array, width: jax.Array, x: jax.Array) -> Words:
    """Return a missile's pixels, `1 << width` of them a copy."""
    pattern = jnp.where(on, (1 << (1 << width)) - 1, 0)
    return place(copies(pattern, nusiz & 7, jnp.ones_like(on, bool)), x)


def ball(on: jax.Array, width: jax.Array, x: jax.Array) -> Words:
    """Return the ball's pixels."""
    pattern = u32(jnp.where(on, (1 << (1 << width)) - 1, 0))
    zero = jnp.zeros_like(pattern)
    return place((pattern, zero, zero), x)


def playfield(pf: jax.Array, mirror: jax.Array) -> Words:
    """Return the playfield's pixels, four a bit; its right half is repeated or reflected."""
    right = jnp.where(mirror == 1, reverse20(pf), pf)
    bits = (pf, pf >> 8, pf >> 16 | (right & 0x0F) << 4, right >> 4, right >> 12)
    return tuple(quadruple8(u32(b & 0xFF)) for b in bits)


def both(a: Words, b: Words) -> Words:
    """Return the pixels of both."""
    return tuple(x & y for x, y in zip(a, b, strict=True))


def either(a: Words, b: Words) -> Words:
    """Return the pixels of either."""
    return tuple(x | y for x, y in zip(a, b, strict=True))


def without(a: Words, b: Words) -> Words:
    """Return the pixels of `a` that `b` does not have."""
    return tuple(x & ~y for x, y in zip(a, b, strict=True))


def meet(a: Words, b: Words) -> jax.Array:
    """Return 1 where any pixel is in both, else 0."""
    total = both(a, b)
    any_word = total[0]
    for word in total[1:]:
        any_word = any_word | word
    return (any_word != 0).astype(jnp.int32)


def pixels(words: jax.Array) -> jax.Array:
    """Return the pixels of words uint32 [N, 5], bool [N, 5, 32]."""
    return words[..., None] >> jnp.arange(32, dtype=jnp.uint32) & 1 == 1
