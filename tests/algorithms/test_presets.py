"""Presets: each is a valid algorithm, and stands for its task whoever makes the environment."""

from __future__ import annotations

import pytest

from jaxrl_fast.algorithms import algorithm_class
from jaxrl_fast.algorithms.presets import PRESETS, find_preset
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
