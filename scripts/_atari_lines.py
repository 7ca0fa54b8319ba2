"""Games as lines of `outcome_table.py`, for `atari_outcomes.py`."""

from __future__ import annotations

import textwrap

from jaxrl_fast.envs.atari import outcome_form
from jaxrl_fast.envs.atari.outcome_form import Game

_COLUMNS = 100
_TIGHT = ",_"  # between numbers that stay on one line


def line(name: str, game: Game) -> str:
    """Return a game as a line of the table, a call of `outcome_form.game`."""

    def row(values: tuple[int, ...], bytes_: int) -> str:
        shown = [f"0x{v:02X}" if i < bytes_ else str(v) for i, v in enumerate(values)]
        return f"({_TIGHT.join(shown)})"

    def rows(parts: list[str]) -> str:
        return f"({', '.join(parts)}{',' * (len(parts) == 1)})"

    def test(values: tuple[int, ...]) -> str:
        known: dict[tuple[int, ...], str] = {
            outcome_form.NEVER: "NEVER", outcome_form.ALWAYS: "ALWAYS"}
        shown = values if values[3] != outcome_form.EQUAL else values[:3]
        return known.get(values) or row(shown, 3)

    parts = [numbers(game.score)]
    if any(game.lives[1:]):
        count = next(n for n in (2, 3, 4, 5) if game.lives[n:] == (0, 1, 0)[n - 2 :])
        parts.append(f"lives={row(game.lives[:count], 2)}")
    for field in ("loss", "unset", "bonus", "jumps"):
        if getattr(game, field) != Game._field_defaults[field]:
            parts.append(f"{field}={test(getattr(game, field))}")
    parts += [f"major={numbers(game.major)}"] if game.major else []
    flags = [f"({test(one)}, {points})" for one, points in game.flags]
    parts += [f"flags={rows(flags)}"] if flags else []
    for field in ("wraps", "low", "high", "quiet", "extra", "last", "left", "follow"):
        if getattr(game, field) != Game._field_defaults[field]:
            parts.append(f"{field}={getattr(game, field)}")
    groups = [[test(one) for one in group] for group in game.ends]
    if len(groups) == 1:
        parts.append(f"end={groups[0][0] if len(groups[0]) == 1 else rows(groups[0])}")
    elif groups:
        parts.append(f"ends={rows([rows(group) for group in groups])}")
    short = f'    "{name}": game({", ".join(parts)}),'
    if len(short) <= _COLUMNS:
        return short.replace(_TIGHT, ", ")
    lines = textwrap.wrap(", ".join(parts) + ",", _COLUMNS - 8)
    inner = [f"        {x}".replace(_TIGHT, ", ") for x in lines]
    return "\n".join([f'    "{name}": game(', *inner, "    ),  # fmt: skip"])


def numbers(terms: outcome_form.Terms) -> str:
    """Return the terms of a score as a sum of decimal numbers, or as they are."""
    found, left = [], sorted(terms, key=lambda term: (term[1] < 0, -abs(term[1])))
    while left:
        here = [left.pop(0)]
        while left and len(left[0]) == 3 and left[0][1] * 100 == here[-1][1]:
            here.append(left.pop(0))
        unit = here[-1][2]
        if tuple(here) != outcome_form.bcd(*(at for at, *_ in here), unit=unit):
            raw = [f"({_TIGHT.join([f'0x{at:02X}', *map(str, rest)])})" for at, *rest in terms]
            return f"({', '.join(raw)}{',' * (len(raw) == 1)})"
        shown = _TIGHT.join(f"0x{at:02X}" for at, *_ in here)
        found.append(f"bcd({shown}{f',_unit={unit}' * (unit != 1)})")
    return " + ".join(found) or "()"
