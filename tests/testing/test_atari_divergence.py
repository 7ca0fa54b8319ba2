"""The count of a warp's turns: lanes that wait, groups that they share, and the table."""

from __future__ import annotations

import atari_divergence as script
import numpy as np
import pytest

PLAIN, DRAWS_FIRST, DRAWS_SECOND = 1, 0b0001111, 0b0010111  # bits of a turn, see the script


def _rows(*lanes):
    rows = np.zeros((max(map(len, lanes)), len(lanes)), np.uint8)
    for i, lane in enumerate(lanes):
        rows[: len(lane), i] = lane
    return rows


@pytest.mark.parametrize(("one_in", "counts"), [
    (32, (3, 2, 2, 2, 6)),  # each draws alone
    (1, (4, 1, 1, 2, 6)),  # one draws with the other, and is done two turns before it
])  # fmt: skip
def test_turns_of_lanes_that_draw_at_different_instructions(one_in, counts):
    rows = _rows([DRAWS_FIRST, PLAIN, PLAIN], [PLAIN, DRAWS_SECOND, PLAIN])
    assert script.take_turns(rows, one_in) == counts


def test_turns_are_counted_for_an_instruction_of_the_mean_lane():
    rows = _rows([DRAWS_FIRST, PLAIN], [DRAWS_FIRST])
    found = script.turns([rows, rows], np.array([[2, 1], [2, 1]]), 1)
    assert found == script.Turns(2 / 1.5, 1 / 1.5, 1 / 1.5, 1 / 1.5, 0.75)
    lines = script.table({"once all wait": [found, found]}).splitlines()
    assert lines[0] == "| takes accesses to the TIA | once all wait |"
    assert lines[2] == "| turns | 1.33 (1.33 to 1.33) |" and len(lines) == 7


@pytest.mark.slow
def test_a_recording_holds_each_instruction():
    """A segment of a line is a turn of its own, so turns are more than instructions."""
    frames, instructions = script.record("pong", lanes=4)
    for rows, count in zip(frames, instructions, strict=True):
        own = ((rows & script.ACTIVE > 0) & (rows & script.WANTS == 0)).sum(0)
        assert (own < count).all() and ((rows & script.ACTIVE > 0).sum(0) >= count).all()
        assert (rows & script.DRAWS > 0).sum(0).min() > 200  # at least a segment a line
