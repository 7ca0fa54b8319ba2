"""How a row of `outcome_table` says where a game's RAM holds its score, lives and end."""

from __future__ import annotations

from typing import NamedTuple

FIRST = 0x80  # the address of the first byte

COUNT = 8
EQUAL, DIFFERS, AT_LEAST, BELOW = range(4)
Test = tuple[int, int, int, int]  # address, mask, value, how the masked byte relates to the value
Terms = tuple[tuple[int, ...], ...]
ALWAYS, NEVER = (FIRST, 0, 0, 0), (FIRST, 0, 1, 0)
ANY = -1


class Game(NamedTuple):
    """How to read a game's RAM."""

    # Address, points of the upper and of the lower four bits; then, if not 0, by how many bits the
    # byte is shifted before, and the number of a blank digit.
    score: Terms
    major: Terms = ()  # where this sum changes, its change is the reward, not the score's
    unset: Test = NEVER  # the score is 0 where this is true
    # Address, mask, shift, factor, sum; a shift of COUNT counts the masked bits.
    lives: tuple[int, int, int, int, int] = (FIRST, 0, 0, 0, 0)
    loss: Test = ALWAYS  # a loss of one life counts where this is true
    bonus: Test = NEVER  # `extra` lives more where this is true
    extra: int = 1
    jumps: Test = ALWAYS  # another change of the lives counts where this is true
    ends: tuple[tuple[Test, ...], ...] = ()  # over where every test of a group is true
    last: int = ANY  # with that many lives in the frame before
