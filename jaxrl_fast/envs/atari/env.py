"""Atari 2600 games on the device, "atari:Pong": machine, preprocessing, episodes.

Settings and episodes are those of `ale:` (`envs.host.ale_adapter`): equal actions give equal
observations, rewards and ends.
"""

from __future__ import annotations

import dataclasses
import functools
from typing import Any, NamedTuple

import jax
import jax.numpy as jnp
import numpy as np

from jaxrl_fast import tree
from jaxrl_fast.envs import wrappers
from jaxrl_fast.envs.api import LAST, Drawing, Env
from jaxrl_fast.envs.atari import controls, machine, outcomes, preprocess
from jaxrl_fast.envs.atari.controls import Controls
from jaxrl_fast.envs.atari.decode import Rom
from jaxrl_fast.envs.atari.outcomes import Rules
from jaxrl_fast.envs.atari.state import WIDTH, Machine
from jaxrl_fast.envs.resets import OnEnd
from jaxrl_fast.errors import ConfigError
from jaxrl_fast.fields import setting
from jaxrl_fast.ops import lowering
from jaxrl_fast.spaces import Box, Discrete
from jaxrl_fast.types import EnvSpec, Lasting, Outcome

_FRAMES_A_SECOND = 60
_UNROLLED = 4  # frames of a step without a loop: a loop is more launches
_LARGER = 2  # times that `render` enlarges a screen
_OWN = ("action_repeat", "sticky_actions", "time_limit")  # common settings that the game's replace


class Game(NamedTuple):
    """Games, [N]."""

    machine: Machine
    controls: Controls
    pooled: jax.Array  # uint8 [N, H, W, C]: maximum of the last two frames of a step
    action: jax.Array  # int32: ALE's number of the last frame's action
    frames: jax.Array  # int32, of the episode, idle ones included
    lives: jax.Array  # int32


class Life(NamedTuple):
    """A game that goes on when a life ends an episode."""

    game: Game
    obs: jax.Array
    over: jax.Array  # bool: the game itself is over


class Console(NamedTuple):
    """Tables of one game in NumPy: leaves of the environment, arguments of its programs."""

    rom: Rom
    rules: Rules
    starts: Game  # [P]
    first: jax.Array  # uint8 [P, height, width, C]: observations of the starts
    actions: jax.Array  # int32 [n]: ALE's numbers of the agent's actions
    colors: jax.Array  # uint8 [256, C]
    rgb: jax.Array  # uint8 [256, 3], for pictures
    zero: jax.Array  # int32 0, for `preprocess.resize`


