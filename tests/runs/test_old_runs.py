"""Runs that were written when all modules lay side by side at the package's root: read, played,
gone on with.

`tests/data/before_the_move.tar.xz` holds, without pictures: `ppo` (an environment object with a
wrapper, an optimizer of optax), `dqn` (two seeds), `experience` (the replay of its second seed),
`sweep` (four members with PBT).
"""

from __future__ import annotations

import importlib
import sys
import tarfile
from pathlib import Path

import numpy as np
import pytest

import jaxrl_fast as jf
from jaxrl_fast import background
from jaxrl_fast._moved import MOVED, today
from jaxrl_fast.sweeps.results import read_sweep

DATA = Path(__file__).parents[1] / "data" / "before_the_move.tar.xz"


@pytest.fixture(scope="module")
def old(tmp_path_factory) -> Path:
    folder = tmp_path_factory.mktemp("old")
    with tarfile.open(DATA) as archive:
        archive.extractall(folder,
                           **({"filter": "data"} if hasattr(tarfile, "data_filter") else {}))
    return folder


PACKAGES = {"envs.host", "envs.physics", "envs.probes"}  # folders now: their own names are in them
NEEDS_MORE = {"ladder_torch"}  # torch


@pytest.mark.parametrize("name", sorted(MOVED.keys() - NEEDS_MORE))
@pytest.mark.filterwarnings("default::DeprecationWarning")
def test_a_module_is_found_by_its_old_name(name):
    now = importlib.import_module(today(f"jaxrl_fast.{name}"))
    spec, sys.modules[f"jaxrl_fast.{name}"] = now.__spec__, sys.modules.pop(
        f"jaxrl_fast.{name}", None)
    del sys.modules[f"jaxrl_fast.{name}"]
    if name in PACKAGES:
        found = importlib.import_module(f"jaxrl_fast.{name}")
        own = [n
               for n, x in vars(now).items()
               if getattr(x, "__module__", "") == now.__name__ and not n.startswith("_")]
        assert all(getattr(found, n) is getattr(now, n) for n in own)
        return
    with pytest.warns(DeprecationWarning,
                      match=f"^jaxrl_fast.{name} is {today(f'jaxrl_fast.{name}')} now"):
        assert importlib.import_module(f"jaxrl_fast.{name}") is now
    assert now.__spec__ is spec and now.__name__ == today(f"jaxrl_fast.{name}")


def test_moved_names_are_found_in_their_old_module():
    from jaxrl_fast.envs.host import HostEnv, HostStep, Vector

    assert importlib.import_module("jaxrl_fast.plan").plan is jf.plan
    for name in ("envs.aside", "envs.host.aside"):
        assert importlib.import_module(f"jaxrl_fast.{name}").aside is background.aside
    assert (
        HostEnv is jf.HostEnv
        and HostStep.__module__ == Vector.__module__ == "jaxrl_fast.envs.host.vector"
    )


def test_functions_of_the_package_are_not_hidden_by_modules():
    for name in ("train", "load", "evaluate", "sweep", "plan", "to_gymnasium"):
        importlib.import_module(f"jaxrl_fast.{name}")
        assert callable(getattr(jf, name))
    assert today("optax.losses") == "optax.losses" and today("jaxrl_fast") == "jaxrl_fast"


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


@pytest.mark.matrix("test_an_old_run_of_objects_loads_plays_and_resumes")
def test_an_old_population_resumes_and_gives_experience(old, tmp_path):
    run = jf.resume(old / "dqn", 112, tensorboard=False)
    assert run.env_steps == 112 and np.isfinite(run.eval_return).all()
    agent = jf.load(old / "dqn", member=1)
    assert agent.act(np.zeros(4, np.float32)) in (0, 1)
    more = dict(experience=old / "experience", experience_fraction=1.0, eval_episodes=2,
                progress=False)
    assert jf.train(agent.algo, jf.make("CartPole-v1"), 16, **more).rows


@pytest.mark.matrix("test_an_old_run_of_objects_loads_plays_and_resumes")
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
    assert (part / "result.json").exists()
    assert np.array_equal(read_sweep(old / "sweep").final, result.final)
