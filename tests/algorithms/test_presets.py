"""Presets: each is a valid algorithm, and stands for its task whoever makes the environment."""

from __future__ import annotations

import json

import pytest

import jaxrl_fast as jf
from jaxrl_fast.algorithms import algorithm_class, presets
from jaxrl_fast.algorithms.preset_table import Preset
from jaxrl_fast.algorithms.presets import PRESETS, by_name, find_preset
from jaxrl_fast.engine.config import RunConfig
from jaxrl_fast.runs.config_json import build_algorithm


@pytest.mark.parametrize("found", PRESETS, ids=lambda found: found.name)
def test_settings_of_a_preset_are_accepted(found):
    algo = build_algorithm(algorithm_class(found.name.split("/")[0]), found.algo)
    for name, value in found.algo.items():
        assert getattr(algo, name) == value
    assert RunConfig(**found.run).total_steps == found.run["total_steps"]


@pytest.mark.parametrize(("environment", "name"), [
    ("CartPole-v1", "ppo/CartPole-v1"), ("gym:CartPole-v1", "ppo/CartPole-v1"),
    ("gymnax:CartPole-v1", "ppo/CartPole-v1"), ("envpool:CartPole-v1", "ppo/CartPole-v1"),
    ("gym:LunarLander-v3", "ppo/LunarLander-v3"), ("ale:Pong", "ppo/ale:Pong"),
    ("envpool:Pong-v5", "ppo/ale:Pong"), ("ale:Breakout", "ppo/ale:Breakout"),
    ("envpool:Breakout-v5", "ppo/ale:Breakout"), ("ale:Qbert", "ppo/ale:*"),
    ("envpool:SpaceInvaders-v5", "ppo/ale:*"), ("envpool:Ant-v5", "ppo/Ant-v5"),
    ("gym:Hopper-v5", None), ("brax/ant", "ppo/brax/ant"), ("brax/hopper", "ppo/brax/hopper"),
    ("brax/reacher", "ppo/brax/*"), ("brax/inverted_pendulum", "ppo/brax/inverted_pendulum"),
    ("playground/CartpoleBalance", "ppo/playground/Cartpole*"),
    ("playground/CartpoleSwingup", "ppo/playground/CartpoleSwingup"),
    ("playground/CheetahRun", "ppo/playground/*"), ("Freeway-MinAtar", "ppo/*-MinAtar"),
    ("Asterix-MinAtar", "ppo/Asterix-MinAtar"), ("nothing", None),
])  # fmt: skip
def test_presets_ignore_the_package_of_an_environment(environment, name):
    found = find_preset("ppo", environment)
    assert (found and found.name) == name


@pytest.mark.parametrize(("environment", "name"), [
    ("brax/inverted_pendulum", "sac/brax/inverted_pendulum"),
    ("playground/CartpoleSwingup", "sac/playground/CartpoleSwingup"), ("brax/ant", "sac/brax/*"),
    ("playground/CartpoleBalance", "sac/playground/Cartpole*"),
    ("playground/CheetahRun", "sac/playground/*"), ("Pendulum-v1", "sac/Pendulum-v1"),
])  # fmt: skip
def test_the_narrower_pattern_comes_first(environment, name):
    assert find_preset("sac", environment).name == name


def test_a_preset_holds_environment_settings():
    assert find_preset("ppo", "playground/CartpoleSwingup").env == {"action_repeat": 4}
    assert find_preset("ppo", "playground/CartpoleBalance").env == {}


@pytest.fixture
def with_all(monkeypatch):
    """One preset, with settings of the run and of the environment."""
    row = Preset("ppo/CartPole-v1", {"num_envs": 2, "num_steps": 8, "hidden": (4,)},
                 {"total_steps": 64, "eval_every": 0, "eval_episodes": 2}, {"gravity": 3.0})
    monkeypatch.setattr(presets, "PRESETS", (row,))


def test_names_take_the_preset_of_algorithm_run_and_environment(with_all):
    asked = by_name("ppo", "CartPole-v1", None, {"eval_episodes": 4}, {"imports": ["x"]})
    assert (asked.algo.num_envs, float(asked.env.gravity), asked.total_steps) == (2, 3.0, 64)
    assert asked.settings == {"eval_every": 0, "eval_episodes": 4}
    assert asked.about == {"preset": "ppo/CartPole-v1", "imports": ["x"]}
    assert by_name("ppo", "CartPole-v1", 10, {}).total_steps == 10


def test_objects_pass_as_they_are_and_have_no_preset(with_all):
    algo, env = jf.PPO(), jf.make("Pendulum-v1")
    assert by_name(algo, env, None, {}) == (algo, env, None, {}, None)
    asked = by_name(algo, "CartPole-v1", None, {})
    assert asked.algo is algo and float(asked.env.gravity) != 3.0 and asked.about is None
    asked = by_name("dqn", "CartPole-v1", None, {})
    assert asked.algo == jf.DQN() and asked.total_steps is None and asked.about is None


def test_train_by_names_is_the_run_of_the_command_line(with_all, tmp_path, run_cli):
    code, _, said = run_cli("train", "ppo", "CartPole-v1", "--no-pictures", "--no-tensorboard",
                            "--out", str(tmp_path / "command"))
    assert code == 0, said
    run = jf.train("ppo", "CartPole-v1", out=tmp_path / "names", pictures=False, tensorboard=False)
    ours, theirs = (json.loads((tmp_path / name / "config.json").read_text())
                    for name in ("names", "command"))
    assert ours == theirs
    assert run.env_steps == 64


@pytest.mark.parametrize(("names", "said"), [
    (("pppo", "CartPole-v1"), "did you mean 'ppo'"), (("ppo", "CartPol-v1"), "'CartPole-v1'"),
    (("ppo", ""), "environment must be "), (("CartPole-v1", "ppo"), "algorithm must be one of "),
])
def test_unknown_names_are_refused_with_the_nearest(names, said, place):
    sweep = lambda *names: jf.sweep(*names, grid={"algo.discount": [0.9, 0.99]})
    for call in (jf.plan, jf.train, sweep):
        with pytest.raises(jf.ConfigError, match=said):
            call(*names)
    assert not list(place.iterdir())


def test_an_algorithm_by_name_needs_the_name_of_the_environment():
    with pytest.raises(jf.ConfigError, match="algo must be an algorithm"):
        jf.plan("ppo", jf.make("CartPole-v1"))
