"""The environment skeleton: one environment, which `jf.SingleEnv` batches."""

import jax.numpy as jnp
import jaxrl_fast as jf
import numpy as np
from jaxrl_fast import random


@jf.settings
class Skeleton(jf.SingleEnv):
    """Walk along a corridor to its right end: change `reset_one` and `step_one`."""

    length: int = jf.setting(8, "cells", low=2)
    slip: float = jf.setting(0.1, "probability of standing still", low=0, high=1)
    max_steps_in_episode: int = jf.setting(50, "steps", low=1)

    @property
    def spec(self):
        cell = jf.Box(0.0, 1.0, (1,))
        return jf.EnvSpec("skeleton", cell, jf.Discrete(2), self.max_steps_in_episode)

    def observe(self, place):
        return (place / (self.length - 1)).astype(jnp.float32)[None]

    def reset_one(self, key):
        place = random.randint(key, (), 0, self.length - 1)
        return (place, jnp.int32(0)), self.observe(place)

    def step_one(self, key, state, action):
        place, time = state
        slips = random.uniform(key) < self.slip
        move = jnp.where(slips, 0, 2 * action - 1)
        place, time = jnp.clip(place + move, 0, self.length - 1), time + 1
        terminated = place == self.length - 1  # the task's own end: its value is zero
        truncated = time >= self.max_steps_in_episode  # a cut: its value goes on
        reward = jnp.where(terminated, 1.0, -0.02)
        return (place, time), self.observe(place), reward, terminated, truncated

    def render(self, state):
        """Return a picture of one state, uint8 [height, width, 3]: for videos and notebooks."""
        place, _ = state
        picture = np.full((32, 32 * self.length, 3), 255, np.uint8)
        picture[:, 32 * int(place) : 32 * int(place) + 32] = (70, 130, 180)
        return picture


jf.register("skeleton", Skeleton)
