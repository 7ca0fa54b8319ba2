"""Rewards, lives and ends of a game, read from a few bytes of its RAM.

`outcome_table` has the bytes. scripts/atari_outcomes.py finds most bytes and checks every row, with
ALE as a black box.
"""

from __future__ import annotations

from typing import NamedTuple

import jax
import jax.numpy as jnp
import numpy as np

from jaxrl_fast.envs.atari import outcome_form as form
from jaxrl_fast.envs.atari.games import snake_case
from jaxrl_fast.envs.atari.outcome_form import FIRST, Game
from jaxrl_fast.envs.atari.outcome_table import GAMES
from jaxrl_fast.errors import ConfigError, nearest

_TERMS, _FLAGS, _GROUPS, _TESTS = 7, 2, 4, 4


class Rules(NamedTuple):
    """How to read one game's RAM; of several games, with a lane axis in front."""

    # int32 [2, terms, 5], major ones first: byte, points of its upper and lower bits, shift, blank
    score: jax.Array
    unset: jax.Array  # [4]: byte, mask, value, relation
    flags: jax.Array  # [flags, 5]: byte, mask, value, relation, points
    limits: jax.Array  # [4]: wraps, low, high, quiet
    lives: jax.Array  # [5]: byte, mask, shift, factor, sum
    loss: jax.Array  # [4]: byte, mask, value, relation
    bonus: jax.Array  # [4]: byte, mask, value, relation
    extra: jax.Array  # int32 []: lives more where `bonus` holds
    jumps: jax.Array  # [4]: byte, mask, value, relation
    follow: jax.Array  # int32 []: NUMBER, CHANGES or STEPS
    ends: jax.Array  # [groups, tests, 4]: byte, mask, value, relation
    last: jax.Array  # int32 []: lives before the end, or ANY
    left: jax.Array  # int32 []: lives after the end


class Outcome(NamedTuple):
    """A game's score, lives and end, as read from a RAM."""

    score: jax.Array  # int32 [3]: see `score`
    lives: jax.Array  # int32 []
    over: jax.Array  # bool []


def pack(game: Game) -> Rules:
    """Return the rules as arrays of one size for every game."""
    score = [_terms(game.major), _terms(game.score)]
    groups = [[*group, *[form.ALWAYS] * (_TESTS - len(group))] for group in game.ends]
    groups += [[form.NEVER] * _TESTS] * (_GROUPS - len(groups))
    flags = [(*test, points) for test, points in game.flags]
    flags += [(*form.NEVER, 0)] * (_FLAGS - len(flags))
    raw = score, game.unset, flags, game.lives, game.loss, game.bonus, game.jumps, groups
    parts = [np.array(part, np.int32) for part in raw]
    for part in parts:
        part[..., 0] -= FIRST
    terms, unset, flags, lives, loss, bonus, jumps, ends = parts
    limits = np.array([game.wraps, game.low, game.high, game.quiet], np.int32)
    extra, follow, last, left = map(np.int32, (game.extra, game.follow, game.last, game.left))
    return Rules(terms, unset, flags, limits, lives, loss, bonus, extra, jumps, follow, ends, last,
                 left)


def _terms(terms: form.Terms) -> list[tuple[int, ...]]:
    full = [(*term, 0, 0)[:5] for term in terms]
    return full + [(FIRST, 0, 0, 0, 0)] * (_TERMS - len(full))


def rules(name: str) -> Rules:
    """Return the rules of a game, for instance "Pong" or "pong"."""
    game = GAMES.get(snake_case(name))
    if game is None:
        known = f"one of the {len(GAMES)} in docs/atari.md whose rewards and ends are known"
        raise ConfigError("game", name, known + nearest(name, GAMES))
    return pack(game)


def read(rules: Rules, ram: jax.Array, old_lives: jax.Array, old_score: jax.Array) -> Outcome:
    """Return the outcome of ram uint8 [128] after old_lives int32 [] and old_score int32 [3]."""
    now = score(rules, ram)
    left = _left(rules, ram, old_lives, old_score[2], now[2])
    ends = over(rules, ram, old_lives)
    return Outcome(now, jnp.where(ends, rules.left, left), ends)


def score(rules: Rules, ram: jax.Array) -> jax.Array:
    """Return the major sum, the score and the number of lives, int32 [3], of `ram`, uint8 [128]."""
    at, high, low, shift, blank = jnp.moveaxis(rules.score, -1, 0)
    byte = ram[at].astype(jnp.int32) >> shift

    def digit(value: jax.Array) -> jax.Array:
        return jnp.where((blank > 0) & (value == blank), 0, value)

    total = jnp.sum(digit(byte >> 4) * high + digit(byte & 15) * low, -1)
    flagged = jnp.sum(jnp.where(holds(rules.flags[:, :4], ram), rules.flags[:, 4], 0))
    total = jnp.where(holds(rules.unset, ram), 0, total.at[1].add(flagged))
    return jnp.append(total, _number(rules, ram))


def reward(rules: Rules, before: jax.Array, after: Outcome) -> jax.Array:
    """Return a frame's reward, int32 [...], from the score [..., 3] before it and its outcome."""
    wraps, low, high, quiet = jnp.moveaxis(jnp.asarray(rules.limits), -1, 0)
    major, points, _ = jnp.moveaxis(after.score - before, -1, 0)
    gained = jnp.where(major != 0, major, points)
    gained = jnp.clip(jnp.where(gained < 0, gained + wraps, gained), low, high)
    return jnp.where(after.over & (quiet > 0), 0, gained)


def holds(test: jax.Array, ram: jax.Array | np.ndarray) -> jax.Array:
    """Return whether tests [..., 4] hold, bool [...]."""
    at, mask, value, relation = jnp.moveaxis(jnp.asarray(test), -1, 0)
    byte = ram[at].astype(jnp.int32) & mask
    same = (byte == value) ^ (relation == form.DIFFERS)
    same = jnp.where(relation == form.AT_LEAST, byte >= value, same)
    return jnp.where(relation == form.BELOW, byte < value, same)


def over(rules: Rules, ram: jax.Array, before: jax.Array) -> jax.Array:
    """Return whether the game is over after a frame with `before` lives in the frame before."""
    ends = jnp.any(jnp.all(holds(rules.ends, ram), -1))
    return ends & ((rules.last == form.ANY) | (rules.last == before))


def _number(rules: Rules, ram: jax.Array) -> jax.Array:
    """Return the lives that a RAM holds."""
    at, mask, shift, factor, plus = rules.lives
    byte = ram[at].astype(jnp.int32) & mask
    part = jnp.where(shift == form.COUNT, jax.lax.population_count(byte), byte >> shift)
    return (part * factor + plus + holds(rules.bonus, ram) * rules.extra) & 0xFF


def _left(rules: Rules, ram: jax.Array, before: jax.Array, was: jax.Array,
          now: jax.Array) -> jax.Array:
    """Return the lives after a frame with `before`, in which the number in RAM went to `now`."""
    counts = jnp.where(now == before - 1, holds(rules.loss, ram), holds(rules.jumps, ram))
    counts &= (rules.follow != form.CHANGES) | (now != was)
    fell = now == (was - 1) & 0xFF
    return jnp.where(rules.follow == form.STEPS, before - fell, jnp.where(counts, now, before))
