"""Find where Atari games keep score, lives and end, with ALE as a black box.

    python scripts/atari_outcomes.py seaquest qbert    # prints lines of outcome_table.py
    python scripts/atari_outcomes.py --check seaquest  # plays whole games against the table
    python scripts/atari_outcomes.py --ask 9000 qbert  # compares answers of ALE with the table

ALE takes any image under a game's name and reads that game's outcomes from its RAM. The image here
never writes RAM after its start, so ALE's answers are a function of bytes that this script sets:
each byte of RAMs of the real game is set to each value. Rewards, lives and ends of whole games of
random play must follow from what was found, or the game is reported as failed.
"""

from __future__ import annotations

import argparse
import itertools
from typing import NamedTuple

import jax
import numpy as np
from _atari_lines import line
from _atari_oracle import Oracle, Trace, ask, play, tables

from jaxrl_fast.envs.atari import outcome_form, outcomes
from jaxrl_fast.envs.atari.outcome_form import FIRST, Game
from jaxrl_fast.envs.atari.outcome_table import GAMES

_ROWS = 8192


def score_terms(many: list[dict], trace: Trace) -> dict[int, tuple[int, ...]]:
    """Return {byte: points of its upper and of its lower four bits, shift, blank} of digits."""
    votes: dict[int, list[tuple[int, ...]]] = {}
    for table in many:
        for i, rows in table.items():
            score = np.array([r[0] for r in rows])
            if len(set(score.tolist())) > 1:
                seen = set(np.unique(trace.ram[:, i]).tolist())
                votes.setdefault(i, []).append(_digits(score - score[0], seen))
    best = {i: max(set(seen), key=seen.count) for i, seen in votes.items()}
    return {i: term for i, term in best.items() if any(term)}


def _digits(points: np.ndarray, seen: set[int]) -> tuple[int, ...]:
    """Return the points of the upper and lower four bits, shift and blank, or zeros.

    seen: the values that the byte has in games; a blank is among them if there is a choice.
    """
    for shift in (0, 3):
        high, low = int(points[16 << shift]), int(points[1 << shift])
        pairs = [(h, n) for h in range(10 if shift == 0 else 1) for n in range(10)]
        fits = (points[(h * 16 + n) << shift] == high * h + low * n for h, n in pairs)
        if any((high, low)) and all(fits):
            place = shift if low else 4
            blanks = [d for d in range(10, 16) if points[d << place] == 0]
            shown = [d for d in blanks if d << place in seen]
            return high, low, shift, (shown or blanks or [0])[0]
    return 0, 0, 0, 0


def byte_test(values: set[int], seen: np.ndarray | None = None) -> tuple[int, int, int] | None:
    """Return (mask, value, relation) that holds for these values of a byte alone, or None.

    seen: the values that the byte has in games; by default all.
    """
    least = min(values, default=0)
    if 1 < least < 255 and len(values) == 256 - least:
        return 0xFF, least, outcome_form.AT_LEAST
    every = np.arange(256) if seen is None else seen
    inside = np.isin(every, list(values))
    for differs in (0, 1):
        chosen = inside ^ bool(differs)
        if not chosen.any() or chosen.all():
            continue
        first = int(every[np.flatnonzero(chosen)[0]])
        for mask in sorted(range(256), key=lambda m: (-bin(m).count("1"), m)):
            if (((every & mask) == (first & mask)) == chosen).all():
                return mask, first & mask, outcome_form.DIFFERS if differs else outcome_form.EQUAL
    return None


def end_groups(oracle: Oracle, pairs: list, trace: Trace) -> list[tuple]:
    """Return the end as groups of tests (byte, mask, value, relation); one whole group suffices."""
    seen = [np.unique(column) for column in trace.ram.T]
    groups: list[tuple] = []

    def known(ram: np.ndarray) -> bool:
        return any(all(outcomes.holds(test, ram) for test in group) for group in groups)

    def add(ram: np.ndarray, table: dict) -> None:
        ends = {i: {v for v in range(256) if rows[v][2]} for i, rows in table.items()}
        parts = {i: byte_test(v) or byte_test(v, seen[i]) for i, v in ends.items() if len(v) < 256}
        if parts and all(parts.values()) and not known(ram):
            group = tuple((i, *test) for i, test in sorted(parts.items()) if test)
            groups.extend([group] if group not in groups else [])

    for ram, table, over in pairs:
        if over:
            add(ram, table)
        for i, rows in table.items() if not over else ():
            values = [v for v in range(256) if rows[v][2]]
            if values:
                other = ram.copy()
                other[i] = next((v for v in values if v in seen[i]), values[0])
                if not known(other):
                    add(other, tables(oracle, other))
    return groups


