"""Probe environments: so small that the right values are known, each failing for one kind of mistake.

Every probe has `known_values(gamma) -> Known`: its observations, and for each of them the optimal value, the optimal
action, and where it makes sense the values of all actions. An algorithm that does not find them has a bug, and which
probe it fails says where to look:

    probe/constant-reward   the value's loss, the learning rate
    probe/reward-at-end     the discount, the bootstrap from the next observation
    probe/two-step-credit   credit that reaches back over a step
    probe/action-reward     the policy's gradient, the Q-value of the action taken
    probe/truncated-only    bootstrapping where an episode is cut: without it the values are too low
    probe/named-action      observations that reach the policy, in the right order
    probe/continuous        the same with a Box action: reward -(action - observation)^2
    probe/multi-discrete    the same with a vector of actions
    probe/masked            legal actions: an illegal one costs 100
    probe/dict              observations that are a dict
"""

from __future__ import annotations

from typing import Any, NamedTuple

import jax
import jax.numpy as jnp
import numpy as np

from jaxrl_fast import tree
from jaxrl_fast.envs.api import Env
from jaxrl_fast.spaces import Box, Dict, Discrete, MultiDiscrete
from jaxrl_fast.types import EnvSpec, Outcome


class Known(NamedTuple):
    """What is true of a probe, one row an observation (all of them, or a sample). NumPy arrays."""

    obs: Any  # [K, ...]
    value: np.ndarray  # float32 [K]: of the optimal policy
    action: np.ndarray | None = None  # [K, ...]: the optimal action; None where every action is as good
    q: np.ndarray | None = None  # float32 [K, A]: optimal action values, for a Discrete action


class _Bandit(Env):
    """One step an episode; the state is the observation. A probe gives `_draw` and `_reward`.

    The observation after the only step is the one before it: nothing may depend on it, for the episode is over.
    """

    def draw_reset(self, key, shape):
        return self._draw(key, shape)

    def reset(self, noise):
        return noise, noise

    def transition(self, noise, state, action):
        reward = self._reward(state, action).astype(jnp.float32)
        ended = jnp.ones(reward.shape, bool)
        return state, Outcome(state, reward, ended, ~ended)

    def _draw(self, key: jax.Array, shape: tuple[int, ...]) -> Any:
        """Observations [*shape, ...]."""
        raise NotImplementedError

    def _reward(self, obs: Any, action: jax.Array) -> jax.Array:
        """[B]."""
        raise NotImplementedError


class _Chain(Env):
    """`length` steps an episode; the state is the number of steps taken, int32 [B]; one-hot observations."""

    length: int

    def draw_reset(self, key, shape):
        return jnp.zeros(shape, jnp.int32)

    def reset(self, noise):
        return noise, self._observe(noise)

    def _observe(self, time: jax.Array) -> jax.Array:
        return jax.nn.one_hot(time, self.length, dtype=jnp.float32)  # all zeros after the last step


@tree.settings
class ConstantReward(_Bandit):
    """Reward 1, then the end. V = 1 whatever the discount. Observation [1.0], two actions."""

    @property
    def spec(self) -> EnvSpec:
        return EnvSpec("probe/constant-reward", Box(0.0, 1.0, (1,)), Discrete(2), 1)

    def _draw(self, key, shape):
        return jnp.ones((*shape, 1))

    def _reward(self, obs, action):
        return jnp.ones(obs.shape[0])

    def known_values(self, gamma: float) -> Known:
        return Known(np.ones((1, 1), np.float32), np.ones(1, np.float32), None, np.ones((1, 2), np.float32))


@tree.settings
class RewardAtEnd(_Chain):
    """`length` steps, reward 1 on the last one: V of step i = gamma^(length - 1 - i). Observation: one-hot step."""

    length: int = 4

    @property
    def spec(self) -> EnvSpec:
        return EnvSpec("probe/reward-at-end", Box(0.0, 1.0, (self.length,)), Discrete(2), self.length)

    def transition(self, noise, state, action):
        time = state + 1
        ended = time >= self.length
        return time, Outcome(self._observe(time), ended.astype(jnp.float32), ended, jnp.zeros_like(ended))

    def known_values(self, gamma: float) -> Known:
        value = (gamma ** np.arange(self.length - 1, -1, -1)).astype(np.float32)
        return Known(np.eye(self.length, dtype=np.float32), value, None, np.stack([value, value], axis=-1))