@tree.settings
class AtariEnv(Env):
    """An Atari game; see `envs.atari.source.make`."""

    name: str
    console: Any = dataclasses.field(repr=False)
    rows: int = 210  # lines of the screen
    num_actions: int = 18
    fires: bool = False  # FIRE begins an episode
    frameskip: int = setting(4, low=1)
    """frames for which an action is held"""
    maxpool: bool = setting(True)
    """maximum of the last two frames"""
    grayscale: bool = setting(True)
    """one grey channel instead of three colors"""
    img_height: int = setting(84, low=1)
    """lines of a picture"""
    img_width: int = setting(84, low=1, high=WIDTH)
    """columns of a picture"""
    noop_max: int = setting(30, low=0)
    """fewer idle frames than this begin a game"""
    repeat_action_probability: float = setting(0.0, low=0, high=1)
    """probability that a frame repeats the last action instead"""
    full_action_space: bool = setting(False)
    """every action of the controller"""
    use_fire_reset: bool = setting(True)
    """FIRE begins a game that has it"""
    episodic_life: bool = setting(False)
    """a lost life ends the learner's episode, not the game"""
    max_num_frames_per_episode: int = setting(108_000, low=1)
    """frames until an episode is cut"""
    mode: int | None = setting(None, low=0, none="the game's own")
    """ALE's number of the mode"""
    difficulty: int | None = setting(None, low=0, none="the game's own")
    """ALE's number of the difficulty"""
    on_cpu: bool = setting(False)
    """run on a CPU, slowly; `ale:` is the way to train there"""
    stack: int = 4
    reward_scale: float = 1.0
    reward_clip: float | None = dataclasses.field(default=1.0, metadata={"static": False})

    @property
    def spec(self) -> EnvSpec:
        shape = self.img_height, self.img_width, 1 if self.grayscale else 3
        most = self.max_num_frames_per_episode // self.frameskip + 1
        picture = Box(0, 255, shape, np.uint8)
        return EnvSpec(self.name, picture, Discrete(self.num_actions), most, self.stack)

    @property
    def resets(self) -> OnEnd:
        return OnEnd()

    @property
    def _tables(self) -> Console:
        return jax.tree.map(jnp.asarray, self.console)

    def on_device(self, parts: int = 1) -> AtariEnv:
        """Return the environment; raises ConfigError on a CPU without `on_cpu`."""
        if lowering.platform() == "cpu" and not self.on_cpu:
            slow = "the emulator in JAX is 20 to 80 times as slow as ALE there"
            valid = f"True on a CPU: {slow}; ale:{self.name} is for CPUs"
            raise ConfigError("env.on_cpu", False, valid)
        return self

    def for_evaluation(self) -> AtariEnv:
        """Return the game itself: whole games, its own rewards."""
        own = dict(episodic_life=False, reward_scale=1.0, reward_clip=None)
        return dataclasses.replace(self, **own)

    def draw_reset(self, key: jax.Array, shape: tuple[int, ...], t: jax.Array = LAST) -> jax.Array:
        """Draw which of the start states begins, int32.

        As ALE draws it: a number below `noop_max`, less 1 (at least 0) where FIRE follows.
        """
        if not self.fires:
            return jax.random.randint(key, shape, 0, self.console.first.shape[0])
        first, second = jax.random.split(key)
        idle = jax.random.randint(first, shape, 0, self.console.first.shape[0] // 2 + 1)
        sticks = jax.random.uniform(second, shape) < self.repeat_action_probability
        return 2 * jnp.maximum(idle - 1, 0) + sticks.astype(jnp.int32)

    def reset(self, noise: jax.Array) -> tuple[Any, jax.Array]:
        tables = self._tables
        game, obs = tree.take((tables.starts, tables.first), noise)
        if not self.episodic_life:
            return game, obs
        return Lasting(Life(game, obs, jnp.zeros(noise.shape, bool))), obs

    def restart(self, noise: jax.Array, state: Any) -> tuple[Any, jax.Array]:
        fresh, obs = self.reset(noise)
        if not self.episodic_life:
            return fresh, obs
        life = tree.where(state.value.over, fresh.value, state.value)
        return Lasting(life), life.obs

    def draw_step(self, key: jax.Array, num_steps: int, num_envs: int, t: jax.Array) -> jax.Array:
        """Draw uniforms for sticky actions, [T, B, frameskip]."""
        return jax.random.uniform(key, (num_steps, num_envs, self.frameskip), jnp.float32)

    def transition(self, noise: jax.Array, state: Any, action: jax.Array) -> tuple[Any, Outcome]:
        """Play every frame of the step, also those after the game's end, which do not count."""
        game, tables = state.value.game if self.episodic_life else state, self._tables
        (held, last), inputs = self._press(game, tables.actions[action], noise.T)
        m, rams, earlier = machine.frames(game.machine, inputs, tables.rom)
        judged, draws = self._judge(game, rams)
        shade = functools.partial(preprocess.shade, colors=tables.colors)
        pooled = tree.where(draws[-1], shade(machine.last_screens(m)[:, : self.rows]), game.pooled)
        if self.maxpool and self.frameskip > 1:
            before = shade(earlier[:, : self.rows])
            pooled = jnp.maximum(pooled, tree.where(draws[-2], before, jnp.zeros_like(before)))
        obs = self._observe(pooled)
        # an opcode that is not supported: the picture stands still
        stuck = (m.bad > 0) & ~judged.over
        left, cut = judged.lives, (judged.cut | stuck) & ~judged.over
        ended = judged.over | cut
        terminated = judged.over | ((left < game.lives) & ~cut if self.episodic_life else False)
        score = judged.reward.astype(jnp.float32)
        reward = score * self.reward_scale
        if self.reward_clip is not None:
            reward = jnp.clip(reward, -self.reward_clip, self.reward_clip)
        info = {
            "lives": jnp.where(ended, jnp.nan, left.astype(jnp.float32)),
            "unsupported": stuck.astype(jnp.float32),
        }
        outcome = Outcome(obs, reward, terminated, cut, info, score, ended)
        game = Game(m, held, pooled, last, judged.frames, left)
        return (Lasting(Life(game, obs, ended)) if self.episodic_life else game), outcome

    def _press(self, game: Game, chosen: jax.Array, uniforms: jax.Array) -> tuple:
        """Return controllers and action after the step, and the chips' inputs of each frame."""

        def frame(carry: tuple[Controls, jax.Array], uniform: jax.Array) -> tuple:
            action = jnp.where(uniform < self.repeat_action_probability, carry[1], chosen)
            held, inputs = controls.press(carry[0], action)
            return (held, action), inputs

        return jax.lax.scan(frame, (game.controls, game.action), uniforms, unroll=_UNROLLED)

    def _judge(self, game: Game, rams: jax.Array) -> tuple[_Judged, jax.Array]:
        """Return the outcome of the frames, and which of them [frameskip, N] the picture shows.

        A frame in which the game ends leaves the picture as it was, as in `ale:`.
        """
        rules = self._tables.rules
        read = jax.vmap(functools.partial(outcomes.read, rules))

        def frame(old: _Judged, ram: jax.Array) -> tuple[_Judged, jax.Array]:
            on = ~(old.over | old.cut)
            found = read(ram, old.lives, old.score)
            frames = old.frames + on
            over = old.over | (on & found.over)
            cut = old.cut | (on & (frames > self.max_num_frames_per_episode))
            reward = old.reward + jnp.where(on, outcomes.reward(rules, old.score, found), 0)
            lives = jnp.where(on, found.lives, old.lives)
            return _Judged(found.score, lives, frames, reward, over, cut), on & ~over & ~cut

        score = jax.vmap(functools.partial(outcomes.score, rules))(game.machine.ram)
        none = jnp.zeros_like(game.lives)
        begun = _Judged(score, game.lives, game.frames, none, none > 0, none > 0)
        return jax.lax.scan(frame, begun, rams, unroll=_UNROLLED)

    def _observe(self, pooled: jax.Array) -> jax.Array:
        return preprocess.resize(pooled, self.img_height, self.img_width, self._tables.zero)

    @property
    def drawing(self) -> Drawing:
        return Drawing(self.render, self.frameskip / _FRAMES_A_SECOND)

    def render(self, state: Any) -> np.ndarray:
        """Return the screen, uint8 [2 * rows, 4 * 160, 3]: a pixel is twice as wide as tall."""
        game = state.value.game if self.episodic_life else state
        screens, turn = np.asarray(game.machine.screens), int(game.machine.turn)
        shown = self.console.rgb[screens[turn, : self.rows]]
        return shown.repeat(_LARGER, 0).repeat(2 * _LARGER, 1)


class _Judged(NamedTuple):
    """A step's outcome, frame by frame."""

    score: jax.Array
    lives: jax.Array
    frames: jax.Array
    reward: jax.Array  # int32
    over: jax.Array
    cut: jax.Array


@wrappers.wrap.register
def _wrap(env: AtariEnv, **common: Any) -> AtariEnv:
    """Return `env` with the common settings that it has itself."""
    for name in _OWN:
        if common.get(name, wrappers.COMMON[name]) != wrappers.COMMON[name]:
            instead = "frameskip, repeat_action_probability or max_num_frames_per_episode"
            valid = f"{wrappers.COMMON[name]} for {env.name}: use {instead}"
            raise ConfigError(f"env.{name}", common[name], valid)
    kept = {name: value for name, value in common.items() if name not in _OWN}
    checked = wrappers.Common(**kept)
    return dataclasses.replace(env, **{name: getattr(checked, name) for name in kept})