def lives_forms(many: list[dict], trace: Trace) -> list[tuple[int, int, int, int, int]]:
    """Return (byte, mask, shift, factor, sum) that agree with every change of the lives."""
    at = np.flatnonzero(np.diff(trace.lives) != 0) + 1
    at = at[~trace.over[at] & ~trace.first[at]]
    runs = [((1 << n) - 1) << s for s in range(8) for n in range(8 - s, 0, -1)]
    masks = [(mask, (mask & -mask).bit_length() - 1) for mask in runs]
    masks += [(1 << a | 1 << b, outcome_form.COUNT) for a in range(8) for b in range(a)]
    masks += [(mask, outcome_form.COUNT) for mask in runs if bin(mask).count("1") > 2]
    alive = np.unique(trace.lives[~trace.over])
    found = [(FIRST, 0, 0, 0, int(alive[0]))] if len(alive) == 1 else []
    for i in sorted({i for table in many for i in table}) if len(at) else ():
        for (mask, shift), factor in itertools.product(masks, (1, -1)):
            part = _part(trace.ram[at, i], mask, shift) * factor
            plus = (trace.lives[at] - part) % 256
            if len(set(part)) > 1 - (len(at) == 1) and (plus == plus[0]).all():
                found.append((FIRST + i, mask, shift, factor, int(plus[0])))
    return sorted(found, key=lambda form: (-_agreement(form, many), -bin(form[1]).count("1")))


def _part(byte: np.ndarray, mask: int, shift: int) -> np.ndarray:
    """Return the masked bits as a number, or how many they are."""
    byte = byte.astype(np.uint8) & np.uint8(mask)
    return (np.bitwise_count(byte) if shift == outcome_form.COUNT else byte >> shift).astype(int)


def _agreement(form: tuple[int, int, int, int, int], many: list[dict]) -> int:
    """Return how many answers of ALE a form of the lives predicts."""
    at, mask, shift, factor, plus = form
    said = (_part(np.arange(256), mask, shift) * factor + plus) & 0xFF
    rows = [table[at - FIRST] for table in many if at - FIRST in table]
    return sum(int(r[1]) == said[v] for row in rows for v, r in enumerate(row))


def loss_tests(many: list[dict], pairs: list) -> list[tuple[int, int, int, int]]:
    """Return tests of a byte that lets a loss of one life count."""
    found = {outcome_form.ALWAYS: None}
    for _, table, over in pairs:
        for i, rows in table.items() if not over else ():
            lives = np.array([r[1] for r in rows])
            usual = max(set(lives.tolist()), key=lives.tolist().count)
            test = byte_test(set(np.flatnonzero(lives == usual - 1).tolist()))
            if test:
                found[(FIRST + i, *test)] = None
    return list(found)


@jax.jit
def _read(rules: outcomes.Rules, ram: jax.Array, lives: jax.Array, first: jax.Array):
    """Return the outcomes of a trace; a game begins with the lives that ALE says."""

    def frame(before: outcomes.Outcome, x: tuple) -> tuple[outcomes.Outcome, outcomes.Outcome]:
        ram, given, begins = x
        said = outcomes.read(rules, ram, before.lives, before.score)
        said = said._replace(lives=jax.numpy.where(begins, given, said.lives))
        return said, said

    begun = outcomes.Outcome(outcomes.score(rules, ram[0]), lives[0], lives[0] < 0)
    return jax.lax.scan(frame, begun, (ram, lives, first))[1]


class Found(NamedTuple):
    """A game's outcomes, in the form of `Game`, and how many frames they miss."""

    game: Game
    frames: int
    wrong: dict[str, int]


def _samples(trace: Trace, count: int = 3) -> list[int]:
    """Return frames to look at: spread over the trace, around changes, and ends."""
    inner = np.flatnonzero(~trace.over)
    spread = inner[np.linspace(0, len(inner) - 1, count).astype(int)]
    lost = np.flatnonzero(np.diff(trace.lives) != 0)[:2]
    ends = np.flatnonzero(trace.over)[:2]
    return sorted({*map(int, spread), *map(int, lost), *map(int, ends), *map(int, ends[:1] - 1)})


