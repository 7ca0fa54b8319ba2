"""A new run warns once of action bounds that its policy does not reach, or not for long."""

from __future__ import annotations

import warnings

import jax
import jax.numpy as jnp
import numpy as np
import pytest

import jaxrl_fast as jf
from jaxrl_fast.algorithms.common.action_bounds import SHIFT, warnings_of_bounds
from jaxrl_fast.runs import sentinel

INF = np.inf
SQUASH = "Set squash=True (--algo.squash)."
FAR = {
    "above": (jf.PPO(), jf.Box(10.0, 30.0, (1,)), "action[0] has bounds 10 to 30,", "10", SQUASH),
    "below": (jf.A2C(), jf.Box(-30.0, -10.0, (1,)), "bounds -30 to -10,", "-10", SQUASH),
    "one entry": (jf.IMPALA(), jf.Box((-1.0, 3.0), (1.0, 4.0), (2,)), "action[1] has", "3", SQUASH),
    "scalar": (jf.PPO(), jf.Box(10.0, 30.0, ()), "action has bounds 10 to 30,", "10", SQUASH),
    "integers": (jf.PPO(), jf.Box(3, 250, (1,), np.uint8), "bounds 3 to 250,", "3",
                 "Use ars or es: they scale actions to the bounds."),
    "no upper bound": (jf.PPO(), jf.Box(10.0, INF, (1,)), "bounds 10 to inf,", "10", SHIFT),
    "evolution, no upper bound": (jf.OpenES(), jf.Box(1.0, INF, (1,)), "of 0.1.", "1", SHIFT),
    "small deviation": (jf.PPO(initial_log_std=-3.0), jf.Box(0.5, 1.0, (1,)), "of 0.05.", "0.5",
                        SQUASH),
    "deviation of a head": (jf.PPO(initial_log_std=5.0, state_dependent_std=True),
                            jf.Box(30.0, 40.0, (1,)), "of 7.4.", "30", SQUASH),
}
WIDE = {
    "both sides": (jf.PPO(), jf.Box(-100.0, 100.0, (1,)), "action[0] has bounds -100 to 100,",
                   SQUASH),
    "one far end": (jf.A2C(), jf.Box((-1.0, 0.0), (1.0, 255.0), (2,)), "action[1] has bounds 0 to",
                    SQUASH),
    "integers": (jf.PPO(), jf.Box(0, 255, (1,), np.uint8), "bounds 0 to 255,",
                 "Use ars or es: they scale actions to the bounds."),
}
NEAR = {
    "around 0": (jf.PPO(), jf.Box(-0.01, 0.01, (1,))),
    "0 is a bound": (jf.PPO(), jf.Box(0.0, 1.0, (1,))),
    "two deviations away": (jf.PPO(), jf.Box(2.0, 3.0, (1,))),
    "wide deviation": (jf.PPO(initial_log_std=3.0), jf.Box(10.0, 30.0, (1,))),
    "squashed": (jf.PPO(squash=True), jf.Box(10.0, 30.0, (1,))),
    "wide, squashed": (jf.PPO(squash=True), jf.Box(-1e3, 1e3, (1,))),
    "wide, with its deviation": (jf.PPO(initial_log_std=3.0), jf.Box(-100.0, 100.0, (1,))),
    "narrow deviation": (jf.PPO(initial_log_std=-4.0), jf.Box(-1.0, 1.0, (1,))),
    "no bound above": (jf.PPO(), jf.Box(0.0, INF, (1,))),
    "one value": (jf.PPO(), jf.Box((-1.0, 7.0), (1.0, 7.0), (2,))),
    "unbounded": (jf.PPO(), jf.Box(-INF, INF, (1,))),
    "discrete": (jf.PPO(), jf.Discrete(3)),
    "evolution scales": (jf.ARS(), jf.Box(10.0, 30.0, (1,))),
    "SAC scales": (jf.SAC(), jf.Box(10.0, 30.0, (1,))),
}


def spec(action):
    return jf.EnvSpec("crane", jf.Box(-1.0, 1.0, (2,)), action, 4)


@pytest.mark.parametrize(("algo", "action", "text", "bound", "remedy"), FAR.values(), ids=FAR)
def test_bounds_that_leave_out_nearly_all_first_actions_get_one_warning(algo, action, text, bound,
                                                                        remedy):
    (warning,) = algo.bind(spec(action)).setting_warnings()
    assert warning.startswith("crane: action") and "\n" not in warning and text in warning
    assert warning.endswith(f"clipped to {bound}, so it cannot learn. {remedy}")


@pytest.mark.parametrize(("algo", "action", "text", "remedy"), WIDE.values(), ids=WIDE)
def test_bounds_much_wider_than_the_first_actions_get_one_warning(algo, action, text, remedy):
    (warning,) = algo.bind(spec(action)).setting_warnings()
    assert warning.startswith("crane: action") and "\n" not in warning and text in warning
    assert warning.endswith(f"It learns actions far from 0 very slowly. {remedy}")


@pytest.mark.parametrize(("algo", "action"), NEAR.values(), ids=NEAR)
def test_bounds_within_reach_get_no_warning(algo, action):
    assert algo.bind(spec(action)).setting_warnings() == []


def test_a_linear_candidate_reaches_farther_with_more_observations():
    for entries, far in ((2, True), (376, False)):
        wide = jf.EnvSpec("crane", jf.Box(-1.0, 1.0, (entries,)), jf.Box(1.0, INF, (1,)), 4)
        assert bool(jf.ARS().bind(wide).setting_warnings()) == far


def test_the_threshold_leaves_out_99_percent_of_a_gaussian():
    drawn = np.random.default_rng(0).normal(size=100_000)
    for low, far in ((2.3, False), (2.4, True)):
        assert bool(warnings_of_bounds(spec(jf.Box(low, 9.0, (1,))), 1.0, "")) == far
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


ALGO = jf.PPO(num_envs=2, num_steps=4, num_minibatches=2, hidden=(4,))
SHORT = dict(eval_every=0, eval_episodes=1, pictures=False, tensorboard=False)


def told(found):
    return [str(x.message) for x in found if "crane: action" in str(x.message)]


@pytest.fixture(autouse=True)
def as_a_new_process():
    sentinel._warn_once.cache_clear()


def test_a_new_run_warns_and_a_resume_or_a_start_from_it_does_not(tmp_path):
    with pytest.warns(UserWarning, match="crane: action"):
        jf.train(ALGO, Crane(), 8, out=tmp_path / "r", **SHORT)
    sentinel._warn_once.cache_clear()
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        jf.resume(tmp_path / "r", 16, horizon=16)
        jf.train(ALGO, Crane(), 8, start_from=tmp_path / "r", **SHORT)
    assert jax.tree.leaves(jf.load(tmp_path / "r").act(np.zeros((3, 2), np.float32)))[0].min() >= 10


@pytest.mark.parametrize(("log_std", "count"), [((0.0, 0.5), 1), ((0.0, 4.0), 0)])
def test_a_population_warns_once_if_no_member_reaches_the_bounds(log_std, count):
    with warnings.catch_warnings(record=True) as found:
        warnings.simplefilter("always")
        for _ in range(2):  # as the programs of a sweep
            jf.sweep(ALGO, Crane(), total_steps=8, seeds=1,
                     grid={"algo.initial_log_std": list(log_std)}, eval_every=0,
                     eval_episodes=1, pictures=False)
    assert len(told(found)) == count
