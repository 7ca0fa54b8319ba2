"""Pendulum-v1, batched: Gymnasium's constants and semi-implicit Euler step."""

from __future__ import annotations

import math

import jax
import jax.numpy as jnp

from jaxrl_fast import tree
from jaxrl_fast.envs.api import Env
from jaxrl_fast.envs.native import draw
from jaxrl_fast.fields import setting
from jaxrl_fast.spaces import Box
from jaxrl_fast.types import EnvSpec, Outcome


@tree.settings
class Pendulum(Env):
    """Swing a pendulum up and hold it; episodes end by the time limit alone.

    Observation float32 [3] (cos, sin of the angle from upright in radians, angular velocity in
    rad/s), action float32 [1] (torque in N m), reward -(angle^2 + 0.1 velocity^2 + 0.001 torque^2)
    with the angle in [-pi, pi).
    """

    max_speed: float = setting(8.0, low=0, open_low=True, static=True)
    """highest angular velocity in rad/s"""
    max_torque: float = setting(2.0, low=0, open_low=True, static=True)
    """highest torque in N m"""
    dt: float = setting(0.05, low=0, open_low=True)
    """seconds of a step"""
    g: float = 10.0
    """acceleration of gravity in m/s^2"""
    m: float = setting(1.0, low=0, open_low=True)
    """mass in kg"""
    l: float = setting(1.0, low=0, open_low=True)  # noqa: E741
    """length in metres"""
    max_steps_in_episode: int = setting(200, low=1)
    """steps after which an episode is truncated"""

    @property
    def spec(self) -> EnvSpec:
        obs = Box((-1.0, -1.0, -self.max_speed), (1.0, 1.0, self.max_speed), (3,))
        action = Box(-self.max_torque, self.max_torque, (1,))
        return EnvSpec("Pendulum-v1", obs, action, self.max_steps_in_episode)

    def draw_reset(self, key, shape):
        physics = jax.random.uniform(key, (*shape, 2), jnp.float32,
                                     minval=-1.0) * jnp.array([math.pi, 1.0], jnp.float32)
        return physics, _observe(physics)

    def reset(self, noise):
        physics, obs = noise
        return (physics, jnp.zeros(physics.shape[:-1], jnp.int32)), obs

    def transition(self, noise, state, action):
        physics, time = state
        theta, speed = physics[..., 0], physics[..., 1]
        torque = jnp.clip(action[..., 0], -self.max_torque, self.max_torque)
        angle = (theta + math.pi) % (2 * math.pi) - math.pi
        reward = -(angle**2 + 0.1 * speed**2 + 0.001 * torque**2)
        weight = 3 * self.g / (2 * self.l) * jnp.sin(theta)
        acceleration = weight + 3.0 / (self.m * self.l**2) * torque
        speed = jnp.clip(speed + acceleration * self.dt, -self.max_speed, self.max_speed)
        physics, time = jnp.stack([theta + speed * self.dt, speed], axis=-1), time + 1
        terminated = jnp.zeros(time.shape, bool)
        return (physics, time), Outcome(_observe(physics), reward, terminated,
                                        time >= self.max_steps_in_episode)

    def render(self, state):
        theta = float(state[0][0])
        canvas = draw.Canvas((-1.3, 1.3), (-1.3, 1.3), 260, 260)
        canvas.line([(0.0, 0.0), (-math.sin(theta), math.cos(theta))], draw.BLUE, 0.16)
        canvas.disc((0.0, 0.0), 0.06, draw.BLACK)
        return canvas.image()


def _observe(physics: jax.Array) -> jax.Array:
    """Return observations (cos, sin, theta') [..., 3] of (theta, theta') [..., 2]."""
    theta, speed = physics[..., 0], physics[..., 1]
    return jnp.stack([jnp.cos(theta), jnp.sin(theta), speed], axis=-1)
