"""How a row of `outcome_table` says where a game's RAM holds its score, lives and end."""

from __future__ import annotations

from typing import Any, NamedTuple

FIRST = 0x80  # the address of the first byte

COUNT = 8
EQUAL, DIFFERS, AT_LEAST, BELOW = range(4)
Test = tuple[int, int, int, int]  # address, mask, value, how the masked byte relates to the value
Terms = tuple[tuple[int, ...], ...]
ALWAYS, NEVER = (FIRST, 0, 0, 0), (FIRST, 0, 1, 0)
ANY = -1
MOST = 2**30  # above every reward


class Game(NamedTuple):
    """How to read a game's RAM."""

    # Address, points of the upper and of the lower four bits; then, if not 0, by how many bits the
    # byte is shifted before, and the number of a blank digit.
    score: Terms
    major: Terms = ()  # where this sum changes, its change is the reward, not the score's
    unset: Test = NEVER  # the score is 0 where this is true
    flags: tuple[tuple[Test, int], ...] = ()  # points that the score has where a test holds
    wraps: int = 0  # a score that falls has passed this number
    low: int = -MOST  # a frame's reward is at least this
    high: int = MOST
    quiet: bool = False  # the frame of the end brings no reward
    # Address, mask, shift, factor, sum; a shift of COUNT counts the masked bits.
    lives: tuple[int, int, int, int, int] = (FIRST, 0, 0, 0, 0)
    loss: Test = ALWAYS  # a loss of one life counts where this is true
    bonus: Test = NEVER  # `extra` lives more where this is true
    extra: int = 1
    jumps: Test = ALWAYS  # another change of the lives counts where this is true
    ends: tuple[tuple[Test, ...], ...] = ()  # over where every test of a group is true
    last: int = ANY  # with that many lives in the frame before
    left: int = 0  # lives that ALE reports after the end


def bcd(*bytes_: int, unit: int = 1) -> Terms:
    """Return a number of two decimal digits a byte, the highest first; unit: of its last digit."""
    places = [unit * 100**i for i in reversed(range(len(bytes_)))]
    return tuple((at, 10 * one, one) for at, one in zip(bytes_, places, strict=True))


def game(score: Terms, lives: tuple[int, ...] = (FIRST, 0, 0, 0, 0), end: Any = (),
         ends: tuple[tuple[tuple[int, ...], ...], ...] = (), **more: Any) -> Game:
    """Return a game whose tests may omit EQUAL, and whose lives a shift of 0, a factor, a sum.

    end: the test of the end, or several that must hold together. ends: several such groups.
    """
    test = lambda x: (*x, EQUAL) if len(x) == 3 else x
    more = {name: test(x) if name in ("unset", "loss", "bonus", "jumps") else x
            for name, x in more.items()}
    more["flags"] = tuple((test(one), points) for one, points in more.get("flags", ()))
    ends = ((end,) if isinstance(end[0], int) else end,) if end else ends
    groups = tuple(tuple(map(test, group)) for group in ends)
    return Game(score, lives=(*lives, *(0, 1, 0)[len(lives) - 2 :]), ends=groups, **more)
