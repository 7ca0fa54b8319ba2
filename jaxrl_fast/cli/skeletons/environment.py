"""The environment skeleton: one environment, which `jf.SingleEnv` batches."""

import jax.numpy as jnp
import jaxrl_fast as jf
from jaxrl_fast import random


@jf.settings
class Skeleton(jf.SingleEnv):
    """Walk along a corridor to its right end; the floor is slippery: change `reset_one` and `step_one`."""

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
        return (place, time), self.observe(place), jnp.where(terminated, 1.0, -0.02), terminated, truncated


jf.register("skeleton", Skeleton)
