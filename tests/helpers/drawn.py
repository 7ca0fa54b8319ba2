"""A Gymnasium environment of five steps that draws its step, and drawing without a thread."""

from __future__ import annotations

from concurrent.futures import Future

import gymnasium
import numpy as np
from gymnasium import spaces as theirs


def at_once(function, *args) -> Future:
    """Work at once, in place of a thread that draws."""
    done = Future()
    try:
        done.set_result(function(*args))
    except Exception as error:
        done.set_exception(error)
    return done


class Drawn(gymnasium.Env):
    """Five steps; its picture is as bright as the step. `metadata` and the constructor decide who
    may draw it."""

    light = 1  # of a step in its picture
    length = 5
    metadata = {"render_modes": ["rgb_array"]}
    observation_space, action_space = theirs.Box(-1, 1, (1,)), theirs.Discrete(2)

    def __init__(self, render_mode=None):
        self.render_mode = render_mode

    def reset(self, *, seed=None, options=None):
        super().reset(seed=seed)
        self.t = 0
        return np.zeros(1, np.float32), {}

    def step(self, action):
        self.t += 1
        return np.zeros(1, np.float32), 1.0, self.t == self.length, False, {}

    def render(self):
        return np.full((4, 4, 3), self.light * self.t, np.uint8)
