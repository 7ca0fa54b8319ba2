"""Experience for tests of memories that start filled."""

from __future__ import annotations

import jax
import jax.numpy as jnp
import numpy as np

import jaxrl_fast as jf
from jaxrl_fast import random
from jaxrl_fast.engine import rollout
from jaxrl_fast.memory import Row
from jaxrl_fast.types import Clock

ZERO = Clock(jnp.int32(0), jnp.int32(0), jnp.float32(0))


def quick(fn, *args):
    """Compiling is what costs here, so the backend does not optimize."""
    return jax.jit(fn).lower(*args).compile({"xla_backend_optimization_level": 0})(*args)


def numbered(first: int, time: int, envs: int = 2) -> Row:
    """Rows whose observation, action and reward are their number; the last row of all is
    truncated."""
    number = first + np.arange(time * envs).reshape(time, envs)
    flags = np.zeros((time, envs), bool)
    last = (np.arange(time) == time - 1)[:, None] | flags
    return Row(number[..., None].astype(np.float32), number.astype(np.int32),
               number.astype(np.float32), flags, last)


def same(a, b):
    assert jax.tree.structure(a) == jax.tree.structure(b)
    jax.tree.map(
        lambda x, y: np.testing.assert_array_equal(np.asarray(x), np.asarray(y), strict=True), a, b)


def random_episodes(env, steps: int) -> list[dict]:
    """Episodes of four environments under random actions, in Minari's form: with the observation
    after the last step."""
    algo = jf.DQN().bind(env.spec)
    keys = random.split(jax.random.key(5), 3)

    def play():
        actor = rollout.init(env, algo, keys[0], 4)
        noise = rollout.draw(env, algo, keys[1:], steps, 4, jnp.int32(0))
        return rollout.collect(env, algo, algo.init(keys[2]), actor, noise, ZERO, "random")[1].steps

    s = jax.tree.map(np.asarray, quick(play))
    done, episodes = s.terminated | s.truncated, []
    for b in range(4):
        ends = np.flatnonzero(done[:, b]) + 1
        for i, j in zip([0, *ends], [*ends, steps], strict=True):
            if i < j:
                cut = lambda x: x[i:j, b]  # noqa: B023
                joined = lambda o, n: np.concatenate([cut(o), cut(n)[-1:]])  # noqa: B023
                obs = jax.tree.map(joined, s.obs, s.next_obs)
                parts = zip(("actions", "rewards", "terminations", "truncations"),
                            map(cut, (s.action, s.reward, s.terminated, s.truncated)),
                            strict=True)  # fmt: skip
                episodes.append({"observations": obs, **dict(parts)})
    return episodes


DQN = jf.DQN(batch_size=64, learning_rate=1e-2, anneal_learning_rate=True, discount=0.9,
             hidden=(16,), target_period=10)
