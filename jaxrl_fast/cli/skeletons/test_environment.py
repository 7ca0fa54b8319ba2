"""The environment skeleton keeps the rules of environments, and PPO learns it."""

import jaxrl_fast as jf
from jaxrl_fast.testing import check_env

import skeleton  # noqa: F401 - registers it


def test_it_conforms():
    check_env(jf.make("skeleton"))


def test_ppo_learns_it():
    run = jf.train(jf.PPO(num_envs=16, num_steps=32), jf.make("skeleton"), 40_000, progress=False)
    assert run.eval_return.mean() > 0.5
