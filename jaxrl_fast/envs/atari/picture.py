"""The TIA's picture: the pixels of a segment of a line, and the objects that meet in it.

Each object is a function of the current registers and of three flags of the line, so a segment
between two writes needs one mask an object: 32 pixels a word.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import NamedTuple

import jax
import jax.numpy as jnp

from jaxrl_fast.envs.atari import bits
from jaxrl_fast.envs.atari.materialize import materialize
from jaxrl_fast.envs.atari.state import BLANK, LINE, WIDTH, Tia, View

P0, P1, M0, M1, BL, PF = range(6)
# The pair of objects of each bit of `Tia.collisions`.
PAIRS = (
    (M0, P1), (M0, P0), (M1, P0), (M1, P1), (P0, PF), (P0, BL), (P1, PF), (P1, BL),
    (M0, PF), (M0, BL), (M1, PF), (M1, BL), (BL, PF), (P0, P1), (M0, M1),
)  # fmt: skip
COMB = 8  # black pixels after HMOVE
_STAR_STEPS = (18, 33, 0, 17)  # pixels that a wandering missile moves left, by line of its period


class Segment(NamedTuple):
    """Part of a line to draw: clocks `begin` to `end` of the line."""

    wanted: jax.Array  # bool: there is something to do
    begin: jax.Array
    end: jax.Array
    closes: jax.Array  # bool: passes the end of the line


def next_segment(tia: Tia, view: View, target: jax.Array) -> Segment:
    """Return the next part of the picture to draw before clock `target`."""
    first = tia.origin + view.top * LINE
    stop = first + view.height * LINE
    wanted = (target >= first) & (tia.drawn < stop) & (tia.drawn < target)
    target = jnp.minimum(target, stop)
    closes = wanted & (target > tia.drawn + tia.left)
    begin = LINE - tia.left
    end = jnp.where(closes, LINE, begin + target - tia.drawn)
    return Segment(wanted, begin, jnp.where(wanted, end, begin), closes)


class Enabled(NamedTuple):
    """Which movable objects may show, by the registers: the players' graphics, else bools."""

    player0: jax.Array
    player1: jax.Array
    missile0: jax.Array
    missile1: jax.Array
    ball: jax.Array


def enabled(tia: Tia) -> Enabled:
    """Return which objects may show."""
    return Enabled(
        jnp.where(tia.vdelp0 == 1, tia.old0, tia.grp0),
        jnp.where(tia.vdelp1 == 1, tia.old1, tia.grp1),
        (tia.enam0 == 1) & (tia.resmp0 == 0),
        (tia.enam1 == 1) & (tia.resmp1 == 0),
        jnp.where(tia.vdelbl == 1, tia.oldbl, tia.enabl) == 1,
    )


def objects(tia: Tia) -> tuple[bits.Words, ...]:
    """Return the pixels of each object on a whole line, in the order P0, P1, M0, M1, BL, PF."""
    on = enabled(tia)
    wander = tia.stars == 1
    on0 = on.missile0 & ~(wander & (tia.star == 2))
    width0 = (tia.nusiz0 >> 4) & 3 | (wander & (tia.star == 1)).astype(jnp.int32)
    return (
        bits.player(on.player0, tia.refp0, tia.nusiz0, tia.x0, tia.skip0),
        bits.player(on.player1, tia.refp1, tia.nusiz1, tia.x1, tia.skip1),
        bits.missile(on0, tia.nusiz0, width0, tia.xm0),
        bits.missile(on.missile1, tia.nusiz1, (tia.nusiz1 >> 4) & 3, tia.xm1),
        bits.ball(on.ball, (tia.ctrlpf >> 4) & 3, tia.xbl),
        bits.playfield(tia.pf, tia.mirror),
    )


def meetings(shown: tuple[bits.Words, ...], part: bits.Words) -> jax.Array:
    """Return the pairs of objects that meet within `part`, one bit a pair."""
    inside = [bits.both(pixels, part) for pixels in shown[:5]]
    inside.append(shown[5])
    total = jnp.zeros_like(part[0], jnp.int32)
    for i, (a, b) in enumerate(PAIRS):
        total = total | bits.meet(inside[a], inside[b]) << i
    return total


