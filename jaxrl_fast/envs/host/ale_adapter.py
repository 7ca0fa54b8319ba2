"""Atari 2600 games by ale-py's vector environment in C++, "ale:Pong"; it releases the GIL.

The preprocessing of Mnih et al. (2015) by its names: an action is held for `frameskip` frames, the
maximum of the last two frames is taken (`maxpool`), made grey and 84 x 84; up to `noop_max` idle
frames begin a game. Rewards are clipped, and a lost life may end an episode (`episodic_life`), for
the learner alone. `repeat_action_probability` 0.25 gives the sticky actions of Machado et al.
(2018).
"""

from __future__ import annotations

import dataclasses
import functools
from typing import Any

import numpy as np

from jaxrl_fast.envs.exact import ends, exact
from jaxrl_fast.envs.host.api import HostEnv, guarded
from jaxrl_fast.envs.host.gymnasium_spaces import own_form
from jaxrl_fast.envs.host.vector import HostStep, Lives, Vector, put
from jaxrl_fast.envs.own_spaces import Own
from jaxrl_fast.envs.sources import Source
from jaxrl_fast.envs.suggest import suggest
from jaxrl_fast.errors import ConfigError
from jaxrl_fast.fields import about, setting
from jaxrl_fast.spaces import Box
from jaxrl_fast.types import EnvSpec

PREFIX = "ale:"
INSTALL = "pip install 'jaxrl_fast[atari]'"


def rom_of(name: str) -> str:
    """ "ale:SpaceInvaders" or "ale:space_invaders" -> "space_invaders"."""
    from ale_py import roms

    known = roms.get_all_rom_ids()
    bare = name.removeprefix(PREFIX).replace("_", "").lower()
    rom = next((rom for rom in known if rom.replace("_", "") == bare), None)
    if rom is None:
        games = [PREFIX + "".join(word.capitalize() for word in known_rom.split("_"))
                 for known_rom in known]
        raise ConfigError("environment", name, f"a game whose ROM ale-py has{suggest(name, games)}")
    return rom


def make(name: str, **settings: Any) -> AleEnv:
    return AleEnv(name=name.removeprefix(PREFIX), rom=rom_of(name), **settings)


@dataclasses.dataclass(frozen=True, kw_only=True, repr=False)
class AleEnv(HostEnv):
    """An Atari game; `num_threads` 0 is a core each."""

    name: str
    rom: str
    frameskip: int = setting(4, low=1)
    """frames for which an action is held"""
    maxpool: bool = True
    """maximum of the last two frames"""
    grayscale: bool = True
    """one grey channel instead of three colors"""
    img_height: int = setting(84, low=1)
    """lines of a picture"""
    img_width: int = setting(84, low=1)
    """columns of a picture"""
    noop_max: int = setting(30, low=0)
    """fewer idle frames than this begin a game"""
    repeat_action_probability: float = setting(0.0, low=0, high=1)
    """probability that a frame repeats the last action instead"""
    full_action_space: bool = False
    """every action of the controller"""
    use_fire_reset: bool = True
    """FIRE begins a game that has it"""
    episodic_life: bool = False
    """a lost life ends the learner's episode, not the game"""
    max_num_frames_per_episode: int = setting(108_000, low=1)
    """frames until an episode is cut"""
    num_threads: int = setting(0, low=0)
    """threads of the emulators; 0: one a core"""

    def _vector(self, num_envs: int, autoreset_mode: str = "SameStep") -> Any:
        from ale_py.vector_env import AtariVectorEnv

        own = {name: getattr(self, name) for name in _OWN if name != "episodic_life"}
        own |= {"stack_num": 1, "reward_clipping": False, "autoreset_mode": autoreset_mode}
        return AtariVectorEnv(self.rom, num_envs, **own)

    @guarded
    def _spec(self):
        env = self._vector(1)
        try:
            picture = Box(0, 255, (self.img_height, self.img_width, 1 if self.grayscale else 3),
                          np.uint8)
            limit = -(-self.max_num_frames_per_episode // self.frameskip)
            action = own_form(env.single_action_space)
            shape = (1, *picture.shape[: 2 if self.grayscale else 3])
            seen = Own(picture, shape, np.dtype(np.uint8), channels_first=self.grayscale)
            return EnvSpec(self.name, picture, action.space, limit, own_observation=seen,
                           own_action=action)
        finally:
            env.close()

    @guarded
    def _open(self, num_envs, seed, training, render):
        vector = AleVector(self._vector(num_envs), seed, self.spec.observation.shape, self.name)
        return Lives(vector) if training and self.episodic_life else vector


class AleVector(Vector):
    """ale-py's vector; `lives` [B] after the last step."""

    def __init__(self, vector: Any, seed: int, shape: tuple[int, int, int], name: str):
        # stacks of one, whose axis comes first
        self.encode = lambda obs: np.array(obs).reshape(-1, *shape)
        self.vector, self.num_envs = vector, vector.num_envs
        self.seed, self.lives = seed % 2**31, None
        self.decode, self.name = own_form(vector.single_action_space).decode, name

    @guarded
    def reset(self):
        obs, info = self.vector.reset(seed=self.seed)
        self.seed, self.lives, self.shown = None, np.array(info["lives"]), self.encode(obs)
        return self.shown

    @guarded
    def send(self, action):
        self.vector.send(self.decode(action))

    @guarded
    def receive(self):
        obs, reward, terminated, truncated, info = self.vector.recv()
        obs, reward = self.encode(obs), exact(reward, np.float32, "rewards")
        terminated, truncated = ends(terminated, truncated)
        ended = terminated | truncated
        successors = obs
        if ended.any():
            successors = put(obs, ended, self.encode(np.asarray(info["final_obs"])[ended]))
        self.lives, self.shown = np.array(info["lives"]), successors
        # after an end they are the new game's
        lives = {"lives": np.where(ended, np.nan, self.lives)}
        return HostStep(obs, successors, reward, terminated, truncated, reward, ended, info=lives)

    def close(self):
        self.vector.close()


_COMMON = {f.name for f in dataclasses.fields(HostEnv)} | {"name", "rom"}
_OWN = {f.name: f.default for f in dataclasses.fields(AleEnv) if f.name not in _COMMON}


@functools.cache
def defaults(name: str) -> dict[str, Any]:
    rom_of(name)
    return _OWN | {"stack": 4, "reward_clip": 1.0}


SOURCE = Source(
    make=make, settings=defaults, about=lambda name: about(AleEnv), prefix=PREFIX,
    family="ale:Pong and every other game whose ROM ale-py has",
    package="ale_py", install=INSTALL, on_host=True,
)  # fmt: skip
