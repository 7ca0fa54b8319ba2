"""Acrobot-v1, batched: Sutton (1996), Gymnasium's 'book' dynamics, Runge-Kutta of 0.2 s."""

from __future__ import annotations

import math

import jax
import jax.numpy as jnp

from jaxrl_fast import tree
from jaxrl_fast.envs.api import Env
from jaxrl_fast.envs.native import draw
from jaxrl_fast.fields import setting
from jaxrl_fast.spaces import Box, Discrete
from jaxrl_fast.types import EnvSpec, Outcome


@tree.settings
class Acrobot(Env):
    """Swing the tip of a two-link pendulum above the bar by torque on the middle joint.

    Observation float32 [6]: cos and sin of both joint angles (radians, 0 hangs down; the second is
    relative to the first) and both angular velocities (rad/s). Actions {0, 1, 2}: torque -1, 0, +1
    N m. Reward -1 a step, 0 at the goal. Lengths in metres, masses in kg, moments in kg m^2.
    """

    dt: float = setting(0.2, low=0, open_low=True)
    """seconds of a step"""
    link_length_1: float = setting(1.0, low=0, open_low=True)
    """length of the first link in metres"""
    link_mass_1: float = setting(1.0, low=0, open_low=True)
    """mass of the first link in kg"""
    link_mass_2: float = setting(1.0, low=0, open_low=True)
    """mass of the second link in kg"""
    link_com_pos_1: float = setting(0.5, low=0, open_low=True)
    """centre of mass of the first link, in metres from its joint"""
    link_com_pos_2: float = setting(0.5, low=0, open_low=True)
    """centre of mass of the second link, in metres from its joint"""
    link_moi: float = setting(1.0, low=0, open_low=True)
    """moment of inertia of a link in kg m^2"""
    gravity: float = 9.8
    """acceleration of gravity in m/s^2"""
    max_vel_1: float = setting(4 * math.pi, low=0, open_low=True, static=True)
    """highest velocity of the first joint in rad/s"""
    max_vel_2: float = setting(9 * math.pi, low=0, open_low=True, static=True)
    """highest velocity of the second joint in rad/s"""
    max_steps_in_episode: int = setting(500, low=1)
    """steps after which an episode is truncated"""

    @property
    def spec(self) -> EnvSpec:
        high = (1.0, 1.0, 1.0, 1.0, self.max_vel_1, self.max_vel_2)
        obs = Box(tuple(-h for h in high), high, (6,))
        return EnvSpec("Acrobot-v1", obs, Discrete(3), self.max_steps_in_episode)

    def draw_reset(self, key, shape):
        # Observations come along: one draw of sines and cosines for the whole iteration.
        physics = jax.random.uniform(key, (*shape, 4), jnp.float32, minval=-0.1, maxval=0.1)
        return physics, _observe(physics)

    def reset(self, noise):
        physics, obs = noise
        return (physics, jnp.zeros(physics.shape[:-1], jnp.int32)), obs

    def transition(self, noise, state, action):
        physics, time = state
        torque = (action - 1).astype(jnp.float32)
        angles = tuple(physics[..., i] for i in range(4))
        theta1, theta2, vel1, vel2 = self._runge_kutta(angles, torque)
        theta1, theta2 = _wrap(theta1), _wrap(theta2)
        vel1 = jnp.clip(vel1, -self.max_vel_1, self.max_vel_1)
        vel2 = jnp.clip(vel2, -self.max_vel_2, self.max_vel_2)
        terminated = -jnp.cos(theta1) - jnp.cos(theta2 + theta1) > 1.0
        physics, time = jnp.stack([theta1, theta2, vel1, vel2], axis=-1), time + 1
        reward = jnp.where(terminated, 0.0, -1.0).astype(jnp.float32)
        truncated = time >= self.max_steps_in_episode
        return (physics, time), Outcome(_observe(physics), reward, terminated, truncated)

    def _runge_kutta(self, y, torque):
        def shift(by, k):
            return tuple(a + by * b for a, b in zip(y, k, strict=True))

        k1 = self._derivative(y, torque)
        k2 = self._derivative(shift(self.dt / 2.0, k1), torque)
        k3 = self._derivative(shift(self.dt / 2.0, k2), torque)
        k4 = self._derivative(shift(self.dt, k3), torque)
        return shift(self.dt / 6.0, tuple(a + 2 * b + 2 * c + d
                                          for a, b, c, d in zip(k1, k2, k3, k4, strict=True)))

    def _derivative(self, y, torque):
        """Return d/dt of (theta1, theta2, theta1', theta2') (Sutton & Barto, 1st ed., 11.3)."""
        theta1, theta2, vel1, vel2 = y
        m1, m2, l1 = self.link_mass_1, self.link_mass_2, self.link_length_1
        lc1, lc2, moi, g = self.link_com_pos_1, self.link_com_pos_2, self.link_moi, self.gravity
        cos2, sin2 = jnp.cos(theta2), jnp.sin(theta2)
        d1 = m1 * lc1**2 + m2 * (l1**2 + lc2**2 + 2 * l1 * lc2 * cos2) + moi + moi
        d2 = m2 * (lc2**2 + l1 * lc2 * cos2) + moi
        phi2 = m2 * lc2 * g * jnp.cos(theta1 + theta2 - math.pi / 2)
        phi1 = (-m2 * l1 * lc2 * vel2**2 * sin2
                - 2 * m2 * l1 * lc2 * vel2 * vel1 * sin2
                + (m1 * lc1 + m2 * l1) * g * jnp.cos(theta1 - math.pi / 2)
                + phi2)
        acc2 = (torque + d2 / d1 * phi1 - m2 * l1 * lc2 * vel1**2 * sin2
                - phi2) / (m2 * lc2**2 + moi - d2**2 / d1)
        acc1 = -(d2 * acc2 + phi1) / d1
        return vel1, vel2, acc1, acc2

    def render(self, state):
        theta1, theta2 = (float(a) for a in state[0][:2])
        canvas = draw.Canvas((-2.2, 2.2), (-2.2, 2.2), 300, 300)
        canvas.line([(-2.2, 1.0), (2.2, 1.0)], draw.GREY, 0.02)
        elbow = (math.sin(theta1), -math.cos(theta1))
        tip = (elbow[0] + math.sin(theta1 + theta2), elbow[1] - math.cos(theta1 + theta2))
        for start, end in (((0.0, 0.0), elbow), (elbow, tip)):
            canvas.line([start, end], draw.BLUE, 0.16)
            canvas.disc(start, 0.11, draw.ORANGE)
        return canvas.image()


def _observe(physics: jax.Array) -> jax.Array:
    """Return observations [..., 6] of (theta1, theta2, theta1', theta2') [..., 4]."""
    theta1, theta2, vel1, vel2 = (physics[..., i] for i in range(4))
    return jnp.stack([jnp.cos(theta1), jnp.sin(theta1), jnp.cos(theta2),
                      jnp.sin(theta2), vel1, vel2], axis=-1)


def _wrap(angle: jax.Array) -> jax.Array:
    """Wrap an angle into [-pi, pi), by whole turns only where it is outside."""
    turn = 2 * math.pi
    below, above = angle < -math.pi, angle >= math.pi
    up = jnp.ceil((-math.pi - angle) / turn) * turn
    down = jnp.floor((angle - math.pi) / turn + 1) * turn
    return jnp.where(below, angle + up, jnp.where(above, angle - down, angle))
