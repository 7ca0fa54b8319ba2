"""Rows of `outcome_table` for games outside of the literature's 57."""

from __future__ import annotations

from jaxrl_fast.envs.atari.outcome_form import Game

MORE: dict[str, Game] = {
    "air_raid": Game(
        ((0xA8, 100000, 10000), (0xA9, 1000, 100), (0xAA, 10, 1)),
        lives=(0x80, 0x00, 0, 0, 1), ends=(((0xA7, 0xFF, 0xFF, 0),),),
    ),  # fmt: skip
    "atlantis2": Game(
        ((0xA1, 10, 1), (0xA2, 1000, 100), (0xA3, 100000, 10000)),
        lives=(0xF1, 0xFF, 0, 1, 0), ends=(((0xF1, 0xFF, 0xFF, 0),),),
    ),  # fmt: skip
    "blackjack": Game(
        ((0x86, 1000, 100), (0x89, 10, 1)), lives=(0x80, 0x00, 0, 0, 1),
        unset=(0x89, 0xFF, 0xBB, 0), ends=(((0x86, 0xFF, 0x0A, 2),),),
    ),  # fmt: skip
    "crossbow": Game(
        ((0x8B, 100000, 10000), (0x8C, 1000, 100), (0x8D, 10, 1)),
        lives=(0x80, 0x00, 0, 0, 1), ends=(((0xE7, 0xFF, 0x82, 0),),),
    ),  # fmt: skip
    "donkey_kong": Game(
        ((0x87, 100000, 10000), (0x88, 1000, 100)), lives=(0xA3, 0xFF, 0, 1, 0),
        ends=(((0x8B, 0xFF, 0x1F, 0), (0x8F, 0xFF, 0x03, 0), (0xA3, 0xFF, 0x00, 0)),),
    ),  # fmt: skip
    "et": Game(
        ((0xDF, 100000, 10000), (0xE0, 1000, 100), (0xE1, 10, 1)),
        lives=(0xE5, 0xFF, 0, 1, 1), ends=(((0x80, 0xFF, 0x08, 0),
        (0xE5, 0xFF, 0xFF, 0)),),
    ),  # fmt: skip
    "flag_capture": Game(
        ((0xEA, 10, 1),), lives=(0x80, 0x00, 0, 0, 1), ends=(((0xEB, 0xFF, 0x00, 0),),),
    ),  # fmt: skip
    "frogger": Game(
        ((0xCC, 1000, 100), (0xCE, 10, 1)), lives=(0xD0, 0xFF, 0, 1, 0),
        ends=(((0xD0, 0xFF, 0xFF, 0),),),
    ),  # fmt: skip
    "galaxian": Game(
        ((0xAC, 100000, 10000), (0xAD, 1000, 100), (0xAE, 10, 1)),
        lives=(0xB9, 0xFF, 0, 1, 1), ends=(((0xBF, 0xFF, 0x80, 2),),),
    ),  # fmt: skip
    "hangman": Game(
        ((0xEB, 10, 1), (0xEC, -10, -1)), lives=(0x80, 0x00, 0, 0, 1),
        ends=(((0xEB, 0xFF, 0x00, 1), (0xEC, 0xFF, 0x01, 1)), ((0xEB, 0xFF, 0x01, 1),
        (0xEC, 0xFF, 0x00, 1))),
    ),  # fmt: skip
    "human_cannonball": Game(
        ((0xB6, 10, 1),), lives=(0x80, 0x00, 0, 0, 1), ends=(((0xB6, 0xFF, 0x07, 0),),
        ((0xB7, 0xFF, 0x07, 0),)),
    ),  # fmt: skip
    "keystone_kapers": Game(
        ((0x9B, 1000, 100), (0x9C, 10, 1)), lives=(0x96, 0xFF, 0, 1, 0),
        ends=(((0x88, 0xFF, 0x00, 0), (0x96, 0xFF, 0x00, 0)),),
    ),  # fmt: skip
    "king_kong": Game(
        ((0x82, 1000, 100), (0x83, 10, 1)), lives=(0xEE, 0xFF, 0, 1, 0),
        ends=(((0xEE, 0xFF, 0x00, 0),),),
    ),  # fmt: skip
    "koolaid": Game(((0x80, 100000, 10000), (0x81, 1000, 100)), ends=(((0xD1, 0xFF, 0x80, 0),),)),
    "laser_gates": Game(
        ((0x80, 100000, 10000), (0x81, 1000, 100), (0x82, 10, 1)),
        ends=(((0x83, 0xFF, 0x00, 0),),),
    ),  # fmt: skip
    "lost_luggage": Game(
        ((0x94, 100000, 10000), (0x95, 1000, 100), (0x96, 10, 1)),
        lives=(0xCA, 0xFF, 0, 1, 0), ends=(((0xA5, 0xFF, 0x00, 0),
        (0xA9, 0xFF, 0x00, 0), (0xC8, 0xFF, 0x0A, 0), (0xCA, 0xFF, 0x00, 0)),),
    ),  # fmt: skip
    "mario_bros": Game(
        ((0x89, 100000, 10000), (0x8A, 1000, 100)), lives=(0x87, 0xFF, 0, 1, 0),
        ends=(((0x87, 0xFF, 0x00, 0),),),
    ),  # fmt: skip
    "mr_do": Game(
        ((0x82, 100, 10), (0x83, 10000, 1000)), lives=(0xDB, 0xFF, 0, 1, 0),
        ends=(((0xDA, 0xFF, 0x40, 0),),),
    ),  # fmt: skip
    "pitfall2": Game(
        ((0xC7, 100000, 10000), (0xC8, 1000, 100), (0xC9, 10, 1)), lives=(0x80, 0x00, 0, 0, 1),
    ),  # fmt: skip
    "sir_lancelot": Game(
        ((0x9E, 100000, 10000), (0x9F, 1000, 100), (0xA0, 10, 1)),
        lives=(0xA9, 0xFF, 0, 1, 0), ends=(((0xA7, 0xFF, 0xA0, 0),
        (0xA9, 0xFF, 0x00, 0)),),
    ),  # fmt: skip
    "tetris": Game(((0xF1, 10, 1), (0xF2, 1000, 100)), ends=(((0xF3, 0xFF, 0x80, 2),),)),
    "trondead": Game(
        ((0xBD, 100000, 10000), (0xBE, 1000, 100), (0xBF, 10, 1)),
        lives=(0xC8, 0xFF, 0, -1, 5), ends=(((0xC8, 0xFF, 0x05, 0),),),
    ),  # fmt: skip
    "turmoil": Game(
        ((0x89, 100, 10), (0x8A, 10000, 1000), (0xD3, 160, 10)),
        lives=(0xB9, 0xFF, 0, 1, 0), ends=(((0xB9, 0xFF, 0x00, 0),
        (0xC5, 0xFF, 0x01, 0)),),
    ),  # fmt: skip
}
