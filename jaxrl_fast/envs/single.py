"""Write one environment without a batch axis; `SingleEnv` batches it."""

from __future__ import annotations

import jax

from jaxrl_fast import random
from jaxrl_fast.envs.api import Env
from jaxrl_fast.types import Outcome, PyTree


class SingleEnv(Env):
    """An environment from two functions of one episode. Decorate the subclass with `@settings`.

        reset_one(key)                -> (state, obs)
        step_one(key, state, action)  -> (state, obs, reward, terminated, truncated)

    Float fields of the subclass are leaves. `state` must hold its own step counter if there is a time limit
    (or wrap the environment in `jf.envs.TimeLimit`).
    """

    def reset_one(self, key: jax.Array) -> tuple[PyTree, PyTree]:
        raise NotImplementedError

    def step_one(self, key: jax.Array, state: PyTree, action: PyTree) -> tuple:
        raise NotImplementedError

    def reset(self, noise: PyTree) -> tuple[PyTree, PyTree]:
        return jax.vmap(self.reset_one)(noise)

    def draw_step(self, key: jax.Array, num_steps: int, num_envs: int, t: jax.Array) -> PyTree:
        return random.split(key, (num_steps, num_envs))

    def transition(self, noise: PyTree, state: PyTree, action: PyTree) -> tuple[PyTree, Outcome]:
        state, obs, reward, terminated, truncated = jax.vmap(self.step_one)(noise, state, action)
        terminated = terminated.astype(bool)
        return state, Outcome(obs, reward.astype("float32"), terminated, truncated.astype(bool) & ~terminated)
