"""Rewards, lives and ends of a game, read from a few bytes of its RAM.

The bytes were found with ALE as a black box: each byte of a snapshot is set to each value, and what
ALE then reports tells its place in the score, the lives and the end.
"""

from __future__ import annotations

from typing import NamedTuple

import jax
import jax.numpy as jnp
import numpy as np

from jaxrl_fast.envs.atari.games import snake_case
from jaxrl_fast.errors import ConfigError, nearest

_RAM = 0x80  # the address of the first byte
_TERMS, _TESTS = 3, 2


class Rules(NamedTuple):
    """How to read one game's RAM; of several games, with a lane axis in front."""

    score_at: jax.Array  # int32 [3]: bytes of the score
    high: jax.Array  # [3]: points of the upper four bits
    low: jax.Array  # [3]: points of the lower four bits
    lives_at: jax.Array
    lives_scale: jax.Array  # 0 for a game without lives
    lives_add: jax.Array
    test_at: jax.Array  # [2]: bytes that tell the end
    mask: jax.Array  # [2]
    value: jax.Array  # [2]: over where the masked byte is this
    differs: jax.Array  # [2]: 1: over where it is not


class _Game(NamedTuple):
    score: tuple[tuple[int, int, int], ...]  # address, points of the upper and of the lower bits
    lives: tuple[int, int, int] = (_RAM, 0, 0)  # address, factor, sum
    tests: tuple[tuple[int, int, int, int], ...] = ()  # address, mask, value, differs


def _decimal(*addresses: int) -> tuple[tuple[int, int, int], ...]:
    """Return the terms of a score of two decimal digits a byte, the lowest byte first."""
    return tuple((at, 10 * 100**i, 100**i) for i, at in enumerate(addresses))


_GAMES = {
    "beam_rider": _Game(_decimal(0x89, 0x8A, 0x8B), tests=((0x85, 0xFF, 0xFF, 0),)),
    "breakout": _Game(((0xCD, 10, 1), (0xCC, 0, 100)), (0xB9, 1, 0), ((0xB9, 0xFF, 0, 0),)),
    "freeway": _Game(_decimal(0xE7), tests=((0x82, 0xFF, 0, 0),)),
    "pong": _Game(
        ((0x8E, 16, 1), (0x8D, -16, -1)), tests=((0x8D, 0xFF, 21, 0), (0x8E, 0xFF, 21, 0))
    ),
    "seaquest": _Game(_decimal(0xBA, 0xB9, 0xB8), (0xBB, 1, 1), ((0xA3, 0xFF, 0, 1),)),
    "space_invaders": _Game(
        _decimal(0xE8, 0xE6), (0xC9, 1, 0), ((0x98, 0x80, 0x80, 0), (0xC9, 0xFF, 0, 0))
    ),
}
GAMES = tuple(_GAMES)
WITHOUT_LIVES = ("beam_rider",)  # ALE's count follows the byte late


def rules(name: str) -> Rules:
    """Return the rules of a game, for instance "Pong" or "pong"."""
    game = _GAMES.get(snake_case(name))
    if game is None:
        raise ConfigError("game", name, f"one of {', '.join(GAMES)}{nearest(name, GAMES)}")
    score = np.array([*game.score, *[(_RAM, 0, 0)] * _TERMS][:_TERMS], np.int32)
    never = (_RAM, 0, 1, 0)
    tests = np.array([*game.tests, *[never] * _TESTS][:_TESTS], np.int32)
    at, scale, add = game.lives
    return Rules(
        score[:, 0] - _RAM,
        score[:, 1],
        score[:, 2],
        *np.array([at - _RAM, scale, add], np.int32),
        tests[:, 0] - _RAM,
        *tests.T[1:],
    )


class Outcome(NamedTuple):
    """What a RAM says."""

    score: jax.Array
    lives: jax.Array
    over: jax.Array


def read(rules: Rules, ram: jax.Array) -> Outcome:
    """Return the score, of which a frame's reward is the change, the lives and the end."""
    return Outcome(score(rules, ram), lives(rules, ram), over(rules, ram))


def score(rules: Rules, ram: jax.Array) -> jax.Array:
    """Return the score, of which a frame's reward is the change; `ram` is uint8 [128]."""
    byte = ram[rules.score_at].astype(jnp.int32)
    return jnp.sum((byte >> 4) * rules.high + (byte & 15) * rules.low)


def over(rules: Rules, ram: jax.Array) -> jax.Array:
    """Return whether the game is over."""
    byte = ram[rules.test_at].astype(jnp.int32) & rules.mask
    return jnp.any((byte == rules.value) ^ (rules.differs == 1))


def lives(rules: Rules, ram: jax.Array) -> jax.Array:
    """Return the lives that are left, 0 when the game is over."""
    left = ram[rules.lives_at].astype(jnp.int32) * rules.lives_scale + rules.lives_add
    return jnp.where(over(rules, ram), 0, left)
