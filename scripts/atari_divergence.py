"""Count how the lanes of a GPU's warp part in frames of random play.

    python scripts/atari_divergence.py              # 20 games, on a CPU
    python scripts/atari_divergence.py pong qbert

A recording on a CPU holds each instruction of 32 lanes: whether it accesses the TIA, draws, and
which groups of 32 pixels it paints. A lane's instructions do not depend on other lanes, so one
recording serves each rule by which a warp takes turns (`kernel._admit`).
"""

from __future__ import annotations

import argparse
import json
from collections.abc import Sequence
from typing import Any, NamedTuple

import jax
import jax.numpy as jnp
import numpy as np

from jaxrl_fast import runtime
from jaxrl_fast.envs.atari import controls, games, kernel, machine, memory, picture, snapshot
from jaxrl_fast.envs.atari.ale import open_ale
from jaxrl_fast.envs.atari.state import BLANK, LINE, WIDTH
from jaxrl_fast.testing import atari

GAMES = (
    "alien", "assault", "asterix", "asteroids", "battle_zone", "beam_rider", "boxing", "breakout",
    "centipede", "enduro", "freeway", "hero", "montezuma_revenge", "ms_pacman", "pong", "qbert",
    "riverraid", "seaquest", "space_invaders", "tennis",
)  # fmt: skip
RULES = {"as they come": kernel.WARP, "once a third waits": kernel.ONE_IN, "once all wait": 1}
ACTIVE, WANTS, DRAWS, GROUPS_AT = 1, 2, 4, 3  # bits of a recorded turn; its groups lie above
_GROUP = 32  # pixels that a warp paints under one branch
_TURNS = 26_000  # of a frame at most, parts of the picture counted
_PLAYED = (30, 1500)  # random frames on ALE before a lane's recording
_FRAMES = 2
SHOWN = "turns", "with one", "that draw", "groups of 32 pixels", "lanes at work"  # of `Turns`


class Turns(NamedTuple):
    """Turns of a warp for an instruction of its mean lane."""

    all: float
    tia: float  # with an access to the TIA
    draws: float
    groups: float  # of 32 pixels, painted
    lanes: float  # share of the lanes at work in a turn


def starts(game: str, lanes: int) -> list[snapshot.Start]:
    """Return lanes of a game after different numbers of random frames on ALE."""
    path, rng, found = games.rom_path(game), np.random.default_rng(0), []
    image = path.read_bytes()
    for lane in range(lanes):
        ale = open_ale(path, lane)
        for _ in range(int(rng.integers(*_PLAYED))):
            ale.act(int(rng.integers(controls.ACTIONS)))
            if ale.game_over():
                ale.reset_game()
        found.append(atari.start(ale, image, path.stem, 1))
        found[-1] = found[-1]._replace(rom=found[0].rom)
    return found