@tree.settings
class TwoStepCredit(Env):
    """The first action decides the reward of the second step: 1 after action 1, -1 after action 0.

    Observation one-hot [3]: the start, the good branch, the bad branch. The second action changes nothing.
    """

    @property
    def spec(self) -> EnvSpec:
        return EnvSpec("probe/two-step-credit", Box(0.0, 1.0, (3,)), Discrete(2), 2)

    def draw_reset(self, key, shape):
        return jnp.zeros(shape, jnp.int32)

    def reset(self, noise):
        return noise, jax.nn.one_hot(noise, 3, dtype=jnp.float32)

    def transition(self, noise, state, action):
        place = jnp.where(state == 0, jnp.where(action == 1, 1, 2), state).astype(jnp.int32)
        ended = state > 0
        reward = jnp.where(ended, jnp.where(state == 1, 1.0, -1.0), 0.0)
        return place, Outcome(jax.nn.one_hot(place, 3, dtype=jnp.float32), reward, ended, jnp.zeros_like(ended))

    def known_values(self, gamma: float) -> Known:
        """The optimal action of the branches is listed as 0, and either is as good."""
        q = np.array([[-gamma, gamma], [1.0, 1.0], [-1.0, -1.0]], np.float32)
        return Known(np.eye(3, dtype=np.float32), q.max(axis=1), q.argmax(axis=1), q)


@tree.settings
class ActionReward(_Bandit):
    """Reward 1 for action 1 where the observation is +1, for action 0 where it is -1; otherwise -1. One step."""

    @property
    def spec(self) -> EnvSpec:
        return EnvSpec("probe/action-reward", Box(-1.0, 1.0, (1,)), Discrete(2), 1)

    def _draw(self, key, shape):
        return jax.random.rademacher(key, (*shape, 1), jnp.float32)

    def _reward(self, obs, action):
        return obs[:, 0] * (2.0 * action - 1.0)

    def known_values(self, gamma: float) -> Known:
        q = np.array([[1.0, -1.0], [-1.0, 1.0]], np.float32)
        return Known(np.array([[-1.0], [1.0]], np.float32), q.max(axis=1), q.argmax(axis=1), q)


@tree.settings
class TruncatedOnly(Env):
    """Reward 1 for ever, cut every `length` steps: V = 1 / (1 - gamma). Observation [1.0] at every step.

    The observation does not tell how long the episode has lasted, so a learner that takes the cut for an end settles
    on a smaller value.
    """

    length: int = 4

    @property
    def spec(self) -> EnvSpec:
        return EnvSpec("probe/truncated-only", Box(0.0, 1.0, (1,)), Discrete(2), self.length)

    def draw_reset(self, key, shape):
        return jnp.zeros(shape, jnp.int32)

    def reset(self, noise):
        return noise, jnp.ones((*noise.shape, 1))

    def transition(self, noise, state, action):
        time = state + 1
        ones = jnp.ones(time.shape)
        return time, Outcome(ones[:, None], ones, jnp.zeros(time.shape, bool), time >= self.length)

    def known_values(self, gamma: float) -> Known:
        value = np.full(1, 1.0 / (1.0 - gamma), np.float32)
        return Known(np.ones((1, 1), np.float32), value, None, np.stack([value, value], axis=-1))


@tree.settings
class NamedAction(_Bandit):
    """The observation is the one-hot of the right action: reward 1 for it, else 0. One step."""

    num_actions: int = 4

    @property
    def spec(self) -> EnvSpec:
        n = self.num_actions
        return EnvSpec("probe/named-action", Box(0.0, 1.0, (n,)), Discrete(n), 1)

    def _draw(self, key, shape):
        right = jax.random.randint(key, shape, 0, self.num_actions)
        return jax.nn.one_hot(right, self.num_actions, dtype=jnp.float32)

    def _reward(self, obs, action):
        return jnp.argmax(obs, axis=-1) == action

    def known_values(self, gamma: float) -> Known:
        n = self.num_actions
        return Known(np.eye(n, dtype=np.float32), np.ones(n, np.float32), np.arange(n), np.eye(n, dtype=np.float32))


@tree.settings
class Continuous(_Bandit):
    """Observation x uniform in [-1, 1], action a in [-2, 2], reward -(a - x)^2. The right action is x. One step."""

    @property
    def spec(self) -> EnvSpec:
        return EnvSpec("probe/continuous", Box(-1.0, 1.0, (1,)), Box(-2.0, 2.0, (1,)), 1)

    def _draw(self, key, shape):
        return jax.random.uniform(key, (*shape, 1), minval=-1.0)

    def _reward(self, obs, action):
        return -jnp.square(action[:, 0] - obs[:, 0])

    def known_values(self, gamma: float) -> Known:
        obs = np.linspace(-0.9, 0.9, 7, dtype=np.float32)[:, None]
        return Known(obs, np.zeros(7, np.float32), obs.copy())


