"""The emulator equals ALE on games and on random programs, and `check_atari` finds a difference."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path

import atari_exact
import jax
import numpy as np
import pytest

from helpers import atari_programs, runs
from helpers.matrix import family
from jaxrl_fast.envs.atari import games, snapshot
from jaxrl_fast.envs.atari.ale import FIRE
from jaxrl_fast.errors import ConfigError
from jaxrl_fast.testing import atari, check_atari

GAMES = ("Pong", "Breakout", "SpaceInvaders", "Freeway", "Seaquest", "BeamRider")
SEEDS = (0, 1)


def _programs(folder: Path, **images: bytes) -> dict[str, Path]:
    files = {}
    for name, image in images.items():
        files[name] = folder / name / f"{atari_programs.NAME}.bin"
        files[name].parent.mkdir()
        files[name].write_bytes(image)
    return files


@pytest.mark.parametrize("frames", family([6, 60], 1))
def test_six_games_equal_ale_on_every_frame(frames):
    seen = []
    report = check_atari(GAMES, SEEDS, frames,
                         watch=lambda frame, so_far: seen.append((frame, *so_far.equal.values())))
    assert seen == [(i, *[len(SEEDS) * i] * len(GAMES)) for i in range(1, frames + 1)]
    assert report.equal == {games.snake_case(name): len(SEEDS) * frames for name in GAMES}


@pytest.mark.matrix("test_six_games_equal_ale_on_every_frame")
def test_random_programs_equal_ale(tmp_path):
    files = _programs(
        tmp_path,
        **{f"processor{i}": atari_programs.processor(i) for i in range(3)},
        **{f"picture{i}": atari_programs.picture(i) for i in range(3)},
    )
    report = check_atari(tuple(files), SEEDS, 3, images=files)
    assert sum(report.equal.values()) == len(files) * len(SEEDS) * 3


@pytest.mark.matrix("test_six_games_equal_ale_on_every_frame")
def test_pitfall_2_and_random_programs_of_its_chip_equal_ale(tmp_path):
    files = _programs(tmp_path, **{f"chip{i}": atari_programs.chip(i) for i in range(4)})
    files |= {name: games.rom_path(name) for name in ("pitfall2", "pong")}
    report = check_atari(tuple(files), SEEDS, 3, images=files)
    assert sum(report.equal.values()) == len(files) * len(SEEDS) * 3


def test_a_wrong_controller_is_a_difference():
    files = {name: games.rom_path("pong") for name in "abcdef"}  # none is known to have paddles
    with pytest.raises(AssertionError, match="bytes and .* pixels differ"):
        check_atari(tuple(files), SEEDS, 2, images=files)


def test_an_opcode_that_halts_the_processor_sets_bad():
    image = games.rom_path("pong").read_bytes()
    start = atari.start(atari.open_ale(games.rom_path("pong"), 1), image, "pong")
    ram = start.machine.ram.copy()
    ram[0] = 0x02
    cpu = start.machine.cpu._replace(pc=0x80)
    halted = start._replace(machine=start.machine._replace(ram=ram, cpu=cpu))
    m, c, rom = snapshot.batch([halted, *[start] * 11])
    m, _ = atari.play(m, c, atari.pad(rom), np.zeros(12, np.int32))
    assert jax.device_get(m.bad).tolist() == [1] + [0] * 11


def test_games_that_cannot_be_compared_are_named(tmp_path):
    with pytest.raises(ConfigError, match="did you mean 'pong'"):
        check_atari("Pnog")
    with pytest.raises(ConfigError, match="^game must be one that ale-py loads, got 'combat'"):
        check_atari("Combat")
    (tmp_path / "mine.bin").write_bytes(bytes(4096))
    with pytest.raises(ConfigError, match="one that ale-py loads, got 'mine'"):
        check_atari("mine", images={"mine": tmp_path / "mine.bin"})


@pytest.mark.matrix("test_six_games_equal_ale_on_every_frame")
def test_a_game_that_ends_begins_anew(monkeypatch):
    """Each game begins with its last ball below the paddle."""
    begun, start = [], atari.start

    def last_ball(ale, image, name, noops):
        begun.append(name)
        for _ in range(10):
            ale.act(FIRE)
        ale.setRAM(57, 1)  # lives
        ale.setRAM(101, 185)  # the ball's line, one below the paddle when the check begins
        return start(ale, image, name, atari.FEWEST_IDLE)

    monkeypatch.setattr(atari, "start", last_ball)
    check_atari("Breakout", range(12), 30)
    assert len(begun) == 2 * 12


@pytest.mark.slow
@pytest.mark.timeout(1200)
@pytest.mark.parametrize("lanes", [136, 264])
def test_a_frame_does_not_depend_on_the_number_of_lanes(lanes):
    paths = {name: games.rom_path(name) for name in GAMES}
    starts = [atari.start(atari.open_ale(path, 1), path.read_bytes(), name)
              for name, path in paths.items()]

    def after(count: int) -> list[np.ndarray]:
        m, c, rom = snapshot.batch([starts[i % len(starts)] for i in range(count)])
        m, _ = atari.play(m, c, atari.pad(rom), np.zeros(count, np.int32))
        return jax.tree.leaves(jax.device_get(m))

    for few, many in zip(after(12), after(lanes), strict=True):
        np.testing.assert_array_equal(many, few[np.arange(lanes) % len(starts)])


@pytest.mark.slow
@pytest.mark.timeout(3 * 3600)
@pytest.mark.parametrize("arguments", [
    ("--seeds", "8", "--frames", "300"),  # every game
    ("--frames", "18000", *GAMES, "MsPacman", "Enduro", "Asteroids", "MontezumaRevenge"),
], ids=["every game", "ten games for minutes"])
def test_games_equal_ale(arguments):
    """A process of its own: the tests' programs are not optimized, and the script's flags are."""
    subprocess.run([sys.executable, atari_exact.__file__, *arguments], check=True,
                   env=runs.subprocess_environment())
