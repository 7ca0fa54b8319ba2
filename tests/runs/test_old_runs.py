"""Runs that were written when all modules lay side by side at the package's root: read, played,
gone on with.

`tests/data/before_the_move.tar.xz` holds, without pictures: `ppo` (an environment object with a
wrapper, an optimizer of optax), `dqn` (two seeds), `experience` (the replay of its second seed),
`sweep` (four members with PBT).
"""

from __future__ import annotations

import importlib
import tarfile
from pathlib import Path

import numpy as np
import pytest

import jaxrl_fast as jf
from jaxrl_fast.imports import MOVED, look_up
from jaxrl_fast.sweeps.results import read_sweep

DATA = Path(__file__).parents[1] / "data" / "before_the_move.tar.xz"


@pytest.fixture(scope="module")
def old(tmp_path_factory) -> Path:
    folder = tmp_path_factory.mktemp("old")
    with tarfile.open(DATA) as archive:
        archive.extractall(folder,
                           **({"filter": "data"} if hasattr(tarfile, "data_filter") else {}))
    return folder


@pytest.mark.parametrize("name", sorted(MOVED))
def test_an_old_name_leads_to_a_module(name):
    assert importlib.import_module(MOVED[name])


def test_an_old_class_path_leads_to_the_class():
    assert look_up("jaxrl_fast.envs.cartpole:CartPole", "x")[0] is type(jf.make("CartPole-v1"))


def test_an_old_run_of_objects_loads_plays_and_resumes(old):
    assert '"jaxrl_fast.envs.cartpole:CartPole"' in (old / "ppo" / "config.json").read_text()
    agent = jf.load(old / "ppo", "last")
    assert agent.act(np.zeros(4, np.float32)) in (0, 1) and agent.env.spec.max_episode_steps == 50
    assert agent.evaluate(2).ret.shape == (2,)
    run = jf.resume(old / "ppo", 96, tensorboard=False)
    assert run.env_steps == 96 and np.isfinite(run.eval_return).all() and len(run.history) == 6
    # as it was written
    assert (
        '"jaxrl_fast.envs.native.cartpole:CartPole"'
        not in (old / "ppo" / "config.json").read_text()
    )


def test_an_old_population_resumes_and_gives_experience(old, tmp_path):
    run = jf.resume(old / "dqn", 112, tensorboard=False)
    assert run.env_steps == 112 and np.isfinite(run.eval_return).all()
    agent = jf.load(old / "dqn", member=1)
    assert agent.act(np.zeros(4, np.float32)) in (0, 1)
    more = dict(experience=old / "experience", experience_fraction=1.0, eval_episodes=2,
                progress=False)
    assert jf.train(agent.algo, jf.make("CartPole-v1"), 16, **more).rows


def test_a_sweep_is_read_plotted_and_resumed(old, run_cli):
    result = read_sweep(old / "sweep")
    assert (
        len(result.configurations) == 4 and np.isfinite(result.final).any()
        and result.names == ["algo.learning_rate"]
    )
    part = old / "sweep" / "parts" / "00"
    for command in (["plot", str(part)], ["eval", str(part), "--episodes", "2"]):
        assert run_cli(*command)[0] == 0, command
    (part / "result.json").unlink()  # as if it had been killed at its end
    assert run_cli("sweep", "--resume", str(old / "sweep"))[0] == 0
    assert (part / "result.json").exists() and np.array_equal(read_sweep(old / "sweep").final,
                                                              result.final)
