"""Probe environments with known values; each fails for one kind of mistake.

Every probe has `known_values(gamma) -> Known`: its observations with the optimal value, the optimal
action and, if defined, all action values. An algorithm that misses them has a bug, and the failed
probe says where:

    probe/constant-reward   the value loss, the learning rate
    probe/reward-at-end     the discount, the bootstrap from the next observation
    probe/two-step-credit   credit over two steps
    probe/action-reward     the policy gradient, the Q-value of the action taken
    probe/truncated-only    the bootstrap after a truncation
    probe/reward-at-cut     a truncated step's reward and bootstrap
    probe/named-action      observations that reach the policy, in the right order
    probe/continuous        the same with a Box action: reward -(action - observation)^2
    probe/multi-discrete    the same with a vector of actions
    probe/masked            legal actions: an illegal one costs 100
    probe/dict              dict observations
"""

from __future__ import annotations

from typing import Any, NamedTuple

import jax
import jax.numpy as jnp
import numpy as np

from jaxrl_fast import random, tree
from jaxrl_fast.envs.api import Env
from jaxrl_fast.fields import setting
from jaxrl_fast.spaces import Box, Discrete
from jaxrl_fast.types import EnvSpec, Outcome


class Known(NamedTuple):
    """The truth about a probe, one row an observation (all, or a sample). NumPy arrays."""

    obs: Any  # [K, ...]
    value: np.ndarray  # float32 [K]: of the optimal policy
    action: np.ndarray | None = None  # [K, ...]: the optimal action; None if all are equal
    q: np.ndarray | None = None  # float32 [K, A]: optimal action values (Discrete)


class Bandit(Env):
    """Base of one-step probes; the state is the observation, which `draw_reset` draws.

    The observation after the step is the one before it: nothing may depend on it.
    """

    def reset(self, noise):
        return noise, noise

    def transition(self, noise, state, action):
        reward = self._reward(state, action).astype(jnp.float32)
        ended = jnp.ones(reward.shape, bool)
        return state, Outcome(state, reward, ended, ~ended)

    def _reward(self, obs: Any, action: jax.Array) -> jax.Array:
        """Return rewards [B]."""
        raise NotImplementedError


class Stages(Env):
    """Base of probes whose state is a number, int32 [B] from 0; `_observe` makes observations."""

    def draw_reset(self, key, shape):
        return jnp.zeros(shape, jnp.int32)

    def reset(self, noise):
        return noise, self._observe(noise)

    def _observe(self, state: jax.Array) -> jax.Array:
        """Return observations [B, ...]."""
        raise NotImplementedError


@tree.settings
class ConstantReward(Bandit):
    """Reward 1, then the end: V = 1 for any discount. Observation [1.0], two actions."""

    @property
    def spec(self) -> EnvSpec:
        return EnvSpec("probe/constant-reward", Box(0.0, 1.0, (1,)), Discrete(2), 1)

    def draw_reset(self, key, shape):
        return jnp.ones((*shape, 1), jnp.float32)

    def _reward(self, obs, action):
        return jnp.ones(obs.shape[0], jnp.float32)

    def known_values(self, gamma: float) -> Known:
        return Known(np.ones((1, 1), np.float32), np.ones(1, np.float32),
                     None, np.ones((1, 2), np.float32))


@tree.settings
class RewardAtEnd(Stages):
    """Reward 1 on the last of `length` steps: V = gamma^(length - 1 - i) at one-hot step i."""

    length: int = setting(4, low=1)
    """steps of an episode"""

    @property
    def spec(self) -> EnvSpec:
        return EnvSpec("probe/reward-at-end", Box(0.0, 1.0, (self.length,)),
                       Discrete(2), self.length)

    def _observe(self, state):
        return jax.nn.one_hot(state, self.length, dtype=jnp.float32)  # zeros after the last step

    def transition(self, noise, state, action):
        time = state + 1
        ended = time >= self.length
        return time, Outcome(self._observe(time), ended.astype(jnp.float32),
                             ended, jnp.zeros_like(ended))

    def known_values(self, gamma: float) -> Known:
        value = (gamma ** np.arange(self.length - 1, -1, -1)).astype(np.float32)
        return Known(np.eye(self.length, dtype=np.float32), value, None,
                     np.stack([value, value], axis=-1))


