"""An environment whose every observation says what it must be, as Gymnasium knows it: alone and as
vectors of three kinds."""

from __future__ import annotations

import sys
import time

import gymnasium
import numpy as np
from gymnasium import spaces
from gymnasium.vector import AutoresetMode, VectorEnv

ID = "JaxrlFastCounter-v0"


class Counter(gymnasium.Env):
    """obs = (episode, step). Episode e has 2 + e % 3 steps; odd ones are truncated. The reward is
    10 step + action."""

    observation_space = spaces.Box(0, np.inf, (2,), np.float64)
    action_space = spaces.Discrete(3, start=1)

    def __init__(self, fault: str = "", at: int = 20, render_mode=None):
        self.fault, self.at, self.episode, self.total, self.actions = fault, at, -1, 0, []

    def _obs(self):
        return np.array([self.episode, self.step_], np.float64)

    def reset(self, *, seed=None, options=None):
        super().reset(seed=seed)
        self.episode, self.step_ = self.episode + 1, 0
        return self._obs(), {}

    def step(self, action):
        assert self.action_space.contains(action), action
        self.step_, self.total = self.step_ + 1, self.total + 1
        obs, reward = self._obs(), 10.0 * self.step_ + action
        if self.total == self.at:
            if self.fault == "raises":
                raise ValueError("the motor burnt out")
            if self.fault == "quits":
                sys.exit("licence lost")
            if self.fault == "hangs":
                time.sleep(1.2)  # each of them
            obs = obs * np.nan if self.fault == "nan" else obs
            reward = np.inf if self.fault == "infinite" else reward
        over = self.step_ == 2 + self.episode % 3
        return obs, reward, over and self.episode % 2 == 0, over and self.episode % 2 == 1, {}


class Buffer(gymnasium.Env):
    """obs = the step, in the same array again and again; episodes of 3 steps. `wrong`: once in
    another shape."""

    observation_space = spaces.Dict(a=spaces.Box(0, 9, (2, 3), np.float32))
    action_space = spaces.Discrete(2)

    def __init__(self, wrong: bool = False):
        self.wrong, self.obs = wrong, np.zeros((2, 3), np.float32)

    def reset(self, *, seed=None, options=None):
        self.obs[:] = 0
        return {"a": self.obs}, {}

    def step(self, action):
        self.obs += 1
        obs = self.obs.T if self.wrong and self.obs[0, 0] == 2 else self.obs
        return {"a": obs}, 1.0, bool(self.obs[0, 0] == 3), False, {}


class Says(gymnasium.Env):
    """An environment with given values from its second observation on: an observation, a reward, an
    end."""

    observation_space = spaces.Dict(a=spaces.Box(-9, 2**40, (1,), np.int64))
    action_space = spaces.Discrete(2)

    def __init__(self, obs=0, reward=1.0, terminated=False, truncated=False):
        self.obs, self.rest = obs, (reward, terminated, truncated, {})

    def reset(self, *, seed=None, options=None):
        return {"a": np.zeros(1, np.int64)}, {}

    def step(self, action):
        return {"a": np.array([self.obs])}, *self.rest


class Counters(VectorEnv):
    """The same as a vector of its own, which hands out its one buffer again and again; `mode` is
    that of its auto-reset."""

    def __init__(self, num_envs: int = 1, mode: str = "NEXT_STEP", **own):
        self.envs = [Counter(**own) for _ in range(num_envs)]
        self.num_envs, self.metadata = num_envs, {"autoreset_mode": AutoresetMode[mode]}
        self.single_observation_space, self.single_action_space = (
            Counter.observation_space, Counter.action_space)
        self.ended = np.zeros(num_envs, bool)
        self.obs, self.reward = np.zeros((num_envs, 2), np.float32), np.zeros(num_envs, np.float32)

    def reset(self, *, seed=None, options=None):
        chosen = (options or {}).get("reset_mask", np.ones(self.num_envs, bool))
        self.obs[:] = [e.reset()[0] if c else e._obs()
                       for e, c in zip(self.envs, chosen, strict=True)]
        return self.obs, {}

    def step(self, action):
        next_step = self.metadata["autoreset_mode"] is AutoresetMode.NEXT_STEP
        rows = [
            (e.reset()[0], 0.0, False, False) if next_step and ended else e.step(int(a))[:4]
            for e, a, ended in zip(self.envs, action, self.ended, strict=True)
        ]
        obs, reward, terminated, truncated = (np.stack(x) for x in zip(*rows, strict=True))
        self.ended, info = terminated | truncated, {}
        if self.metadata["autoreset_mode"] is AutoresetMode.SAME_STEP and self.ended.any():
            info = {"final_obs": obs.copy(), "_final_obs": self.ended}
            obs[self.ended] = [self.envs[i].reset()[0] for i in np.flatnonzero(self.ended)]
        self.obs[:], self.reward[:] = obs, reward
        return self.obs, self.reward, terminated, truncated, info


def register() -> None:
    """Known to Gymnasium alone, and with a vector version; once a process."""
    if ID not in gymnasium.registry:
        gymnasium.register(ID, entry_point=Counter, vector_entry_point=Counters)


def expected(num_steps: int) -> list[tuple]:
    """(obs, next_obs, 10 step, terminated, truncated) of each step of one environment."""
    rows, episode, step = [], 0, 0
    for _ in range(num_steps):
        over = step + 1 == 2 + episode % 3
        rows.append(((episode, step), (episode, step + 1), 10 * (step + 1),
                     over and episode % 2 == 0, over and episode % 2 == 1))
        episode, step = (episode + 1, 0) if over else (episode, step + 1)
    return rows