@tree.settings
class MultiDiscreteAction(_Bandit):
    """Three actions at once, of 3, 2 and 4 choices; the observation holds their right one-hots. Reward: share right."""

    @property
    def spec(self) -> EnvSpec:
        return EnvSpec("probe/multi-discrete", Box(0.0, 1.0, (9,)), MultiDiscrete((3, 2, 4)), 1)

    def _draw(self, key, shape):
        right = self.spec.action.sample(key, shape)
        hots = [jax.nn.one_hot(right[..., i], n, dtype=jnp.float32) for i, n in enumerate(self.spec.action.nvec)]
        return jnp.concatenate(hots, axis=-1)

    def _reward(self, obs, action):
        parts = jnp.split(obs, (3, 5), axis=-1)
        right = jnp.stack([jnp.argmax(p, axis=-1) for p in parts], axis=-1)
        return jnp.mean(right == action, axis=-1)

    def known_values(self, gamma: float) -> Known:
        action = np.stack(np.meshgrid(np.arange(3), np.arange(2), np.arange(4), indexing="ij"), -1).reshape(-1, 3)
        obs = np.concatenate([np.eye(n, dtype=np.float32)[action[:, i]] for i, n in enumerate((3, 2, 4))], axis=-1)
        return Known(obs, np.ones(len(obs), np.float32), action)


@tree.settings
class Masked(_Bandit):
    """Six actions, some illegal. The legal one that `observation` names pays 1, other legal ones 0, illegal ones -100.

    Observation {"observation": one-hot float32 [6], "action_mask": bool [6], True where legal}. One step.
    """

    num_actions: int = 6

    @property
    def spec(self) -> EnvSpec:
        n = self.num_actions
        obs = Dict.of(observation=Box(0.0, 1.0, (n,)), action_mask=Box(0.0, 1.0, (n,), jnp.bool_))
        return EnvSpec("probe/masked", obs, Discrete(n), 1)

    def _draw(self, key, shape):
        mask_key, right_key = jax.random.split(key)
        right = jax.nn.one_hot(jax.random.randint(right_key, shape, 0, self.num_actions), self.num_actions)
        legal = jax.random.bernoulli(mask_key, 0.5, (*shape, self.num_actions)) | (right > 0)
        return {"observation": right.astype(jnp.float32), "action_mask": legal}

    def _reward(self, obs, action):
        chosen = jax.nn.one_hot(action, self.num_actions, dtype=jnp.float32)
        legal = jnp.sum(chosen * obs["action_mask"], axis=-1) > 0
        return jnp.where(legal, jnp.sum(chosen * obs["observation"], axis=-1), -100.0)

    def known_values(self, gamma: float) -> Known:
        """Two observations an action: only it is legal, and all are."""
        n = self.num_actions
        eye = np.eye(n, dtype=np.float32)
        obs = {
            "observation": np.concatenate([eye, eye]),
            "action_mask": np.concatenate([eye > 0, np.ones((n, n), bool)]),
        }
        q = np.where(obs["action_mask"], obs["observation"], -100.0).astype(np.float32)
        return Known(obs, np.ones(2 * n, np.float32), np.tile(np.arange(n), 2), q)


@tree.settings
class DictObservation(_Bandit):
    """Observation {"row": one-hot [2], "column": one-hot [3]}; action 3 row + column pays 1, others 0. One step."""

    @property
    def spec(self) -> EnvSpec:
        obs = Dict.of(row=Box(0.0, 1.0, (2,)), column=Box(0.0, 1.0, (3,)))
        return EnvSpec("probe/dict", obs, Discrete(6), 1)

    def _draw(self, key, shape):
        right = jax.random.randint(key, shape, 0, 6)
        return {
            "row": jax.nn.one_hot(right // 3, 2, dtype=jnp.float32),
            "column": jax.nn.one_hot(right % 3, 3, dtype=jnp.float32),
        }

    def _reward(self, obs, action):
        return 3 * jnp.argmax(obs["row"], axis=-1) + jnp.argmax(obs["column"], axis=-1) == action

    def known_values(self, gamma: float) -> Known:
        right = np.arange(6)
        obs = {"row": np.eye(2, dtype=np.float32)[right // 3], "column": np.eye(3, dtype=np.float32)[right % 3]}
        return Known(obs, np.ones(6, np.float32), right, np.eye(6, dtype=np.float32))
