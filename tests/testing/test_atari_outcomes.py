"""Rewards, lives and ends that the table reads from RAM are those of whole games on ALE."""

from __future__ import annotations

import atari_outcomes as script
import numpy as np
import pytest

from jaxrl_fast.envs.atari.outcome_table import GAMES

SOME = ("asterix", "beam_rider", "breakout", "pitfall", "qbert", "seaquest")


def _wrong(name: str, frames: int, seed: int) -> dict[str, int]:
    return script.check(GAMES[name], script.play(name, frames, seed)).wrong


@pytest.mark.parametrize("name", SOME)
def test_outcomes_of_a_game_are_those_of_ale(name):
    assert not any(_wrong(name, 800, seed=3).values())


@pytest.mark.slow
@pytest.mark.parametrize("name", GAMES)
def test_outcomes_of_every_game_are_those_of_ale(name):
    assert not any(_wrong(name, 20_000, seed=11).values())


def test_a_wrong_byte_is_counted():
    trace = script.play("breakout", 600)
    game = GAMES["breakout"]
    moved = game._replace(lives=(0x80, *game.lives[1:]), ends=(((0x80, 0xFF, 0, 0),),))
    assert script.check(moved, trace).wrong["lives"] > 0


def test_the_table_is_found_again():
    found = script.derive("seaquest", script.play("seaquest", 1500))
    assert found.game == GAMES["seaquest"] and not any(found.wrong.values())


@pytest.mark.parametrize(("values", "test"), [
    ({5}, (0xFF, 5, 0)), (set(range(256)) - {5}, (0xFF, 5, 1)),
    (set(range(64, 256)), (0xFF, 64, 2)),
    ({1, 17, 33, 49, 65, 81, 97, 113, 129, 145, 161, 177, 193, 209, 225, 241}, (0x0F, 1, 0)),
    ({1, 2, 77}, None),
])  # fmt: skip
def test_a_set_of_values_becomes_one_test(values, test):
    assert script.byte_test(values) == test
    assert script.byte_test({1, 2, 77}, np.array([1, 3, 2, 9, 77])) is None
