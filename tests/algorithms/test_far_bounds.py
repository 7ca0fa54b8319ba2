"""Bounds that a new policy's actions do not reach leave nothing to learn from: named once."""

from __future__ import annotations

import warnings

import jax
import jax.numpy as jnp
import numpy as np
import pytest

import jaxrl_fast as jf
from jaxrl_fast.algorithms.common.far_bounds import far_bounds

INF = np.inf
FAR = {
    "above": (jf.PPO(), jf.Box(10.0, 30.0, (1,)),
              r"action\[0\] is from 10 to 30.*clipped to 10 .*squash=True"),
    "below": (jf.A2C(), jf.Box(-30.0, -10.0, (1,)), "clipped to -10 .*squash=True"),
    "one entry": (jf.IMPALA(), jf.Box((-1.0, 3.0), (1.0, 4.0), (2,)), r"action\[1\] is from 3"),
    "scalar": (jf.PPO(), jf.Box(10.0, 30.0, ()), "action is from 10 to 30"),
    "integers": (jf.PPO(), jf.Box(3, 250, (1,), np.uint8), "clipped to 3 .*ars and es scale"),
    "no upper bound": (jf.PPO(), jf.Box(10.0, INF, (1,)), "Shift them in the environment"),
    "evolution, no upper bound": (jf.OpenES(), jf.Box(10.0, INF, (1,)), "Shift them"),
    "small deviation": (jf.PPO(initial_log_std=-3.0), jf.Box(0.5, 1.0, (1,)), "deviation 0.05"),
}
NEAR = {
    "around 0": (jf.PPO(), jf.Box(-0.01, 0.01, (1,))),
    "0 is a bound": (jf.PPO(), jf.Box(0.0, 1.0, (1,))),
    "two deviations away": (jf.PPO(), jf.Box(2.0, 3.0, (1,))),
    "wide deviation": (jf.PPO(initial_log_std=3.0), jf.Box(10.0, 30.0, (1,))),
    "squashed": (jf.PPO(squash=True), jf.Box(10.0, 30.0, (1,))),
    "one value": (jf.PPO(), jf.Box((-1.0, 7.0), (1.0, 7.0), (2,))),
    "unbounded": (jf.PPO(), jf.Box(-INF, INF, (1,))),
    "discrete": (jf.PPO(), jf.Discrete(3)),
    "evolution scales": (jf.ARS(), jf.Box(10.0, 30.0, (1,))),
    "SAC scales": (jf.SAC(), jf.Box(10.0, 30.0, (1,))),
}


def spec(action):
    return jf.EnvSpec("crane", jf.Box(-1.0, 1.0, (2,)), action, 4)


@pytest.mark.parametrize(("algo", "action", "text"), FAR.values(), ids=FAR)
def test_bounds_that_leave_out_nearly_all_first_actions_get_one_warning(algo, action, text):
    (warning,) = algo.bind(spec(action)).cautions()
    assert warning.startswith("crane: action") and "\n" not in warning
    with pytest.raises(ValueError, match=text):
        raise ValueError(warning)


@pytest.mark.parametrize(("algo", "action"), NEAR.values(), ids=NEAR)
def test_bounds_within_reach_get_no_warning(algo, action):
    assert algo.bind(spec(action)).cautions() == []


def test_the_threshold_leaves_out_99_percent_of_a_gaussian():
    drawn = np.random.default_rng(0).normal(size=100_000)
    for low, far in ((2.3, False), (2.4, True)):
        assert bool(far_bounds(spec(jf.Box(low, 9.0, (1,))), 1.0, "")) == far
        assert (np.mean(drawn < low) > 0.99) == far


@jf.settings
class Crane(jf.SingleEnv):
    """Pays for actions near 25; bounds 10 to 30."""

    @property
    def spec(self):
        return spec(jf.Box(10.0, 30.0, (1,)))

    def reset_one(self, key):
        return jnp.int32(0), jnp.zeros(2)

    def step_one(self, key, state, action):
        reward = -jnp.abs(action[0] - 25.0)
        return state + 1, jnp.zeros(2), reward, jnp.bool_(False), state >= 3


def test_a_new_run_warns_and_its_resume_does_not(tmp_path):
    algo = jf.PPO(num_envs=2, num_steps=4, num_minibatches=2, hidden=(4,))
    run = dict(out=tmp_path / "r", eval_every=0, eval_episodes=1, pictures=False, tensorboard=False)
    with pytest.warns(UserWarning, match="crane: action"):
        jf.train(algo, Crane(), 8, **run)
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        jf.resume(tmp_path / "r", 16, horizon=16)
    assert jax.tree.leaves(jf.load(tmp_path / "r").act(np.zeros((3, 2), np.float32)))[0].min() >= 10
