"""A replay that keeps too few of the observations behind truncated steps says so."""

from __future__ import annotations

import jax.numpy as jnp
import numpy as np
import pytest

import jaxrl_fast as jf
from helpers.matrix import family
from jaxrl_fast.memory.dropped import FEWEST_ENDS, dropped_truncations
from jaxrl_fast.memory.experience.files import save_memory
from jaxrl_fast.memory.ring import Row, UniformMemory


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


@pytest.mark.parametrize("algo", family(
    [jf.DQN(**SHORT), jf.DQN(prioritized=True, n_step=2, **SHORT)], 1))
@pytest.mark.parametrize("more", family([{}, {"seeds": 2}, {"groups": 2}], 1))
def test_a_run_warns_once_of_dropped_truncations(algo, more):
    with pytest.warns(UserWarning, match="the replay drops .*% of the truncated steps") as caught:
        jf.train(algo, Cut(), 800, eval_episodes=2, **more)
    assert sum("truncated steps" in str(w.message) for w in caught) == 1


def told(recwarn):
    return [w for w in recwarn if "truncated steps" in str(w.message)]


def test_a_replay_that_keeps_truncated_steps_says_nothing(recwarn):
    run = jf.train(jf.DQN(**SHORT), Cut(limit=4), 800, eval_episodes=2)
    assert int((run.state.memory.truncated & ~run.state.memory.terminated).sum()) > FEWEST_ENDS
    jf.train(jf.DQN(truncation_interval=4, **SHORT), Cut(), 800, eval_episodes=2)
    assert not told(recwarn)


@pytest.mark.matrix("test_the_seams_of_a_resumed_host_run_are_no_truncations")
def test_successors_of_a_dataset_are_no_truncations_of_the_run(recwarn, tmp_path):
    """In another layout each is a row of its own without a slot."""
    run = jf.train(jf.DQN(**SHORT), Cut(limit=4), 800, eval_episodes=2)
    save_memory(tmp_path / "experience", jf.experience(run))
    jf.train(jf.DQN(**SHORT | {"num_envs": 2}), Cut(limit=4), 400, eval_episodes=2,
             experience=tmp_path / "experience", experience_fraction=0)
    assert not told(recwarn)


def test_the_seams_of_a_resumed_host_run_are_no_truncations():
    """40 times of 4 environments: rows marked truncated, without a slot and a later truncation."""
    ring = UniformMemory(4096, 1, 4, 8)
    rows = Row(*(jnp.zeros((1, 4, *shape), dtype) for shape, dtype in (
        ((1,), float), ((), int), ((), float), ((), bool), ((), bool), ((1,), float))), ())
    mem = ring.init(rows._replace(next_obs=rows.obs))
    seams = np.zeros(mem.truncated.shape, bool)
    seams[::10] = True
    mem = mem._replace(truncated=jnp.asarray(seams))
    assert int(mem.truncated.sum()) > FEWEST_ENDS and dropped_truncations(mem) == 0.0
    one = mem._replace(next_obs=mem.next_obs._replace(owner=mem.next_obs.owner.at[2].set(41)))
    assert dropped_truncations(one) == 0.0  # four of them lie before a kept one: too few to judge
