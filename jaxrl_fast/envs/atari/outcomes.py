"""Rewards, lives and ends of a game, read from a few bytes of its RAM.

`outcome_table` has the bytes. They were found with ALE as a black box by
scripts/atari_outcomes.py.
"""

from __future__ import annotations

from typing import NamedTuple

import jax
import jax.numpy as jnp
import numpy as np

from jaxrl_fast.envs.atari.games import snake_case
from jaxrl_fast.envs.atari.outcome_table import AT_LEAST, COUNT, DIFFERS, FIRST, GAMES, Game
from jaxrl_fast.errors import ConfigError, nearest

_TERMS, _GROUPS, _TESTS = 7, 4, 4
_HOLDS, _FAILS = (FIRST, 0, 0, 0), (FIRST, 0, 1, 0)  # tests that are always and never true


class Rules(NamedTuple):
    """How to read one game's RAM; of several games, with a lane axis in front."""

    score: jax.Array  # int32 [terms, 5]: byte, points of its upper and lower bits, shift, blank
    unset: jax.Array  # [4]: byte, mask, value, relation
    lives: jax.Array  # [5]: byte, mask, shift, factor, sum
    loss: jax.Array  # [4]: byte, mask, value, relation
    bonus: jax.Array  # [4]: byte, mask, value, relation
    jumps: jax.Array
    ends: jax.Array  # [groups, tests, 4]: byte, mask, value, relation


class Outcome(NamedTuple):
    """What a RAM says."""

    score: jax.Array
    lives: jax.Array
    over: jax.Array


def pack(game: Game) -> Rules:
    """Return the rules as arrays of one size for every game."""
    score = [(*term, 0, 0)[:5] for term in game.score]
    score += [(FIRST, 0, 0, 0, 0)] * (_TERMS - len(score))
    groups = [[*group, *[_HOLDS] * (_TESTS - len(group))] for group in game.ends]
    groups += [[_FAILS] * _TESTS] * (_GROUPS - len(groups))
    raw = score, game.unset, game.lives, game.loss, game.bonus, groups
    parts = [np.array(part, np.int32) for part in raw]
    for part in parts:
        part[..., 0] -= FIRST
    terms, unset, lives, loss, bonus, ends = parts
    return Rules(terms, unset, lives, loss, bonus, np.int32(game.jumps), ends)


def rules(name: str) -> Rules:
    """Return the rules of a game, for instance "Pong" or "pong"."""
    game = GAMES.get(snake_case(name))
    if game is None:
        raise ConfigError("game", name, f"one of {', '.join(GAMES)}{nearest(name, GAMES)}")
    return pack(game)


def read(rules: Rules, ram: jax.Array, before: jax.Array) -> Outcome:
    """Return score, lives and end; the change of the score is a frame's reward.

    `before`: the lives of the frame before.
    """
    return Outcome(score(rules, ram), lives(rules, ram, before), over(rules, ram))


def score(rules: Rules, ram: jax.Array) -> jax.Array:
    """Return the score of `ram`, uint8 [128]; its change is a frame's reward."""
    at, high, low, shift, blank = rules.score.T
    byte = ram[at].astype(jnp.int32) >> shift

    def digit(value: jax.Array) -> jax.Array:
        return jnp.where((blank > 0) & (value == blank), 0, value)

    total = jnp.sum(digit(byte >> 4) * high + digit(byte & 15) * low)
    return jnp.where(holds(rules.unset, ram), 0, total)


def holds(test: jax.Array, ram: jax.Array | np.ndarray) -> jax.Array:
    """Return whether tests [..., 4] hold, bool [...]."""
    at, mask, value, relation = jnp.moveaxis(jnp.asarray(test), -1, 0)
    byte = ram[at].astype(jnp.int32) & mask
    same = (byte == value) ^ (relation == DIFFERS)
    return jnp.where(relation == AT_LEAST, byte >= value, same)


def over(rules: Rules, ram: jax.Array) -> jax.Array:
    """Return whether the game is over."""
    return jnp.any(jnp.all(holds(rules.ends, ram), -1))


def lives(rules: Rules, ram: jax.Array, before: jax.Array) -> jax.Array:
    """Return the lives that are left after a frame with `before`, 0 when the game is over."""
    at, mask, shift, factor, plus = rules.lives
    byte = ram[at].astype(jnp.int32) & mask
    part = jnp.where(shift == COUNT, jax.lax.population_count(byte), byte >> shift)
    left = (part * factor + plus + holds(rules.bonus, ram)) & 0xFF
    counts = jnp.where(left == before - 1, holds(rules.loss, ram), rules.jumps == 1)
    return jnp.where(over(rules, ram), 0, jnp.where(counts, left, before))