def derive(name: str, trace: Trace) -> Found:
    """Return what the bytes of a game's RAM say."""
    oracle = Oracle(name, trace.ram[0])
    at = _samples(trace)
    rams = [trace.ram[i] for i in at]
    pairs = [(ram, tables(oracle, ram), bool(oracle(ram)[2])) for ram in rams]
    many = [table for _, table, _ in pairs]
    terms = score_terms([table for _, table, over in pairs if not over], trace)
    score = tuple((FIRST + i, *term) for i, term in sorted(terms.items()))
    score = tuple(term[:3] if not any(term[3:]) else term for term in score)
    groups = end_groups(oracle, pairs, trace)
    ends = tuple(tuple((FIRST + i, *rest) for i, *rest in group) for group in groups)
    plain = Game(score, ends=ends)
    if check(plain, trace).wrong["reward"]:
        unset = [(at, 0xFF, int(trace.ram[0, at - FIRST]), 0) for at, *_ in score]
        choices = [plain, *(plain._replace(unset=test) for test in unset)]
        plain = min(choices, key=lambda game: check(game, trace).wrong["reward"])
    games_ = [plain] + [
        plain._replace(lives=form, loss=test, jumps=jumps)
        for test, jumps, form in itertools.product(
            loss_tests(many, pairs),
            (outcome_form.ALWAYS, outcome_form.NEVER),
            lives_forms(many, trace)[:12],
        )
    ]
    best = check(plain, trace)
    for game in games_:
        found = check(game, trace)
        if found.wrong["lives"] < best.wrong["lives"]:
            best = found
        if not best.wrong["lives"]:
            break
    return best


def check(game: Game, trace: Trace) -> Found:
    """Return how many frames of a trace the outcomes miss."""
    count = len(trace.ram)
    rows = trace.ram, trace.lives.astype(np.int32), trace.first
    more = -count % _ROWS  # traces of several lengths share a program
    padded = (np.pad(x, [(0, more)] + [(0, 0)] * (x.ndim - 1), "edge") for x in rows)
    rules = outcomes.pack(game)
    found = jax.device_get(_read(rules, *padded))
    said = jax.tree.map(lambda x: x[:count], found)
    later = ~trace.first[1:]
    gained = np.array(outcomes.reward(rules, said.score[:-1], jax.tree.map(lambda x: x[1:], said)))
    wrong = {
        "reward": int(np.sum((gained != trace.reward[1:]) & later)),
        "lives": int(np.sum(said.lives != trace.lives)),
        "end": int(np.sum((said.over != trace.over) & ~trace.first)),
    }
    return Found(game, len(trace.ram), wrong)


def choices(game: Game) -> dict[int, np.ndarray]:
    """Return {address: values} of the bytes that a row reads; half of them are its tests' values.

    The others are decimal numbers in a score and any values elsewhere.
    """
    tests = [game.unset, game.loss, game.bonus, game.jumps, *(test for test, _ in game.flags)]
    tests += [test for group in game.ends for test in group]
    found = {at: np.arange(256) for at, mask, *_ in (*tests, game.lives) if mask}
    for at, high, low, *more in (*game.score, *game.major):
        digits = np.arange(10)
        pairs = digits[: 10 if high else 1, None] * 16 + digits[: 10 if low else 1]
        found[at] = pairs.ravel() << (more[0] if more else 0)
    for at, values in found.items():
        tested = [value for byte, mask, value, _ in tests if byte == at and mask]
        found[at] = np.append(values, np.resize(tested, len(values) * bool(tested)).astype(int))
    return found


def main() -> int:
    parser = argparse.ArgumentParser(description=(__doc__ or "").partition("\n")[0])
    parser.add_argument("games", nargs="+")
    parser.add_argument("--check", action="store_true", help="play games against the table")
    parser.add_argument("--ask", type=int, default=0, help="sequences of RAMs that ALE is asked")
    parser.add_argument("--frames", type=int, default=20_000, help="frames of random play")
    parser.add_argument("--seed", type=int, default=0)
    args = parser.parse_args()
    failed = 0
    for name in args.games:
        asked = args.ask and ask(name, choices(GAMES[name]), args.ask, args.seed)
        trace = asked or play(name, args.frames, args.seed)
        known = args.check or args.ask
        found = check(GAMES[name], trace) if known else derive(name, trace)
        failed += any(found.wrong.values())
        wrong = ", ".join(f"{count} {what}" for what, count in found.wrong.items() if count)
        ends, gained = int(trace.over.sum()), int((trace.reward != 0).sum())
        seen = f"{found.frames} frames, {ends} ends, {gained} rewards"
        print(f"{name}: {seen}: {f'wrong: {wrong}' if wrong else 'equal'}", flush=True)
        if not known:
            print(line(name, found.game), flush=True)
    return int(failed > 0)


if __name__ == "__main__":
    raise SystemExit(main())
