"""What the lanes of a warp do in a frame, and how many turns a warp takes for it.

A lane's turns do not depend on the other lanes, so one recording serves every way of taking turns.
"""

from __future__ import annotations

import functools
from typing import Any, NamedTuple

import jax
import jax.numpy as jnp
import numpy as np

from jaxrl_fast.envs.atari import controls, games, kernel, machine, memory, snapshot
from jaxrl_fast.envs.atari.ale import open_ale
from jaxrl_fast.envs.atari.state import BLANK, LINE, WIDTH
from jaxrl_fast.testing import atari

_TURNS = 16_000  # of a frame at most
_GROUP = 32  # pixels that a warp paints under one conditional
ACTIVE, WANTS, DRAWS = 1, 2, 4  # bits of a recorded turn; the groups that it paints lie above
_GROUPS_AT = 3
_PLAYED = 1500  # frames by which a lane's start differs from another's, at most
_OPTIONS = {"xla_backend_optimization_level": 3}


class Turns(NamedTuple):
    """Turns of a warp in a frame."""

    all: float
    tia: float  # with an access to the TIA
    draws: float
    groups: float  # of 32 pixels, painted
    instructions: float  # of the mean lane


def starts(game: str, lanes: int, seed: int = 0) -> list[snapshot.Start]:
    """Return lanes of a game after different numbers of random frames on ALE."""
    path, rng, found = games.rom_path(game), np.random.default_rng(seed), []
    image = path.read_bytes()
    for lane in range(lanes):
        ale = open_ale(path, seed + lane)
        for _ in range(int(rng.integers(30, _PLAYED))):
            ale.act(int(rng.integers(controls.ACTIONS)))
            if ale.game_over():
                ale.reset_game()
        found.append(atari.start(ale, image, path.stem, 1))
        found[-1] = found[-1]._replace(rom=found[0].rom)
    return found


@functools.partial(jax.jit, compiler_options=_OPTIONS)
def _record(m: Any, inputs: Any, rom: Any) -> tuple[Any, jax.Array, jax.Array]:
    """Return the machine after a frame, its recorded turns [turns, N] and their number."""
    m = machine.begin(m, m.done >= 0)
    blank = jnp.zeros((_TURNS, m.done.shape[0]), jnp.uint8)

    def turn(carry: tuple) -> tuple:
        m, rows, count = carry
        seen = []

        def admit(active: jax.Array, wants: jax.Array) -> jax.Array:
            seen.append(active * ACTIVE + (active & wants) * WANTS)
            return active

        after = machine.step(m, inputs, memory.of_arrays(rom)._replace(admit=admit))
        begin = LINE - m.tia.left
        end = begin + after.tia.drawn - m.tia.drawn
        row = seen[0] + (end > begin) * DRAWS
        first, last = (jnp.clip(x - BLANK, 0, WIDTH) for x in (begin, end))
        for i in range(WIDTH // _GROUP):
            touched = (first < _GROUP * (i + 1)) & (last > _GROUP * i) & (last > first)
            row += touched << (_GROUPS_AT + i)
        return after, rows.at[count].set(row.astype(jnp.uint8)), count + 1

    going = lambda carry: jnp.any(carry[0].done == 0) & (carry[2] < _TURNS)
    return jax.lax.while_loop(going, turn, (m, blank, jnp.int32(0)))


def record(game: str, lanes: int, frames: int = 2, seed: int = 0) -> list[np.ndarray]:
    """Return the turns of each frame, uint8 [turns, lanes], of random play."""
    m, c, rom = snapshot.batch(starts(game, lanes, seed))
    rom, rng, found = atari.pad(rom), np.random.default_rng(seed), []
    for _ in range(frames):
        actions = rng.integers(controls.ACTIONS, size=lanes)
        c, inputs = controls.press(c, jnp.asarray(actions, jnp.int32))
        m, rows, count = _record(m, inputs, rom)
        found.append(np.asarray(rows[: int(count)]))
    if np.asarray(m.bad).any():
        raise RuntimeError(f"{game}: an instruction that is not supported.")
    return found


def warp(rows: np.ndarray, one_in: int = kernel.ONE_IN) -> Turns:
    """Return a warp's turns for the recorded lanes [turns, lanes].

    one_in: a turn takes accesses to the TIA once one of so many of its lanes waits for it.
    """
    lanes = [column[column & ACTIVE > 0] for column in rows.T]
    at, length = np.zeros(len(lanes), int), np.array([len(lane) for lane in lanes])
    padded = np.zeros((length.max() + 1, len(lanes)), np.uint8)
    for i, lane in enumerate(lanes):
        padded[: len(lane), i] = lane
    counts = np.zeros(4)
    while (at < length).any():
        row, going = padded[at, np.arange(len(lanes))], at < length
        waits = going & (row & WANTS > 0)
        takes = one_in * waits.sum() >= going.sum()
        steps = going & (takes | ~waits)
        union = int(np.bitwise_or.reduce(row[steps & waits], initial=0))
        counts += 1, union > 0, union & DRAWS > 0, (union >> _GROUPS_AT).bit_count()
        at += steps
    turns, tia, draws, groups = counts.tolist()
    return Turns(turns, tia, draws, groups, float(length.mean()))


def mean(frames: list[np.ndarray], lanes: int) -> Turns:
    """Return the mean turns of warps of `lanes` of the recorded lanes."""
    starts = range(0, frames[0].shape[1], lanes)
    warps = [warp(rows[:, at : at + lanes]) for rows in frames for at in starts]
    return Turns(*np.mean(warps, 0).tolist())
