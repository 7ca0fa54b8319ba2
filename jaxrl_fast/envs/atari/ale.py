"""Start states, actions and colors from the Arcade Learning Environment.

ALE is a black box. Its colors come from small programs of ours that show all of them.
"""

from __future__ import annotations

import functools
import tempfile
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np

from jaxrl_fast.envs.atari import games, snapshot
from jaxrl_fast.errors import ConfigError, MissingExtraError

FIRE = 1
_ORIGIN = 0xF000
_PLAYED_AS = "boxing.bin"  # ALE plays any image that has a game's name
_COLOR_LINES = 256
_LINES, _PAL_LINES = 262, 312


class Colors(NamedTuple):
    """ALE's color of each byte of the screen."""

    grey: np.ndarray  # uint8 [256, 1]
    rgb: np.ndarray  # uint8 [256, 3]


class Begin(NamedTuple):
    """A state in which an episode begins."""

    start: snapshot.Start
    action: int  # the last one
    frames: int
    lives: int


def open_ale(image: Path, seed: int = 0) -> Any:
    """Return ALE with a game that starts, without sticky actions.

    Raises ConfigError for an image that ALE does not load: ALE would end the process.
    """
    try:
        from ale_py import ALEInterface, LoggerMode
    except ImportError as error:
        raise MissingExtraError("a start state of an Atari game", "atari") from error
    if not _loads(image):
        raise ConfigError("game", image.stem, "one that ale-py loads")
    ALEInterface.setLoggerMode(LoggerMode.Error)
    ale = ALEInterface()
    ale.setInt("random_seed", seed)
    ale.setFloat("repeat_action_probability", 0.0)
    ale.loadROM(str(image))
    return ale


def known_as(image: Path) -> str | None:
    """Return the game as which ALE knows an image by its checksum, or None."""
    from ale_py import ALEInterface

    return ALEInterface.isSupportedROM(str(image))


def _loads(image: Path) -> bool:
    """Return whether ALE plays an image: it knows the checksum, or the game by the file's name."""
    from ale_py import roms

    either = image, Path(roms.__file__).parent / image.name
    return any(path.is_file() and known_as(path) for path in either)


def choose(ale: Any, mode: int | None, difficulty: int | None) -> None:
    """Set the game's mode and difficulty; None keeps its own. Raises ConfigError for others."""
    chosen = (
        ("mode", mode, ale.getAvailableModes(), ale.setMode),
        ("difficulty", difficulty, ale.getAvailableDifficulties(), ale.setDifficulty),
    )
    for name, value, known, choice in chosen:
        if value is not None and value not in known:
            valid = f"one of the game's own ({', '.join(str(int(x)) for x in known)})"
            raise ConfigError(f"env.{name}", value, valid)
        if value is not None:
            choice(value)


def actions(ale: Any, full: bool) -> np.ndarray:
    """Return ALE's numbers of a game's actions, int32 [n]."""
    found = ale.getLegalActionSet() if full else ale.getMinimalActionSet()
    return np.array([action.value for action in found], np.int32)


def starts(ale: Any, image: bytes, name: str, noops: range, fires: bool) -> list[Begin]:
    """Return the states in which an episode begins.

    After each number of idle frames in `noops`; with `fires` FIRE follows, or, where a sticky
    action replaces it, one idle frame more.
    """
    controller, combs = games.controller(name), games.has_combs(name)
    found: list[Begin] = []

    def add(before: np.ndarray, action: int) -> None:
        data, shown = ale.cloneState().serialize(), ale.getScreen()
        start = snapshot.parse(data, image, controller, shown, before, combs)
        found.append(Begin(start, action, ale.getEpisodeFrameNumber(), ale.lives()))

    ale.reset_game()
    before = ale.getScreen().copy()
    for count in range(noops.stop):
        shown = ale.getScreen().copy()
        here = ale.cloneState()
        if count in noops:
            if not fires:
                add(before, 0)
            for action in (FIRE, 0) if fires else ():
                ale.act(action)
                add(shown, action)
                ale.restoreState(here)
        before = shown
        ale.act(0)
    return found


def _color_program(lines: int) -> bytes:
    """Return an image that shows each even color on a line of its own, twice in a frame."""
    code = bytearray([0x78, 0xD8, 0xA2, 0xFF, 0x9A])  # SEI CLD LDX #$FF TXS
    again = _ORIGIN + len(code)
    code += bytes([0xA9, 2, 0x85, 0, *[0x85, 2] * 3, 0xA9, 0, 0x85, 0])  # three lines of VSYNC
    code += bytes([0xA2, 0, 0xA0, 0, 0x85, 2, 0x86, 9, 0xE8, 0xE8, 0x88, 0xD0, 0xF7])  # STX COLUBK
    code += bytes([0xA0, lines - _COLOR_LINES - 3, 0x85, 2, 0x88, 0xD0, 0xFB])  # STA WSYNC
    code += bytes([0x4C, again & 0xFF, again >> 8])
    rom = bytearray(4096)
    rom[: len(code)] = code
    rom[-4:] = bytes([_ORIGIN & 0xFF, _ORIGIN >> 8] * 2)
    return bytes(rom)


@functools.cache
def colors(pal: bool) -> Colors:
    """Return ALE's colors of an NTSC or of a PAL set; a frame of odd lines has PAL's odd bytes."""
    grey, rgb = np.zeros((256, 1), np.uint8), np.zeros((256, 3), np.uint8)
    for lines in (_PAL_LINES, _PAL_LINES + 1) if pal else (_LINES,):
        with tempfile.TemporaryDirectory() as folder:
            path = Path(folder) / _PLAYED_AS
            path.write_bytes(_color_program(lines))
            ale = open_ale(path)
            ale.act(0)
        color = ale.getScreen()[:, 80]
        grey[color] = ale.getScreenGrayscale().reshape(len(color), -1)[:, 80, None]
        rgb[color] = ale.getScreenRGB()[:, 80]
    return Colors(grey, rgb)