def planes(tia: Tia, shown: tuple[bits.Words, ...]) -> tuple[bits.Words, bits.Words]:
    """Return the color of each pixel in two planes: 0 COLUBK, 1 COLUPF, 2 COLUP1, 3 COLUP0.

    CTRLPF's priority wins over its score colors, as ALE has it, except where nothing but the
    playfield is enabled.
    """
    over = (jnp.where(tia.ctrlpf & 4 != 0, jnp.uint32(bits.FULL), jnp.uint32(0)),) * bits.WORDS
    on = enabled(tia)
    alone = (on.player0 | on.player1 == 0) & ~(on.missile0 | on.missile1 | on.ball)
    score = (tia.ctrlpf & 2 != 0) & ((tia.ctrlpf & 4 == 0) | alone)
    left = bits.below(jnp.full_like(tia.pf, WIDTH // 2))
    scored = tuple(jnp.where(score, word, jnp.uint32(0)) for word in shown[PF])
    zero = bits.either(bits.either(shown[P0], shown[M0]), bits.both(scored, left))
    one = bits.either(bits.either(shown[P1], shown[M1]), bits.without(scored, left))
    field = bits.either(bits.without(shown[PF], scored), shown[BL])
    hidden = bits.both(field, over)
    zero = bits.without(zero, hidden)
    one = bits.without(one, bits.either(zero, hidden))
    rest = bits.without(field, bits.either(zero, one))
    return bits.either(rest, zero), bits.either(one, zero)


Put = Callable[[jax.Array, tuple[jax.Array, ...], jax.Array, jax.Array], jax.Array]  # `scatter`


class Strip(NamedTuple):
    """A segment as it will be painted."""

    row: jax.Array  # of the screen
    begin: jax.Array  # pixels `begin` to `end`
    end: jax.Array
    comb: jax.Array  # bool: the first pixels of the line are black
    colors: tuple[jax.Array, ...]  # COLUBK, COLUPF, COLUP1, COLUP0
    low: bits.Words  # the color's number, bit 0
    high: bits.Words


def draw(tia: Tia, view: View, segment: Segment) -> tuple[Tia, Strip]:
    """Return the TIA after a segment, and the picture of the segment."""
    begin, end = (jnp.clip(x - BLANK, 0, WIDTH) for x in (segment.begin, segment.end))
    shown = objects(tia)
    blank = tia.vblank & 2 != 0
    met = meetings(shown, bits.without(bits.below(end), bits.below(begin)))
    collisions = tia.collisions | jnp.where(segment.wanted & ~blank, met, 0)
    names = (tia.colubk, tia.colupf, tia.colup1, tia.colup0)
    colors = tuple(jnp.where(blank, 0, c & 0xFE | tia.loss) for c in names)
    row = jnp.maximum((tia.drawn - tia.origin) // LINE - view.top, 0)
    last = jnp.where(segment.wanted, end, begin)
    strip = Strip(row, begin, last, tia.comb & view.combs == 1, colors, *planes(tia, shown))
    past = (segment.end >= BLANK + COMB) & (segment.begin < BLANK + COMB)
    tia = tia._replace(collisions=collisions, comb=jnp.where(past, 0, tia.comb))
    return _advance(tia, segment), strip


def scatter(array: jax.Array, at: tuple[jax.Array, ...], new: jax.Array,
            on: jax.Array) -> jax.Array:
    """Return array [N, ...] with new[n] at array[n, *at[n]] where on[n]."""
    first = jnp.where(on, at[0], array.shape[1])  # out of bounds: dropped
    return array.at[jnp.arange(len(array)), first, *at[1:]].set(new, mode="drop")


def one_by_one(array: jax.Array, at: tuple[jax.Array, ...], new: jax.Array,
               on: jax.Array) -> jax.Array:
    """Return what `scatter` does, by a loop: a kernel of XLA's for CPUs holds no scatter."""
    rest = array.ndim - 1 - len(at)

    def put(n: jax.Array, array: jax.Array) -> jax.Array:
        place = [jnp.int32(i) for i in (n, *(i[n] for i in at), *[0] * rest)]
        part = new[n].reshape(*[1] * (1 + len(at)), *array.shape[array.ndim - rest:])
        old = jax.lax.dynamic_slice(array, place, part.shape)
        return jax.lax.dynamic_update_slice(array, jnp.where(on[n], part, old), place)

    return jax.lax.fori_loop(0, len(array), put, array)


def paint(screens: jax.Array, turn: jax.Array, strip: Strip, put: Put = scatter) -> jax.Array:
    """Return the screens, uint8 [N, 2, lines, 160], with the strip's pixels on that of `turn`.

    A gather or a row of words within the loop over pixels would keep it from vector instructions.
    """
    some, lines = strip.begin < strip.end, screens.shape[2]
    lanes, row = jnp.arange(screens.shape[0]), jnp.minimum(strip.row, lines - 1)
    comb = jnp.where(strip.comb, jnp.uint32((1 << COMB) - 1), jnp.uint32(0))
    black = (comb, *[jnp.zeros_like(comb)] * (bits.WORDS - 1))
    inside = bits.without(bits.below(strip.end), bits.below(strip.begin))

    def words() -> tuple[jax.Array, ...]:
        rows = (jnp.stack(row, -1) for row in (strip.low, strip.high, inside, black))
        return *rows, screens[lanes, turn, row]

    *rows, old = materialize(jnp.any(some), words)
    low, high, inside, black = map(bits.pixels, rows)
    background, field, one, zero = (c.astype(screens.dtype)[:, None, None] for c in strip.colors)
    shade = jnp.where(low, jnp.where(high, zero, field), jnp.where(high, one, background))
    shade = jnp.where(black, jnp.zeros_like(shade), shade)
    new = jnp.where(inside, shade, old.reshape(shade.shape)).reshape(old.shape)
    return put(screens, (turn, row), new, some)


def _advance(tia: Tia, segment: Segment) -> Tia:
    """Return the TIA's clocks after a segment, and at a line's end the flags of the next line."""
    count = segment.end - segment.begin
    closes = segment.closes
    star = (tia.star + 1) & 3
    step = bits.choose(star, _STAR_STEPS, 0)
    wanders = closes & (tia.stars == 1)
    return tia._replace(
        drawn=tia.drawn + count,
        left=jnp.where(closes, LINE, tia.left - count),
        mirror=jnp.where(closes, tia.ctrlpf & 1, tia.mirror),
        skip0=jnp.where(closes, 0, tia.skip0),
        skip1=jnp.where(closes, 0, tia.skip1),
        star=jnp.where(wanders, star, tia.star),
        xm0=jnp.where(wanders, (tia.xm0 + WIDTH - step) % WIDTH, tia.xm0),
    )
