"""Breakout-MinAtar, batched: the rules of gymnax's MinBreakout (Young & Tian 2019).

A `vmap` of gymnax's function writes its observation by four scatters, which a CPU runs one
environment at a time. Comparing cells with coordinates takes half the time a step and half the time
to compile, with equal steps.
"""

from __future__ import annotations

from typing import NamedTuple

import jax
import jax.numpy as jnp
import numpy as np

from jaxrl_fast import tree
from jaxrl_fast.envs.api import Env
from jaxrl_fast.envs.native import draw
from jaxrl_fast.fields import setting
from jaxrl_fast.spaces import Box, Discrete
from jaxrl_fast.tree import summary
from jaxrl_fast.types import EnvSpec, Outcome

LEFT, RIGHT = 1, 3  # of MinAtar's six actions: none, left, up, right, down, fire


class State(NamedTuple):
    """All [B]; rows count from the top, columns from the left."""

    ball_y: jax.Array  # int32
    ball_x: jax.Array
    # int32, two bits: 0 up-left, 1 up-right, 2 down-right, 3 down-left. `^ 1` reflects at a side
    # wall, `^ 3` at the ceiling or a brick, `^ 2` reverses.
    direction: jax.Array
    paddle: jax.Array
    bricks: jax.Array  # bool [B, 3, 10]: rows 1 to 3
    strike: jax.Array  # bool: the ball hit a brick in the last step and passes the next one
    last_y: jax.Array
    last_x: jax.Array
    time: jax.Array

    __repr__ = summary


@tree.settings
class Breakout(Env):
    """Break bricks with a ball; reward 1 a brick. Ends when the ball is missed.

    Observation uint8 [10, 10, 4] of zeros and ones (paddle, ball, trail, bricks); actions {0: none,
    1: left, 2: right} or MinAtar's six.
    """

    max_steps_in_episode: int = setting(1000, low=1)
    """steps after which an episode is truncated"""
    use_minimal_action_set: bool = True
    """three actions instead of MinAtar's six"""

    @property
    def spec(self) -> EnvSpec:
        obs = Box(0.0, 1.0, (10, 10, 4), jnp.uint8)
        return EnvSpec(
            "Breakout-MinAtar", obs, Discrete(3 if self.use_minimal_action_set else 6),
            self.max_steps_in_episode
        )

    def draw_reset(self, key, shape):
        return jax.random.bernoulli(key, 0.5, shape)  # the side from which the ball starts

    def reset(self, noise):
        zero = jnp.zeros(noise.shape, jnp.int32)
        ball_x = jnp.where(noise, 9, 0).astype(jnp.int32)
        bricks = jnp.ones((*noise.shape, 3, 10), bool)
        direction = jnp.where(noise, 3, 2).astype(jnp.int32)
        state = State(zero + 3, ball_x, direction, zero + 4, bricks,
                      zero > 0, zero + 3, ball_x, zero)
        # Both first observations are constants of the program.
        left, right = (jnp.asarray(_first(x)) for x in (0, 9))
        return state, jnp.where(noise[:, None, None, None], right, left)

    def transition(self, noise, state, action):
        left, right = (1, 2) if self.use_minimal_action_set else (LEFT, RIGHT)
        s = state
        paddle = jnp.clip(s.paddle + (action == right) - (action == left), 0, 9)

        # The ball moves, and is reflected at the side walls and the ceiling.
        x = s.ball_x + jnp.where((s.direction == 1) | (s.direction == 2), 1, -1)
        y = s.ball_y + jnp.where(s.direction < 2, -1, 1)
        direction = s.direction ^ jnp.where((x < 0) | (x > 9), 1, 0)
        ceiling = y < 0
        direction = direction ^ jnp.where(ceiling, 3, 0)
        x, y = jnp.clip(x, 0, 9), jnp.maximum(y, 0)

        # It breaks a brick, unless it broke one on the step before.
        bricks = _word(s.bricks)
        here = jnp.where((y >= 1) & (y <= 3), 1 << jnp.clip(10 * (y - 1) + x, 0, 29), 0)
        touched = bricks & here != 0
        broken = touched & ~s.strike
        bricks = bricks & ~jnp.where(broken, here, 0)
        y = jnp.where(broken, s.ball_y, y)
        direction = direction ^ jnp.where(broken, 3, 0)

        # On the bottom row the paddle returns it: straight from its old column, reversed from its
        # new one.
        bottom = ~touched & (y == 9)
        bricks = jnp.where(bottom & (bricks == 0), ALL, bricks)
        straight = bottom & (s.ball_x == paddle)
        back = bottom & ~straight & (x == paddle)
        direction = direction ^ jnp.where(straight, 3, jnp.where(back, 2, 0))
        y = jnp.where(straight | back, s.ball_y, y)
        terminated = bottom & ~straight & ~back

        time = s.time + 1
        state = State(y, x, direction, paddle, _bricks(bricks), touched, s.ball_y, s.ball_x, time)
        truncated = time >= self.max_steps_in_episode
        return state, Outcome(_observe(state), broken.astype(jnp.float32), terminated, truncated)

    def render(self, state):
        return draw.grid(np.asarray(_observe_one(state)))


ALL = (1 << 30) - 1
PLACES = np.arange(30, dtype=np.int32)


def _word(bricks: jax.Array) -> jax.Array:
    """Return bricks [B, 3, 10] as bits, int32 [B]: elementwise in B, few launches on a GPU."""
    return jnp.sum(bricks.reshape(-1, 30).astype(jnp.int32) << PLACES, axis=1)


def _bricks(word: jax.Array) -> jax.Array:
    return (word[:, None] >> PLACES & 1).astype(bool).reshape(-1, 3, 10)


def _observe(state: State) -> jax.Array:
    """Return uint8 [B, 10, 10, 4]; a cell's four channels are the bytes of one word."""
    cells = jnp.arange(100).reshape(10, 10)

    def at(y, x, channel):
        return jnp.where(cells == (10 * y + x)[:, None, None], 1 << (8 * channel), 0)

    bricks = jnp.pad(state.bricks, ((0, 0), (1, 6), (0, 0))).astype(jnp.int32) << 24
    things = at(9, state.paddle, 0) | at(state.ball_y, state.ball_x, 1)
    things |= at(state.last_y, state.last_x, 2)
    return jax.lax.bitcast_convert_type(things | bricks, jnp.uint8)


def _first(ball_x: int) -> np.ndarray:
    """Return an episode's first observation, uint8 [10, 10, 4]."""
    obs = np.zeros((10, 10, 4), np.uint8)
    obs[9, 4, 0] = obs[3, ball_x, 1] = obs[3, ball_x, 2] = 1
    obs[1:4, :, 3] = 1
    return obs


@jax.jit
def _observe_one(state: State) -> jax.Array:
    return _observe(jax.tree.map(lambda x: x[None], state))[0]