@tree.settings
class TwoStepCredit(Stages):
    """The first action decides the second step's reward: 1 after action 1, -1 after action 0.

    Observation one-hot [3]: the start, the good branch, the bad branch. The second action has no
    effect.
    """

    @property
    def spec(self) -> EnvSpec:
        return EnvSpec("probe/two-step-credit", Box(0.0, 1.0, (3,)), Discrete(2), 2)

    def _observe(self, state):
        return jax.nn.one_hot(state, 3, dtype=jnp.float32)

    def transition(self, noise, state, action):
        place = jnp.where(state == 0, jnp.where(action == 1, 1, 2), state).astype(jnp.int32)
        ended = state > 0
        reward = jnp.where(ended, jnp.where(state == 1, 1.0, -1.0), 0.0)
        return place, Outcome(self._observe(place), reward, ended, jnp.zeros_like(ended))

    def known_values(self, gamma: float) -> Known:
        """Return the known values; both actions of the branches are optimal, listed as 0."""
        q = np.array([[-gamma, gamma], [1.0, 1.0], [-1.0, -1.0]], np.float32)
        return Known(np.eye(3, dtype=np.float32), q.max(axis=1), q.argmax(axis=1), q)


@tree.settings
class ActionReward(Bandit):
    """Reward 1 for action 1 at observation +1 and action 0 at -1, else -1. One step."""

    @property
    def spec(self) -> EnvSpec:
        return EnvSpec("probe/action-reward", Box(-1.0, 1.0, (1,)), Discrete(2), 1)

    def draw_reset(self, key, shape):
        return jax.random.rademacher(key, (*shape, 1), jnp.float32)

    def _reward(self, obs, action):
        return obs[:, 0] * (2.0 * action - 1.0)

    def known_values(self, gamma: float) -> Known:
        q = np.array([[1.0, -1.0], [-1.0, 1.0]], np.float32)
        return Known(np.array([[-1.0], [1.0]], np.float32), q.max(axis=1), q.argmax(axis=1), q)


@tree.settings
class TruncatedOnly(Stages):
    """Reward 1 for ever, truncated every `length` steps: V = 1 / (1 - gamma).

    Observation [1.0] does not tell the time, so a learner that treats truncation as an end finds a
    lower value.
    """

    length: int = setting(4, low=1)
    """steps of an episode"""

    @property
    def spec(self) -> EnvSpec:
        return EnvSpec("probe/truncated-only", Box(0.0, 1.0, (1,)), Discrete(2), self.length)

    def _observe(self, state):
        return jnp.ones((*state.shape, 1), jnp.float32)

    def transition(self, noise, state, action):
        time, obs = state + 1, self._observe(state)
        return time, Outcome(obs, obs[:, 0], jnp.zeros(time.shape, bool), time >= self.length)

    def known_values(self, gamma: float) -> Known:
        value = np.full(1, 1.0 / (1.0 - gamma), np.float32)
        return Known(np.ones((1, 1), np.float32), value, None, np.stack([value, value], axis=-1))


@tree.settings
class RewardAtCut(Env):
    """Every step is truncated and pays 1 for the action of the observation (-1 or 1).

    V = 1 / (1 - gamma). A learner that leaves truncated steps out learns nothing.
    """

    @property
    def spec(self) -> EnvSpec:
        return EnvSpec("probe/reward-at-cut", Box(-1.0, 1.0, (1,)), Discrete(2), 1)

    def draw_reset(self, key, shape):
        return jnp.where(random.uniform(key, (*shape, 1)) < 0.5, jnp.float32(-1.0),
                         jnp.float32(1.0))

    def reset(self, noise):
        return noise, noise

    def transition(self, noise, state, action):
        reward = ((state[:, 0] > 0) == (action == 1)).astype(jnp.float32)
        cut = jnp.ones(reward.shape, bool)
        return state, Outcome(state, reward, ~cut, cut)

    def known_values(self, gamma: float) -> Known:
        value = np.full(2, 1.0 / (1.0 - gamma), np.float32)
        q = value[:, None] - 1.0 + np.eye(2, dtype=np.float32)
        return Known(np.array([[-1.0], [1.0]], np.float32), value, np.arange(2, dtype=np.int32), q)


@tree.settings
class NamedAction(Bandit):
    """The observation is the one-hot of the action that pays 1; others pay 0. One step."""

    num_actions: int = setting(4, low=1)
    """number of actions"""

    @property
    def spec(self) -> EnvSpec:
        n = self.num_actions
        return EnvSpec("probe/named-action", Box(0.0, 1.0, (n,)), Discrete(n), 1)

    def draw_reset(self, key, shape):
        right = jax.random.randint(key, shape, 0, self.num_actions)
        return jax.nn.one_hot(right, self.num_actions, dtype=jnp.float32)

    def _reward(self, obs, action):
        return jnp.argmax(obs, axis=-1) == action

    def known_values(self, gamma: float) -> Known:
        n = self.num_actions
        return Known(np.eye(n, dtype=np.float32), np.ones(n, np.float32),
                     np.arange(n), np.eye(n, dtype=np.float32))
