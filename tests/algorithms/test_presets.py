"""Presets: each is a valid algorithm, and stands for its task whoever makes the environment."""

from __future__ import annotations

import json

import pytest

import jaxrl_fast as jf
from jaxrl_fast.algorithms import algorithm_class, presets
from jaxrl_fast.algorithms.preset_table import Preset
from jaxrl_fast.algorithms.presets import PRESETS, find_preset, resolve_names
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
def whole_preset(monkeypatch):
    """One preset, with settings of the run and of the environment."""
    row = Preset("ppo/CartPole-v1", {"num_envs": 2, "num_steps": 8, "hidden": (4,)},
                 {"total_steps": 64, "eval_every": 0, "eval_episodes": 2}, {"gravity": 3.0})
    monkeypatch.setattr(presets, "PRESETS", (row,))


def test_names_take_the_preset_of_algorithm_run_and_environment(whole_preset):
    found = resolve_names("ppo", "CartPole-v1", None, {"eval_episodes": 4}, {"imports": ["x"]})
    assert (found.algo.num_envs, float(found.env.gravity), found.total_steps) == (2, 3.0, 64)
    assert found.settings == {"eval_every": 0, "eval_episodes": 4}
    assert found.about == {"preset": "ppo/CartPole-v1", "imports": ["x"]}
    assert resolve_names("ppo", "CartPole-v1", 10, {}).total_steps == 10


def test_objects_pass_as_they_are_and_have_no_preset(whole_preset):
    algo, env = jf.PPO(), jf.make("Pendulum-v1")
    assert resolve_names(algo, env, None, {}) == (algo, env, None, {}, None)
    found = resolve_names(algo, "CartPole-v1", None, {})
    assert found.algo is algo and float(found.env.gravity) != 3.0 and found.about is None
    found = resolve_names("dqn", "CartPole-v1", None, {})
    assert found.algo == jf.DQN() and found.total_steps is None and found.about is None


def test_train_by_names_is_the_run_of_the_command_line(whole_preset, tmp_path, run_cli):
    code, _, said = run_cli("train", "ppo", "CartPole-v1", "--no-pictures", "--no-tensorboard",
                            "--out", str(tmp_path / "command"))
    assert code == 0, said
    run = jf.train("ppo", "CartPole-v1", out=tmp_path / "names", pictures=False, tensorboard=False)
    ours, theirs = (json.loads((tmp_path / name / "config.json").read_text())
                    for name in ("names", "command"))
    assert ours == theirs
    assert run.env_steps == 64


@pytest.mark.matrix("test_train_by_names_is_the_run_of_the_command_line")
def test_plan_and_sweep_take_the_whole_preset(whole_preset, tmp_path):
    assert jf.plan("ppo", "CartPole-v1").config.total_steps == 64
    found = jf.sweep("ppo", "CartPole-v1", grid={"algo.discount": [0.9, 0.99]},
                     out=tmp_path / "x")
    base = found.content["base"]
    assert base["preset"] == "ppo/CartPole-v1" and base["run"]["total_steps"] == 64
    assert base["environment"]["settings"]["gravity"] == 3.0


@pytest.mark.optuna
def test_a_search_takes_the_whole_preset(whole_preset, tmp_path):
    found = jf.tune("ppo", "CartPole-v1", sample={"algo.discount": "uniform:0.9,0.99"},
                    trials=2, members=2, out=tmp_path / "x")
    assert found.content["base"]["preset"] == "ppo/CartPole-v1"


@pytest.mark.parametrize(("names", "said"), [
    (("pppo", "CartPole-v1"), "did you mean 'ppo'"), (("ppo", "CartPol-v1"), "'CartPole-v1'"),
    (("ppo", ""), "environment must be "), (("CartPole-v1", "ppo"), "algorithm must be one of "),
])
def test_unknown_names_are_refused_and_nothing_is_written(names, said, place):
    sweep = lambda *names: jf.sweep(*names, grid={"algo.discount": [0.9, 0.99]})
    for call in (jf.plan, jf.train, sweep):
        with pytest.raises(jf.ConfigError, match=said):
            call(*names)
    assert not list(place.iterdir())


def test_an_algorithm_by_name_needs_the_name_of_the_environment():
    sweep = lambda *given: jf.sweep(*given, grid={"algo.discount": [0.9, 0.99]})
    for call in (jf.plan, jf.train, sweep):
        with pytest.raises(jf.ConfigError, match="algo must be an algorithm beside an env"):
            call("ppo", jf.make("CartPole-v1"))


@pytest.mark.parametrize("given", [("ppo", "CartPole-v1"), (jf.PPO(), "CartPole-v1")])
def test_a_setting_of_the_algorithm_is_sent_there(given):
    sweep = lambda *given, **settings: jf.sweep(*given, grid={"algo.discount": [0.9]}, **settings)
    for call in (jf.plan, jf.train, sweep):
        with pytest.raises(jf.ConfigError, match=r"algorithm, got 32: jf\.PPO\(num_envs=32\)"):
            call(*given, num_envs=32)
