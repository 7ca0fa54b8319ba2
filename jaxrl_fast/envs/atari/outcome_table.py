"""Bytes of RAM that hold a game's score, lives and end; scripts/atari_outcomes.py prints them."""

from __future__ import annotations

from jaxrl_fast.envs.atari.outcome_form import NEVER, Game
from jaxrl_fast.envs.atari.outcome_table_other_games import MORE

GAMES: dict[str, Game] = {
    "alien": Game(
        ((0x83, 0, 100000, 3, 0), (0x85, 0, 10000, 3, 0), (0x87, 0, 1000, 3, 0),
        (0x89, 0, 100, 3, 0), (0x8B, 0, 10, 3, 0)), lives=(0xC0, 0xFF, 0, 1, 0),
        ends=(((0xC0, 0x0F, 0x00, 0),),),
    ),  # fmt: skip
    "amidar": Game(
        ((0xD9, 10, 1), (0xDA, 1000, 100), (0xDB, 100000, 10000)),
        lives=(0xD6, 0x1F, 0, 1, 0), ends=(((0xD6, 0xFF, 0x80, 0),),),
    ),  # fmt: skip
    "assault": Game(
        ((0x80, 100000, 10000), (0x81, 1000, 100), (0x82, 10, 1)),
        lives=(0xE5, 0xFF, 0, 1, 0), ends=(((0xE5, 0xFF, 0x00, 0),),),
    ),  # fmt: skip
    "asterix": Game(
        ((0xDE, 100000, 10000), (0xDF, 1000, 100), (0xE0, 10, 1)),
        lives=(0xD3, 0xFF, 0, 1, 0), ends=(((0xC7, 0xFF, 0x01, 0),
        (0xD3, 0x0F, 0x01, 0)),),
    ),  # fmt: skip
    "asteroids": Game(
        ((0xBD, 10000, 1000), (0xBE, 100, 10)), lives=(0xBC, 0xF0, 4, 1, 0),
        ends=(((0xBC, 0xF0, 0x00, 0),),),
    ),  # fmt: skip
    "atlantis": Game(
        ((0xA1, 10000000, 1000000), (0xA2, 1000, 100), (0xA3, 100000, 10000)),
        lives=(0xF1, 0xFF, 0, 1, 0), ends=(((0xF1, 0xFF, 0xFF, 0),),),
    ),  # fmt: skip
    "bank_heist": Game(
        ((0xD8, 100000, 10000), (0xD9, 1000, 100), (0xDA, 10, 1)),
        lives=(0xD5, 0xFF, 0, 1, 0), ends=(((0xCE, 0xFF, 0x01, 0),
        (0xD5, 0xFF, 0x00, 0)),),
    ),  # fmt: skip
    "battle_zone": Game(
        ((0x9D, 1000, 0, 0, 10), (0x9E, 100000, 10000, 0, 10)),
        lives=(0xBA, 0xFF, 0, 1, 0), ends=(((0xBA, 0x0F, 0x00, 0),),),
    ),  # fmt: skip
    "beam_rider": Game(
        ((0x89, 10, 1), (0x8A, 1000, 100), (0x8B, 100000, 10000)),
        lives=(0x85, 0xFF, 0, 1, 1), loss=(0x8C, 0xFF, 0x01, 0),
        ends=(((0x85, 0xFF, 0xFF, 0),),),
    ),  # fmt: skip
    "berzerk": Game(
        ((0xDD, 100000, 10000), (0xDE, 1000, 100), (0xDF, 10, 1)),
        lives=(0xDA, 0xFF, 0, 1, 1), ends=(((0xDA, 0xFF, 0xFF, 0),),),
    ),  # fmt: skip
    "bowling": Game(((0xA1, 10, 1), (0xA6, 1000, 100)), ends=(((0xA4, 0xFF, 0x11, 0),),)),
    "boxing": Game(
        ((0x92, 10, 1), (0x93, -10, -1)), ends=(((0x90, 0xF0, 0x00, 0),
        (0x91, 0xFF, 0x00, 0)),),
    ),  # fmt: skip
    "breakout": Game(
        ((0xCC, 0, 100), (0xCD, 10, 1)), lives=(0xB9, 0xFF, 0, 1, 0),
        ends=(((0xB9, 0xFF, 0x00, 0),),),
    ),  # fmt: skip
    "carnival": Game(((0xAD, 10000, 1000), (0xAE, 100, 10)), ends=(((0x83, 0xFF, 0x00, 0),),)),
    "centipede": Game(
        ((0xF4, 100000, 10000), (0xF5, 1000, 100), (0xF6, 10, 1)),
        lives=(0xED, 0xF0, 4, 1, 1), ends=(((0xA6, 0x40, 0x40, 0),),),
    ),  # fmt: skip
    "chopper_command": Game(
        ((0xEC, 100000, 10000), (0xEE, 1000, 100)), lives=(0xE4, 0xFF, 0, 1, 0),
        ends=(((0xE4, 0x0F, 0x00, 0),),),
    ),  # fmt: skip
    "crazy_climber": Game(
        ((0x82, 1600, 100), (0x83, 16000, 1000), (0x84, 160000, 10000),
        (0x85, 1600000, 100000)), lives=(0xAA, 0xFF, 0, 1, 0),
        ends=(((0xAA, 0xFF, 0x00, 0),),),
    ),  # fmt: skip
    "defender": Game(
        ((0x9C, 0, 1, 0, 10), (0x9D, 0, 10, 0, 10), (0x9E, 0, 100, 0, 10),
        (0x9F, 0, 1000, 0, 10), (0xA0, 0, 10000, 0, 10), (0xA1, 0, 100000, 0, 10)),
        lives=(0xC2, 0xFF, 0, 1, 0), ends=(((0xC2, 0xFF, 0x00, 0),),),
    ),  # fmt: skip
    "demon_attack": Game(
        ((0x81, 100000, 10000), (0x83, 1000, 100), (0x85, 10, 1)),
        lives=(0xF2, 0xFF, 0, 1, 1), unset=(0x81, 0xFF, 0xAB, 0),
        ends=(((0xF1, 0xFF, 0xBD, 0), (0xF2, 0xFF, 0x00, 0)),),
    ),  # fmt: skip
    "double_dunk": Game(
        ((0xF6, 10, 1), (0xF7, -10, -1)), ends=(((0xF7, 0xFF, 0x24, 0),
        (0xFE, 0xFF, 0xE7, 0)),),
    ),  # fmt: skip
    "enduro": Game(((0xAB, -10, -1), (0xAC, -1000, -100)), ends=(((0xAF, 0xFF, 0xFF, 0),),)),
    "fishing_derby": Game(
        ((0xBD, 10, 1), (0xBE, -10, -1)), ends=(((0xBD, 0xFF, 0x99, 0),),
        ((0xBE, 0xFF, 0x99, 0),)),
    ),  # fmt: skip
    "freeway": Game((), ends=(((0x96, 0xFF, 0x01, 0),),)),
    "frostbite": Game(
        ((0xC8, 100000, 10000), (0xC9, 1000, 100), (0xCA, 10, 1)),
        lives=(0xCC, 0xFF, 0, 1, 1), ends=(((0xCC, 0x0F, 0x00, 0),
        (0xF1, 0x80, 0x80, 0)),),
    ),  # fmt: skip
    "gopher": Game(
        ((0xB0, 100000, 10000), (0xB1, 1000, 100), (0xB2, 10, 1)),
        lives=(0xB4, 0x07, 8, 1, 0), ends=(((0xB4, 0x07, 0x00, 0),),),
    ),  # fmt: skip
    "gravitar": Game(
        ((0x87, 100000, 10000), (0x88, 1000, 100), (0x89, 10, 1)),
        lives=(0x84, 0xFF, 0, 1, 1), ends=(((0x81, 0xFF, 0x01, 0),),),
    ),  # fmt: skip
    "hero": Game(
        ((0xB7, 100000, 10000), (0xB8, 1000, 100), (0xB9, 10, 1)),
        lives=(0xB3, 0xFF, 0, 1, 0), ends=(((0xB3, 0xFF, 0x00, 0),),),
    ),  # fmt: skip
    "ice_hockey": Game(
        ((0x8A, 10, 1), (0x8B, -10, -1)), ends=(((0x86, 0xFF, 0x00, 0), (0x87, 0xFF, 0x00, 0)),),
    ),  # fmt: skip
    "jamesbond": Game(
        ((0xDC, 10, 1), (0xDD, 1000, 100), (0xDE, 100000, 10000)),
        lives=(0x86, 0x0F, 0, 1, 1), ends=(((0x86, 0x0F, 0x00, 0),
        (0x8C, 0xFF, 0x68, 0)),),
    ),  # fmt: skip
    "journey_escape": Game(
        ((0x90, 100000, 10000), (0x91, 1000, 100), (0x92, 10, 1)),
        ends=(((0x95, 0xFF, 0x00, 0), (0x96, 0xFF, 0x00, 0)),),
    ),  # fmt: skip
    "kaboom": Game(
        ((0xA3, 100000, 10000), (0xA4, 1000, 100), (0xA5, 10, 1)),
        lives=(0x80, 0x00, 0, 0, 1), ends=(((0xA1, 0xFF, 0x00, 0),),),
    ),  # fmt: skip
    "kangaroo": Game(
        ((0xA7, 100000, 10000), (0xA8, 1000, 100)), lives=(0xAD, 0xFF, 0, 1, 1),
        ends=(((0xAD, 0xFF, 0xFF, 0),),),
    ),  # fmt: skip
    "krull": Game(
        ((0x9C, 100000, 10000), (0x9D, 1000, 100), (0x9E, 10, 1)),
        lives=(0x9F, 0xFF, 0, 1, 1), ends=(((0x80, 0xFF, 0x80, 0),
        (0x9F, 0xFF, 0x00, 0), (0xA2, 0xFF, 0x03, 0)),),
    ),  # fmt: skip
    "kung_fu_master": Game(
        ((0x98, 100000, 10000), (0x99, 1000, 100), (0x9A, 10, 1)),
        lives=(0x9D, 0xFF, 0, 1, 1), ends=(((0x9D, 0xFF, 0xFF, 0),),),
    ),  # fmt: skip
    "montezuma_revenge": Game(
        ((0x93, 100000, 10000), (0x94, 1000, 100), (0x95, 10, 1)),
        lives=(0xBA, 0xFF, 0, 1, 1), ends=(((0xBA, 0xFF, 0x00, 0),
        (0xFE, 0xFF, 0x60, 0)),),
    ),  # fmt: skip
    "ms_pacman": Game(
        ((0xF8, 10, 1), (0xF9, 1000, 100), (0xFA, 100000, 10000)),
        lives=(0xFB, 0xFF, 0, 1, 1), ends=(((0xA7, 0xFF, 0x53, 0),
        (0xFB, 0x0F, 0x00, 0)),),
    ),  # fmt: skip
    "name_this_game": Game(
        ((0xC4, 100000, 10000), (0xC5, 1000, 100), (0xC6, 10, 1)),
        lives=(0xC7, 0x07, 0, 1, 0), ends=(((0xC7, 0x07, 0x00, 0),),),
    ),  # fmt: skip
    "phoenix": Game(
        ((0xC7, 10, 0), (0xC8, 1000, 100), (0xC9, 100000, 10000)),
        lives=(0xCB, 0xFF, 0, 1, 128), ends=(((0xCC, 0xFF, 0x80, 0),),),
    ),  # fmt: skip
    "pitfall": Game(
        ((0xD5, 100000, 10000), (0xD6, 1000, 100), (0xD7, 10, 1)),
        lives=(0x80, 0xA0, 8, 1, 1), ends=(((0x80, 0xF0, 0x00, 0),
        (0x9E, 0xFF, 0x01, 2)),),
    ),  # fmt: skip
    "pong": Game(
        ((0x8D, -16, -1), (0x8E, 16, 1)), ends=(((0x8D, 0xFF, 0x15, 0),),
        ((0x8E, 0xFF, 0x15, 0),)),
    ),  # fmt: skip
    "pooyan": Game(
        ((0x88, 100000, 10000), (0x89, 1000, 100), (0x8A, 10, 1)),
        lives=(0x96, 0x07, 0, 1, 1), ends=(((0x96, 0xFF, 0x00, 0),
        (0x98, 0xFF, 0x05, 0)),),
    ),  # fmt: skip
    "private_eye": Game(
        ((0xC8, 100000, 10000), (0xC9, 1000, 100), (0xCA, 10, 1)),
        ends=(((0xC2, 0xFE, 0x00, 1),),),
    ),  # fmt: skip
    "qbert": Game(
        ((0xD9, 100000, 10000), (0xDA, 1000, 100), (0xDB, 10, 1)),
        lives=(0x88, 0xFF, 0, 1, 2), jumps=NEVER, ends=(((0x88, 0xFF, 0xFE, 0),),),
    ),  # fmt: skip
    "riverraid": Game(
        ((0xCD, 0, 100000, 3, 11), (0xCF, 0, 10000, 3, 11), (0xD1, 0, 1000, 3, 11),
        (0xD3, 0, 100, 3, 11), (0xD5, 0, 10, 3, 11), (0xD7, 0, 1, 3, 11)),
        lives=(0xC0, 0xF8, 3, 1, 1), bonus=(0xC0, 0xFF, 0x59, 0), extra=-11,
        jumps=(0xC0, 0xFF, 0x58, 1), ends=(((0xC0, 0xFF, 0x58, 0),),), last=1,
    ),  # fmt: skip
    "road_runner": Game(
        ((0xC9, 0, 100, 0, 10), (0xCA, 0, 1000, 0, 10), (0xCB, 0, 10000, 0, 10),
        (0xCC, 0, 100000, 0, 10)), lives=(0xC4, 0x07, 0, 1, 1),
        ends=(((0xBD, 0xFF, 0x01, 2), (0xC4, 0x07, 0x00, 0)), ((0xB9, 0xFF, 0x01, 2),
        (0xC4, 0x07, 0x00, 0))),
    ),  # fmt: skip
    "robotank": Game(
        ((0xB5, 16, 1), (0xB6, 192, 12)), lives=(0xA8, 0xFF, 0, 1, 1),
        ends=(((0xA8, 0xFF, 0x00, 0), (0xB4, 0xFF, 0xFF, 0)),),
    ),  # fmt: skip
    "seaquest": Game(
        ((0xB8, 100000, 10000), (0xB9, 1000, 100), (0xBA, 10, 1)),
        lives=(0xBB, 0xFF, 0, 1, 1), ends=(((0xA3, 0xFF, 0x00, 1),),),
    ),  # fmt: skip
    "skiing": Game(
        ((0xE8, -96000, -6000), (0xE9, -1000, -100), (0xEA, -10, -1)),
        ends=(((0x91, 0xFF, 0xFF, 0),),),
    ),  # fmt: skip
    "solaris": Game(
        ((0xDC, 100, 10), (0xDD, 10000, 1000), (0xDE, 1000000, 100000)),
        lives=(0xD9, 0xFF, 0, 1, 0), ends=(((0xD9, 0xFF, 0x00, 0),),),
    ),  # fmt: skip
    "space_invaders": Game(
        ((0xE6, 1000, 100), (0xE8, 10, 1)), lives=(0xC9, 0xFF, 0, 1, 0),
        ends=(((0x98, 0x80, 0x80, 0),), ((0xC9, 0xFF, 0x00, 0),)),
    ),  # fmt: skip
    "star_gunner": Game(
        ((0x83, 0, 100, 0, 10), (0x84, 0, 1000, 0, 10), (0x85, 0, 10000, 0, 10),
        (0x86, 0, 100000, 0, 10)), lives=(0x87, 0xFF, 0, 1, 0), jumps=NEVER,
        ends=(((0x87, 0xFF, 0x00, 0),),),
    ),  # fmt: skip
    "surround": Game(
        ((0xF6, -10, -1), (0xF7, 10, 1)), lives=(0x80, 0x00, 0, 0, 1),
        ends=(((0xF6, 0xFF, 0x10, 0),),),
    ),  # fmt: skip
    "tennis": Game(
        ((0xC5, 16, 1), (0xC6, -16, -1)), major=((0xC7, 16, 1), (0xC8, -16, -1)),
        ends=(((0xC7, 0xFF, 7, 2),), ((0xC8, 0xFF, 7, 2),),
        ((0xC7, 0xFF, 6, 0), (0xC8, 0xFF, 5, 3)), ((0xC8, 0xFF, 6, 0), (0xC7, 0xFF, 5, 3))),
    ),  # fmt: skip
    "time_pilot": Game(
        ((0x8D, 1000, 100), (0x8F, 100000, 10000)), lives=(0x8B, 0x07, 0, 1, 1),
        jumps=NEVER, ends=(((0xA0, 0xFF, 0x00, 1),),),
    ),  # fmt: skip
    "tutankham": Game(
        ((0x9A, 1000, 100), (0x9C, 10, 1)), lives=(0x9E, 0x03, 0, 1, 0),
        ends=(((0x81, 0xFF, 0x84, 1), (0x9E, 0xFF, 0x00, 0)),),
    ),  # fmt: skip
    "up_n_down": Game(
        ((0x80, 100000, 10000), (0x81, 1000, 100), (0x82, 10, 1)),
        lives=(0x86, 0x0F, 0, 1, 1), ends=(((0x86, 0x0F, 0x00, 0),
        (0x94, 0xFF, 0x41, 2)),),
    ),  # fmt: skip
    "venture": Game(
        ((0xC7, 100000, 10000), (0xC8, 1000, 100)), lives=(0xC6, 0xFF, 0, 1, 1),
        ends=(((0xBF, 0x80, 0x80, 0), (0xC6, 0xFF, 0x00, 0), (0xCD, 0xFF, 0xFF, 0)),),
    ),  # fmt: skip
    "video_pinball": Game(
        ((0xB0, 10, 1), (0xB2, 1000, 100), (0xB4, 100000, 10000)),
        lives=(0x99, 0x07, 0, -1, 4),
        bonus=(0xA8, 0x01, 0x01, 0), ends=(((0xAF, 0x01, 0x01, 0),),),
    ),  # fmt: skip
    "wizard_of_wor": Game(
        ((0x86, 1000, 100), (0x88, 100000, 10000)), lives=(0x8D, 0x0F, 0, 1, 0),
        loss=(0xD7, 0x01, 0x00, 0), ends=(((0x8D, 0x0F, 0x00, 0),
        (0xF4, 0xFF, 0xF8, 0)),),
    ),  # fmt: skip
    "yars_revenge": Game(
        ((0xE0, 100000, 10000), (0xE1, 1000, 100), (0xE2, 10, 1)),
        lives=(0x9E, 0xF0, 4, 1, 0), ends=(((0x9E, 0xF0, 0x00, 0),),),
    ),  # fmt: skip
    "zaxxon": Game(
        ((0xE8, 100000, 10000), (0xE9, 1000, 100)), lives=(0xEA, 0xFF, 0, 1, 0),
        ends=(((0xEA, 0x07, 0x00, 0),),),
    ),  # fmt: skip
} | MORE
