"""Probes of other spaces: Box and MultiDiscrete actions, legal actions, dict observations."""

from __future__ import annotations

import jax
import jax.numpy as jnp
import numpy as np

from jaxrl_fast import tree
from jaxrl_fast.envs.probes.control import Bandit, Known
from jaxrl_fast.fields import setting
from jaxrl_fast.spaces import Box, Dict, Discrete, MultiDiscrete
from jaxrl_fast.types import EnvSpec


@tree.settings
class Continuous(Bandit):
    """Observation x uniform in [-1, 1], action a in [-2, 2], reward -(a - x)^2. One step."""

    @property
    def spec(self) -> EnvSpec:
        return EnvSpec("probe/continuous", Box(-1.0, 1.0, (1,)), Box(-2.0, 2.0, (1,)), 1)

    def draw_reset(self, key, shape):
        return jax.random.uniform(key, (*shape, 1), jnp.float32, minval=-1.0)

    def _reward(self, obs, action):
        return -jnp.square(action[:, 0] - obs[:, 0])

    def known_values(self, gamma: float) -> Known:
        obs = np.linspace(-0.9, 0.9, 7, dtype=np.float32)[:, None]
        return Known(obs, np.zeros(7, np.float32), obs.copy())


@tree.settings
class MultiDiscreteAction(Bandit):
    """Three actions of 3, 2 and 4 choices; observed are the right one-hots. Reward: share right."""

    @property
    def spec(self) -> EnvSpec:
        return EnvSpec("probe/multi-discrete", Box(0.0, 1.0, (9,)), MultiDiscrete((3, 2, 4)), 1)

    def draw_reset(self, key, shape):
        right = self.spec.action.sample(key, shape)
        hots = [jax.nn.one_hot(right[..., i], n, dtype=jnp.float32)
                for i, n in enumerate(self.spec.action.nvec)]
        return jnp.concatenate(hots, axis=-1)

    def _reward(self, obs, action):
        parts = jnp.split(obs, (3, 5), axis=-1)
        right = jnp.stack([jnp.argmax(p, axis=-1) for p in parts], axis=-1)
        return jnp.mean(right == action, axis=-1)

    def known_values(self, gamma: float) -> Known:
        choices = np.meshgrid(np.arange(3), np.arange(2), np.arange(4), indexing="ij")
        action = np.stack(choices, -1).reshape(-1, 3)
        obs = np.concatenate([np.eye(n, dtype=np.float32)[action[:, i]]
                              for i, n in enumerate((3, 2, 4))], axis=-1)
        return Known(obs, np.ones(len(obs), np.float32), action)


@tree.settings
class Masked(Bandit):
    """Six actions, some illegal: the named one pays 1, other legal ones 0, illegal ones -100.

    Observation {"observation": one-hot float32 [6], "action_mask": bool [6], True where legal}. One
    step.
    """

    num_actions: int = setting(6, low=1)
    """number of actions"""

    @property
    def spec(self) -> EnvSpec:
        n = self.num_actions
        obs = Dict.of(observation=Box(0.0, 1.0, (n,)), action_mask=Box(0.0, 1.0, (n,), jnp.bool_))
        return EnvSpec("probe/masked", obs, Discrete(n), 1)

    def draw_reset(self, key, shape):
        mask_key, right_key = jax.random.split(key)
        right = jax.nn.one_hot(jax.random.randint(right_key, shape, 0, self.num_actions),
                               self.num_actions)
        legal = jax.random.bernoulli(mask_key, 0.5, (*shape, self.num_actions)) | (right > 0)
        return {"observation": right.astype(jnp.float32), "action_mask": legal}

    def _reward(self, obs, action):
        chosen = jax.nn.one_hot(action, self.num_actions, dtype=jnp.float32)
        legal = jnp.sum(chosen * obs["action_mask"], axis=-1) > 0
        return jnp.where(legal, jnp.sum(chosen * obs["observation"], axis=-1), -100.0)

    def known_values(self, gamma: float) -> Known:
        """Return two observations an action: with only it legal, and with all."""
        n = self.num_actions
        eye = np.eye(n, dtype=np.float32)
        obs = {
            "observation": np.concatenate([eye, eye]),
            "action_mask": np.concatenate([eye > 0, np.ones((n, n), bool)]),
        }
        q = np.where(obs["action_mask"], obs["observation"], -100.0).astype(np.float32)
        return Known(obs, np.ones(2 * n, np.float32), np.tile(np.arange(n), 2), q)


@tree.settings
class DictObservation(Bandit):
    """Observation {"row": [2], "column": [3]}, one-hot; action 3 row + column pays 1. One step."""

    @property
    def spec(self) -> EnvSpec:
        obs = Dict.of(row=Box(0.0, 1.0, (2,)), column=Box(0.0, 1.0, (3,)))
        return EnvSpec("probe/dict", obs, Discrete(6), 1)

    def draw_reset(self, key, shape):
        right = jax.random.randint(key, shape, 0, 6)
        return {
            "row": jax.nn.one_hot(right // 3, 2, dtype=jnp.float32),
            "column": jax.nn.one_hot(right % 3, 3, dtype=jnp.float32),
        }

    def _reward(self, obs, action):
        return 3 * jnp.argmax(obs["row"], axis=-1) + jnp.argmax(obs["column"], axis=-1) == action

    def known_values(self, gamma: float) -> Known:
        right = np.arange(6)
        obs = {"row": np.eye(2, dtype=np.float32)[right // 3],
               "column": np.eye(3, dtype=np.float32)[right % 3]}
        return Known(obs, np.ones(6, np.float32), right, np.eye(6, dtype=np.float32))
