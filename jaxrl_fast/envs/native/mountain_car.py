"""MountainCar-v0 and MountainCarContinuous-v0, batched: Moore (1990), Gymnasium's constants."""

from __future__ import annotations

import math

import jax
import jax.numpy as jnp
import numpy as np

from jaxrl_fast import tree
from jaxrl_fast.envs.api import Env
from jaxrl_fast.envs.native import draw
from jaxrl_fast.fields import setting
from jaxrl_fast.spaces import Box, Discrete
from jaxrl_fast.types import EnvSpec, Outcome


class _Car(Env):
    """The common part: state ((position, velocity) [B, 2], steps [B]), observation [B, 2]."""

    def draw_reset(self, key, shape):
        position = jax.random.uniform(key, shape, jnp.float32, minval=-0.6, maxval=-0.4)
        return jnp.stack([position, jnp.zeros_like(position)], axis=-1)

    def reset(self, noise):
        return (noise, jnp.zeros(noise.shape[:-1], jnp.int32)), noise

    def _observation_space(self) -> Box:
        return Box((self.min_position, -self.max_speed), (self.max_position, self.max_speed), (2,))

    def _move(self, car: jax.Array, acceleration: jax.Array) -> tuple[jax.Array, jax.Array]:
        """Return (position, velocity) after a step, without the left wall's collision."""
        position, velocity = car[..., 0], car[..., 1]
        velocity = velocity + acceleration - jnp.cos(3 * position) * self.gravity
        velocity = jnp.clip(velocity, -self.max_speed, self.max_speed)
        return jnp.clip(position + velocity, self.min_position, self.max_position), velocity

    def _finish(self, position, velocity, time, reward):
        """Finish a transition; reward: a function of `terminated`."""
        terminated = (position >= self.goal_position) & (velocity >= self.goal_velocity)
        time = time + 1
        car = jnp.stack([position, velocity], axis=-1)
        truncated = time >= self.max_steps_in_episode
        return (car, time), Outcome(car, reward(terminated), terminated, truncated)

    def render(self, state):
        position = float(state[0][0])
        low, high = self.min_position, self.max_position

        def height(x):
            return 0.45 * np.sin(3 * x) + 0.55

        canvas = draw.Canvas((low, high), (-0.05, 1.25), 360, 260)
        xs = np.linspace(low, high, 100)
        canvas.line(list(zip(xs, height(xs), strict=True)), draw.BLACK, 0.012)
        goal = float(self.goal_position)
        canvas.line([(goal, height(goal)), (goal, height(goal) + 0.2)], draw.BLACK, 0.008)
        canvas.polygon(
            [(goal, height(goal) + 0.2), (goal + 0.07, height(goal) + 0.17),
             (goal, height(goal) + 0.14)], draw.ORANGE
        )
        slope = math.atan(0.45 * 3 * math.cos(3 * position))
        along, up = (math.cos(slope), math.sin(slope)), (-math.sin(slope), math.cos(slope))

        def at(a, u):
            return (position + a * along[0] + u * up[0],
                    height(position) + a * along[1] + u * up[1])

        canvas.polygon([at(-0.07, 0.03), at(0.07, 0.03), at(0.07, 0.09), at(-0.07, 0.09)],
                       draw.BLUE)
        for a in (-0.04, 0.04):
            canvas.disc(at(a, 0.025), 0.025, draw.BLACK)
        return canvas.image()


@tree.settings
class MountainCar(_Car):
    """Rock an underpowered car up a hill; reward -1 a step until the flag.

    Observation float32 [2] (position, velocity), actions {0: left, 1: none, 2: right}.
    """

    min_position: float = setting(-1.2, static=True)
    """position of the wall on the left"""
    max_position: float = setting(0.6, static=True)
    """right end of the road"""
    max_speed: float = setting(0.07, low=0, open_low=True, static=True)
    """highest speed"""
    goal_position: float = 0.5
    """position of the flag"""
    goal_velocity: float = 0.0
    """lowest velocity that counts at the flag"""
    force: float = 0.001
    """change of velocity by an action"""
    gravity: float = 0.0025
    """change of velocity by the slope"""
    max_steps_in_episode: int = setting(200, low=1)
    """steps after which an episode is truncated"""

    @property
    def spec(self) -> EnvSpec:
        return EnvSpec("MountainCar-v0", self._observation_space(), Discrete(3),
                       self.max_steps_in_episode)

    def transition(self, noise, state, action):
        car, time = state
        position, velocity = self._move(car, (action - 1) * self.force)
        velocity = jnp.where((position == self.min_position) & (velocity < 0), 0.0, velocity)
        return self._finish(position, velocity, time, lambda terminated: -jnp.ones_like(position))


@tree.settings
class MountainCarContinuous(_Car):
    """The same hill with a throttle; reward 100 at the flag minus 0.1 times the squared action.

    Observation float32 [2] (position, velocity), action float32 [1] in [-1, 1].
    """

    min_action: float = setting(-1.0, static=True)
    """strongest throttle to the left"""
    max_action: float = setting(1.0, static=True)
    """strongest throttle to the right"""
    min_position: float = setting(-1.2, static=True)
    """position of the wall on the left"""
    max_position: float = setting(0.6, static=True)
    """right end of the road"""
    max_speed: float = setting(0.07, low=0, open_low=True, static=True)
    """highest speed"""
    goal_position: float = 0.45
    """position of the flag"""
    goal_velocity: float = 0.0
    """lowest velocity that counts at the flag"""
    power: float = 0.0015
    """change of velocity by a full throttle"""
    gravity: float = 0.0025
    """change of velocity by the slope"""
    max_steps_in_episode: int = setting(999, low=1)
    """steps after which an episode is truncated"""

    @property
    def spec(self) -> EnvSpec:
        action = Box(self.min_action, self.max_action, (1,))
        return EnvSpec("MountainCarContinuous-v0", self._observation_space(),
                       action, self.max_steps_in_episode)

    def transition(self, noise, state, action):
        car, time = state
        action = action[..., 0]
        throttle = jnp.clip(action, self.min_action, self.max_action)
        position, velocity = self._move(car, throttle * self.power)
        # gymnax stops a car that rolls back behind the goal, Gymnasium one that hits the left wall;
        # both clip the position at the wall. This follows gymnax, with which JAX papers compare.
        velocity = jnp.where((position >= self.goal_position) & (velocity < 0), 0.0, velocity)

        def reward(terminated):  # of the raw action, as in Gymnasium
            return -0.1 * action**2 + 100.0 * terminated

        return self._finish(position, velocity, time, reward)
