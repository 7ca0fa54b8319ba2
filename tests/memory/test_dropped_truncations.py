"""A replay that keeps too few of the observations behind truncated steps says so."""

from __future__ import annotations

import jax.numpy as jnp
import pytest

import jaxrl_fast as jf
from helpers.matrix import family


@jf.settings
class Cut(jf.SingleEnv):
    """Truncated every four steps, with a reward in the last one; it names no time limit."""

    limit: int = jf.setting(0, "time limit in the spec; 0: none", low=0)

    @property
    def spec(self):
        return jf.EnvSpec("cut", jf.Box(0.0, 4.0, (1,)), jf.Discrete(2), self.limit or None)

    def reset_one(self, key):
        return jnp.int32(0), jnp.zeros(1)

    def step_one(self, key, state, action):
        time = state + 1
        return (time, jnp.ones(1) * time, jnp.where(time == 4, 1.0, 0.0), jnp.bool_(False),
                time == 4)


SHORT = {"num_envs": 4, "learning_starts": 100, "hidden": (8,), "batch_size": 8}


@pytest.mark.parametrize("algo", [jf.DQN(**SHORT), jf.DQN(prioritized=True, n_step=2, **SHORT)])
@pytest.mark.parametrize("more", family([{}, {"seeds": 2}, {"groups": 2}], 1))
def test_a_replay_that_drops_truncated_steps_is_said_once(algo, more):
    with pytest.warns(UserWarning, match="the replay learns from .* truncated steps") as caught:
        jf.train(algo, Cut(), 800, eval_episodes=2, **more)
    assert sum("truncated steps" in str(w.message) for w in caught) == 1


def test_a_replay_that_keeps_truncated_steps_says_nothing(recwarn):
    jf.train(jf.DQN(**SHORT), Cut(limit=4), 800, eval_episodes=2)
    jf.train(jf.DQN(truncation_interval=4, **SHORT), Cut(), 800, eval_episodes=2)
    jf.train(jf.DQN(**SHORT), jf.make("CartPole-v1"), 800, eval_episodes=2)
    assert not [w for w in recwarn if "truncated steps" in str(w.message)]
