"""CartPole-v1, batched: Barto, Sutton & Anderson (1983), Gymnasium's Euler step."""

from __future__ import annotations

import math

import jax.numpy as jnp

from jaxrl_fast import random, tree
from jaxrl_fast.envs.api import Env
from jaxrl_fast.envs.native import draw
from jaxrl_fast.fields import setting
from jaxrl_fast.ops.angles import sin_cos
from jaxrl_fast.spaces import Box, Discrete
from jaxrl_fast.types import EnvSpec, Outcome


@tree.settings
class CartPole(Env):
    """Balance a pole on a cart: observation (x, x', theta, theta'), reward 1 a step.

    Observation float32 [4], actions {0: left, 1: right}. Lengths in metres, masses in kg, angles in
    radians, time in seconds.
    """

    gravity: float = 9.8
    """acceleration of gravity in m/s^2"""
    masscart: float = setting(1.0, low=0, open_low=True)
    """mass of the cart in kg"""
    masspole: float = setting(0.1, low=0, open_low=True)
    """mass of the pole in kg"""
    length: float = setting(0.5, low=0, open_low=True)
    """half the pole's length in metres"""
    force_mag: float = 10.0
    """force of an action in N"""
    tau: float = setting(0.02, low=0, open_low=True)
    """seconds of a step"""
    theta_threshold_radians: float = setting(12 * 2 * math.pi / 360,
                                             low=0, open_low=True, static=True)
    """angle at which an episode ends, in radians"""
    x_threshold: float = setting(2.4, low=0, open_low=True, static=True)
    """distance from the centre at which an episode ends, in metres"""
    max_steps_in_episode: int = setting(500, low=1)
    """steps after which an episode is truncated"""

    @property
    def spec(self) -> EnvSpec:
        high = (2 * self.x_threshold, math.inf, 2 * self.theta_threshold_radians, math.inf)
        obs = Box(tuple(-h for h in high), high, (4,))
        return EnvSpec("CartPole-v1", obs, Discrete(2), self.max_steps_in_episode)

    def draw_reset(self, key, shape):
        return random.uniform(key, (*shape, 4), minval=-0.05, maxval=0.05)

    def reset(self, noise):
        return (noise, jnp.zeros(noise.shape[:-1], jnp.int32)), noise

    def transition(self, noise, state, action):
        (obs, time) = state
        x, x_dot, theta, theta_dot = (obs[..., i] for i in range(4))
        force = jnp.where(action == 1, self.force_mag, -self.force_mag)
        total_mass = self.masscart + self.masspole
        polemass_length = self.masspole * self.length
        sin, cos = sin_cos(theta)
        temp = (force + polemass_length * theta_dot**2 * sin) / total_mass
        theta_acc = (self.gravity * sin - cos * temp) / (
            self.length * (4.0 / 3.0 - self.masspole * cos**2 / total_mass)
        )
        x_acc = temp - polemass_length * theta_acc * cos / total_mass
        x, x_dot = x + self.tau * x_dot, x_dot + self.tau * x_acc
        theta, theta_dot = theta + self.tau * theta_dot, theta_dot + self.tau * theta_acc
        obs = jnp.stack([x, x_dot, theta, theta_dot], axis=-1)
        time = time + 1
        gone = jnp.abs(x) > self.x_threshold
        terminated = gone | (jnp.abs(theta) > self.theta_threshold_radians)
        truncated = time >= self.max_steps_in_episode
        return (obs, time), Outcome(obs, jnp.ones_like(x), terminated, truncated)

    def render(self, state):
        x, _, theta, _ = (float(v) for v in state[0])
        canvas = draw.Canvas((-2.4, 2.4), (-0.5, 2.0), 400, 208)
        canvas.line([(-2.4, 0.0), (2.4, 0.0)], draw.GREY, 0.02)
        canvas.polygon([(x - 0.3, -0.14), (x + 0.3, -0.14), (x + 0.3, 0.14), (x - 0.3, 0.14)],
                       draw.BLACK)
        pole = 2 * float(self.length) * 1.2  # drawn a little longer, as in Gymnasium
        canvas.line([(x, 0.14), (x + pole * math.sin(theta), 0.14 + pole * math.cos(theta))],
                    draw.ORANGE, 0.1)
        canvas.disc((x, 0.14), 0.05, draw.BLUE)
        return canvas.image()
