"""`check_atari(games, seeds, frames)`: compare the emulator with ALE, frame by frame.

ALE is a black box: it plays the same random actions, and after each frame its 128 bytes of RAM and
its screen must equal ours, and its reward, lives and end those that we read from RAM for the games
of `outcomes.GAMES`. One program plays every game and seed as a lane.
"""

from __future__ import annotations

import functools
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any, NamedTuple

import jax
import jax.numpy as jnp
import numpy as np

from jaxrl_fast.envs.atari import controls, games, machine, outcomes, snapshot
from jaxrl_fast.envs.atari.ale import open_ale
from jaxrl_fast.envs.atari.decode import Rom
from jaxrl_fast.envs.atari.state import Machine

_ROM_SIZE = 1 << 15  # addresses; images are padded to a multiple, so that programs are shared
# Frames cost more than their compilation, even where a process asks for quick compilations.
_OPTIONS = {"xla_backend_optimization_level": 3}
_SHOWN = 6  # differences in a message
FEWEST_IDLE = 4  # frames before the first compared one, for the two screens that ALE draws on


class AtariReport(NamedTuple):
    """Counts of a check, by game."""

    compared: dict[str, int]  # frames
    equal: dict[str, int]  # frames before the first difference
    difference: dict[str, str]  # the first difference of games that have one


class Lane(NamedTuple):
    """One game on ALE."""

    name: str
    image: bytes
    ale: Any
    rng: np.random.Generator


def start(ale: Any, image: bytes, name: str, noops: int = FEWEST_IDLE) -> snapshot.Start:
    """Return our machine in ALE's state after at least one more idle frame."""
    for _ in range(noops):
        before = ale.getScreen().copy()
        ale.act(0)
    data = ale.cloneState().serialize()
    controller, combs = games.controller(name), games.has_combs(name)
    return snapshot.parse(data, image, controller, ale.getScreen(), before, combs)


@jax.jit
def read_outcomes(
    rules: outcomes.Rules, ram: jax.Array, before: outcomes.Outcome
) -> outcomes.Outcome:
    """Return outcomes [N] after a frame, ram uint8 [N, 128], from those before it."""
    return jax.vmap(outcomes.read)(rules, ram, before.lives, before.score)


@jax.jit
def begin_outcomes(rules: outcomes.Rules, ram: jax.Array, lives: jax.Array) -> outcomes.Outcome:
    """Return outcomes [N] before the next frame: ram uint8 [N, 128], lives int32 [N] from ALE."""
    score = jax.vmap(outcomes.score)(rules, ram)
    return outcomes.Outcome(score, lives, jnp.zeros_like(lives, bool))


def pad(rom: Rom) -> Rom:
    """Return the tables with zeros at the end."""
    more = -rom.code.size % _ROM_SIZE
    return Rom(*(np.pad(table, (0, more)) for table in rom))


@functools.partial(jax.jit, compiler_options=_OPTIONS)
def play(
    m: Machine, c: controls.Controls, rom: Rom, action: jax.Array
) -> tuple[Machine, controls.Controls]:
    """Return the machines and controllers after one frame."""
    c, inputs = controls.press(c, action)
    return machine.frame(m, inputs, rom), c


@jax.jit
def replace(
    m: Machine, c: controls.Controls, i: int, fresh: Machine, held: controls.Controls
) -> tuple[Machine, controls.Controls]:
    """Return the machines and controllers with another game of the same image in lane `i`."""
    cart = fresh.cart._replace(start=m.cart.start[i])
    fresh = fresh._replace(cart=cart, dpc=fresh.dpc if m.dpc else ())
    return jax.tree.map(lambda old, new: old.at[i].set(new), (m, c), (fresh, held))