@jax.jit
def _record(m: Any, inputs: Any, rom: Any) -> tuple[Any, jax.Array, jax.Array]:
    """Return the machine after a frame, its recorded turns [turns, N] and their number."""
    m = machine.begin(m)
    blank = jnp.zeros((_TURNS, m.done.shape[0]), jnp.uint8)
    access = memory.of_arrays(rom, picture.one_by_one)

    def turn(carry: tuple) -> tuple:
        m, rows, count = carry
        seen = []

        def admit(active: jax.Array, wants: jax.Array) -> jax.Array:
            seen.append(active * ACTIVE + (active & wants) * WANTS)
            return active

        after = machine.step(m, inputs, access._replace(admit=admit))
        begin = LINE - m.tia.left
        end = begin + after.tia.drawn - m.tia.drawn
        row = seen[0] + (end > begin) * DRAWS
        first, last = (jnp.clip(x - BLANK, 0, WIDTH) for x in (begin, end))
        for i in range(WIDTH // _GROUP):
            touched = (first < _GROUP * (i + 1)) & (last > _GROUP * i) & (last > first)
            row += touched << (GROUPS_AT + i)
        return after, rows.at[count].set(row.astype(jnp.uint8)), count + 1

    going = lambda carry: jnp.any(carry[0].done == 0) & (carry[2] < _TURNS)
    return jax.lax.while_loop(going, turn, (m, blank, jnp.int32(0)))


def record(game: str, lanes: int = kernel.WARP) -> tuple[list[np.ndarray], np.ndarray]:
    """Return the turns [turns, lanes] of each frame, and its instructions [frames, lanes]."""
    m, c, rom = snapshot.batch(starts(game, lanes))
    rom, rng = atari.pad(rom), np.random.default_rng(0)
    found, instructions = [], []
    for _ in range(_FRAMES):
        actions = rng.integers(controls.ACTIONS, size=lanes)
        c, inputs = controls.press(c, jnp.asarray(actions, jnp.int32))
        m, rows, count = _record(m, inputs, rom)
        if np.asarray(m.bad).any() or not np.asarray(m.done).all():
            raise RuntimeError(f"{game}: a frame did not end or met an unsupported opcode.")
        found.append(np.asarray(rows[: int(count)]))
        instructions.append(np.asarray(m.steps))
    return found, np.stack(instructions)


def take_turns(rows: np.ndarray, one_in: int) -> tuple[int, ...]:
    """Return a warp's turns for recorded lanes [turns, lanes]: all, tia, draws, groups, lanes' own.

    A turn takes accesses to the TIA once one in `one_in` of the lanes that are not done waits.
    """
    lanes = [column[column & ACTIVE > 0] for column in rows.T]
    at, length = np.zeros(len(lanes), int), np.array([len(lane) for lane in lanes])
    padded = np.zeros((length.max() + 1, len(lanes)), np.uint8)
    for i, lane in enumerate(lanes):
        padded[: len(lane), i] = lane
    counts = np.zeros(5, int)
    while (at < length).any():
        row, going = padded[at, np.arange(len(lanes))], at < length
        waits = going & (row & WANTS > 0)
        takes = one_in * waits.sum() >= going.sum()
        steps = going & (takes | ~waits)
        union = int(np.bitwise_or.reduce(row[steps & waits], initial=0))
        groups = (union >> GROUPS_AT).bit_count()
        counts += 1, union > 0, union & DRAWS > 0, groups, steps.sum()
        at += steps
    return tuple(counts.tolist())


def turns(frames: list[np.ndarray], instructions: np.ndarray, one_in: int) -> Turns:
    """Return the mean over frames."""
    counts = np.sum([take_turns(rows, one_in) for rows in frames], 0)
    of_lanes = counts[4] / counts[0] / frames[0].shape[1]
    return Turns(*(counts[:4] / instructions.mean(1).sum()).tolist(), float(of_lanes))


def table(found: dict[str, list[Turns]]) -> str:
    """Return Markdown, a column a rule: the median of the games, the lowest and the highest."""
    head = ["takes accesses to the TIA", *found]
    lines = [head, ["---"] * len(head)]
    for i, name in enumerate(SHOWN):
        columns = [np.array(rows)[:, i] for rows in found.values()]
        spans = [f"{np.median(x):.2f} ({x.min():.2f} to {x.max():.2f})" for x in columns]
        lines.append([name, *spans])
    return "\n".join(f"| {' | '.join(line)} |" for line in lines)


def main(argv: Sequence[str] | None = None) -> int:
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("games", nargs="*", default=GAMES, help="20 games by default")
    args = parser.parse_args(argv)
    runtime.request_loop_kernels()
    found: dict[str, list[Turns]] = {rule: [] for rule in RULES}
    for game in args.games:
        frames, instructions = record(game)
        for rule, one_in in RULES.items():
            found[rule].append(turns(frames, instructions, one_in))
        of_rules = {rule: rows[-1]._asdict() for rule, rows in found.items()}
        row = {"game": game, "instructions": float(instructions.mean())} | of_rules
        print(json.dumps(row), flush=True)
    print(table(found))
    return 0


if __name__ == "__main__":
    raise SystemExit(main())
