"""The differences between games: the image, the controllers, one switch of ALE's."""

from __future__ import annotations

import os
from pathlib import Path

from jaxrl_fast.envs.atari import controls
from jaxrl_fast.errors import ConfigError, MissingExtraError, nearest

FOLDER = "ALE_ROMS_DIR"  # environment variable: a folder of images, as "pong.bin"
# Found by comparing with ALE: an action that turns a paddle changes its snapshot.
_CONTROLLERS = dict.fromkeys(("backgammon", "breakout", "casino", "kaboom"), controls.PADDLES)
_CONTROLLERS |= {
    "blackjack": controls.FIRST_PADDLES, "pong": controls.SWAPPED_PADDLES,
    "lost_luggage": controls.JOYSTICK_WITHOUT_FIRE, "skiing": controls.JOYSTICK_WITHOUT_FIRE,
    "surround": controls.SECOND_JOYSTICK, "wizard_of_wor": controls.SECOND_JOYSTICK,
}  # fmt: skip
# without HMOVE's black pixels
_NO_COMBS = ("asteroids", "battle_zone", "darkchambers", "ms_pacman")


def snake_case(name: str) -> str:
    """Return "space_invaders" for "SpaceInvaders", "atari:SpaceInvaders" or "space_invaders"."""
    bare = name.rpartition(":")[2]
    return "".join(f"_{c.lower()}" if c.isupper() and i else c.lower() for i, c in enumerate(bare))


def rom_path(name: str) -> Path:
    """Return the file of a game's image.

    Looks in the folder that the environment variable ALE_ROMS_DIR names, else in the installed
    ale-py.
    """
    folder = os.environ.get(FOLDER)
    if folder is None:
        try:
            from ale_py import roms
        except ImportError as error:
            raise MissingExtraError("an Atari image", "atari") from error
        folder = str(Path(roms.__file__).parent)
    images = {path.stem: path for path in sorted(Path(folder).glob("*.bin"))}
    wanted = snake_case(name).replace("_", "")
    for game, path in images.items():
        if game.replace("_", "") == wanted:
            return path
    prefix = name[:name.rfind(":") + 1]
    hint = nearest(prefix + snake_case(name), [prefix + game for game in images])
    raise ConfigError("game", name, f"one whose image is {folder}/{snake_case(name)}.bin{hint}")


def controller(name: str) -> int:
    """Return the kind of controller, as `controls.Controls.kind` has it."""
    return _CONTROLLERS.get(snake_case(name), controls.JOYSTICK)


def has_combs(name: str) -> bool:
    """Return whether HMOVE blackens eight pixels of a line."""
    return snake_case(name) not in _NO_COMBS
