"""The source "atari:GAME": tables and start states of a game, from its image and from ALE."""

from __future__ import annotations

import dataclasses
import functools
from pathlib import Path
from typing import Any

import numpy as np

from jaxrl_fast import runtime
from jaxrl_fast.envs.atari import ale, games, outcomes, preprocess, snapshot
from jaxrl_fast.envs.atari.env import AtariEnv, Console, Game
from jaxrl_fast.envs.sources import Source
from jaxrl_fast.errors import ConfigError
from jaxrl_fast.fields import about, check_settings

PREFIX = "atari:"
INSTALL = "pip install 'jaxrl_fast[atari]'"
_HELD = ("name", "console", "rows", "num_actions", "fires")
_COMMON = ("stack", "reward_scale", "reward_clip")
_FIELDS = {f.name: f for f in dataclasses.fields(AtariEnv)}
_SETTINGS = {name: f for name, f in _FIELDS.items() if name not in (*_HELD, *_COMMON)}


@functools.cache
def defaults(name: str) -> dict[str, Any]:
    """Return {setting: default}, those of `ale:` among them."""
    games.rom_path(name)
    return {n: f.default for n, f in _SETTINGS.items()} | {"stack": 4, "reward_clip": 1.0}


def make(name: str, **settings: Any) -> AtariEnv:
    """Return the environment of a game, for instance "atari:Pong".

    Raises ConfigError for an image that is missing or is not the game's, a mode or difficulty that
    the game lacks, and a game without outcomes. Starts no backend of JAX; with `on_cpu`, if none
    runs, XLA gets a flag.
    """
    env = AtariEnv(name.removeprefix(PREFIX), None, **settings)
    check_settings(env, "env.")
    if env.on_cpu:
        runtime.request_loop_kernels()  # four times as fast as a hundred kernels an instruction
    path = games.rom_path(name)
    game = path.stem
    rules = outcomes.rules(game)
    emulator = ale.open_ale(_check_image(path, game))
    ale.choose(emulator, env.mode, env.difficulty)
    actions = ale.actions(emulator, env.full_action_space)
    fires = env.use_fire_reset and ale.FIRE in actions
    idle = range(max(env.noop_max - fires, 1))
    found = ale.starts(emulator, path.read_bytes(), game, idle, fires)
    m, c, rom = snapshot.batch([begin.start for begin in found])
    rows, _ = emulator.getScreenDims()
    if env.img_height > rows:
        raise ConfigError("env.img_height", env.img_height, f"at most the screen's {rows} lines")
    shown = ale.colors(bool(m.view.pal[0]))
    colors = shown.grey if env.grayscale else shown.rgb
    pooled = colors[m.screens[:, 0, :rows]]
    action, frames, lives = np.array([begin[1:] for begin in found], np.int32).T
    first = preprocess.resize(pooled, env.img_height, env.img_width)
    starts = Game(m, c, pooled, action, frames, lives)
    console = Console(rom, rules, starts, first, actions, colors, shown.rgb, np.int32(0))
    found = dict(console=console, rows=rows, num_actions=len(actions), fires=fires)
    return dataclasses.replace(env, **found)


def _check_image(path: Path, game: str) -> Path:
    """Return the image's path; raises ConfigError unless ALE knows it as the game's."""
    found = ale.known_as(path)
    if found != game:
        what = f"an image of {found}" if found else "an image of another checksum"
        raise ConfigError(str(path), what, f"the image of {game} that ale-py supports")
    return path


SOURCE = Source(
    make=make, settings=defaults, about=lambda name: about(AtariEnv),
    prefix=PREFIX, package="ale_py", install=INSTALL,
    family="atari:Pong and the other games of docs/atari.md, on the device",
)  # fmt: skip