def check_atari(
    game: str | Sequence[str],
    seeds: Sequence[int] = (0, 1),
    frames: int = 60,
    *,
    images: dict[str, Path] | None = None,
    strict: bool = True,
    watch: Callable[[int, AtariReport], None] | None = None,
) -> AtariReport:
    """Raise AssertionError with the first frame that differs from ALE's.

    Args:
        game: A game, or several: "Pong" or "pong".
        seeds: Each plays other random actions, after other numbers of idle frames.
        frames: Frames to compare; a game that ends begins anew.
        images: Files to play instead of the games' own, by game.
        strict: Raise; otherwise the report tells.
        watch: Called after each frame with the number of frames and the report so far.
    """
    names = [games.snake_case(name) for name in ([game] if isinstance(game, str) else game)]
    files = images or {name: games.rom_path(name) for name in names}
    lanes, starts = _open(names, files, seeds)
    m, c, rom = snapshot.batch(starts)
    rom = pad(rom)
    report = AtariReport(dict.fromkeys(names, 0), dict.fromkeys(names, 0), {})
    judged, rules = _rules(lanes)
    lives = np.array([lane.ale.lives() for lane in lanes], np.int32)
    before = begin_outcomes(rules, m.ram, lives)
    differs: set[int] = set()
    for number in range(frames):
        actions = np.array([lane.rng.integers(controls.ACTIONS) for lane in lanes], np.int32)
        m, c = play(m, c, rom, actions)
        ours = jax.device_get((m.ram, machine.last_screens(m), m.bad))
        after = jax.device_get(read_outcomes(rules, m.ram, before))
        gained = jax.device_get(outcomes.reward(rules, before.score, after))
        left = np.array(after.lives)
        for i, lane in enumerate(lanes):
            if i in differs:
                continue
            reward = lane.ale.act(int(actions[i]))
            found = _difference(lane.ale, *(leaf[i] for leaf in ours))
            if found is None and judged[i]:
                mine = (gained[i], after.lives[i], after.over[i])
                found = _misjudged(lane, reward, *(int(x) for x in mine))
            report.compared[lane.name] += 1
            report.equal[lane.name] += found is None
            if found is not None:
                report.difference.setdefault(lane.name, f"frame {number}: {found}")
                differs.add(i)
            elif lane.ale.game_over():
                lane.ale.reset_game()
                fresh = _begin(lane)
                m, c = replace(m, c, i, fresh.machine, fresh.controls)
                left[i] = lane.ale.lives()
        before = begin_outcomes(rules, m.ram, left)
        if watch is not None:
            watch(number + 1, report)
    if strict and report.difference:
        found = [f"{name}, {text}" for name, text in report.difference.items()]
        raise AssertionError("; ".join(found))
    return report


def _open(
    names: list[str], files: dict[str, Path], seeds: Sequence[int]
) -> tuple[list[Lane], list[snapshot.Start]]:
    lanes, starts = [], []
    for name in names:
        image, rom = files[name].read_bytes(), None
        for seed in seeds:
            rng = np.random.default_rng(seed)
            lanes.append(Lane(name, image, open_ale(files[name], seed + 1), rng))
            first = _begin(lanes[-1])
            rom = first.rom if rom is None else rom
            starts.append(first._replace(rom=rom))
    return lanes, starts


def _begin(lane: Lane) -> snapshot.Start:
    """Return a game's start after a random number of idle frames."""
    return start(lane.ale, lane.image, lane.name, int(lane.rng.integers(FEWEST_IDLE, 31)))


def _rules(lanes: list[Lane]) -> tuple[list[bool], outcomes.Rules]:
    """Return which lanes' outcomes are known, and the rules; others have any."""
    judged = [lane.name in outcomes.GAMES for lane in lanes]
    names = [lane.name if known else "pong" for lane, known in zip(lanes, judged, strict=True)]
    leaves = [outcomes.rules(name) for name in names]
    return judged, jax.tree.map(lambda *x: np.stack(x), *leaves)


def _difference(ale: Any, ram: np.ndarray, screen: np.ndarray, bad: np.ndarray) -> str | None:
    """Return what differs, or None."""
    if bad:
        return "an instruction that is not supported"
    theirs, shown = ale.getRAM(), ale.getScreen()
    bytes_ = np.flatnonzero(theirs != ram[: theirs.size])
    pixels = np.argwhere(shown != screen[: len(shown)])
    if not bytes_.size and not pixels.size:
        return None
    some = [f"RAM {0x80 + i:#x} {ram[i]}, ALE's {theirs[i]}" for i in bytes_[:_SHOWN]]
    some += [f"pixel {y}, {x} {screen[y, x]}, ALE's {shown[y, x]}" for y, x in pixels[:_SHOWN]]
    return f"{bytes_.size} bytes and {len(pixels)} pixels differ: {'; '.join(some)}"


def _misjudged(lane: Lane, reward: int, gained: int, lives: int, over: int) -> str | None:
    """Return which of reward, lives and end differs, or None."""
    theirs = {"reward": reward, "lives": lane.ale.lives(), "end": int(lane.ale.game_over())}
    mine = {"reward": gained, "lives": lives, "end": over}
    wrong = [what for what in theirs if mine[what] != theirs[what]]
    return "; ".join(f"{what} {mine[what]}, ALE's {theirs[what]}" for what in wrong) or None
