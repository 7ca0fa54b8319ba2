"""A name that is none is met by the one that was meant, of whatever source; nothing is imported for
it."""

from __future__ import annotations

import gymnasium
import pytest

import jaxrl_fast as jf
from helpers import fresh
from jaxrl_fast.envs import sources, suggest
from jaxrl_fast.envs.gymnax import loading
from jaxrl_fast.errors import ConfigError

MEANT = [
    ("LunarLander-v3", "gym:LunarLander-v3"), ("LunarLander", "gym:LunarLander-v3"),
    ("gum:LunarLander-v2", "gym:LunarLander-v3"), ("gym:ALE/Pong-v5", "ale:Pong"),
    ("ALE/Pong-v5", "ale:Pong"), ("BreakoutNoFrameskip-v4", "ale:Breakout"),
    ("space_invaders", "ale:SpaceInvaders"), ("ale:Pon", "ale:Pong"), ("ant", "brax/ant"),
    ("brax:ant", "brax/ant"), ("brax_ant", "brax/ant"), ("brax/Antt", "brax/ant"),
    ("Ant-v4", "gym:Ant-v5"), ("CartPole-v0", "CartPole-v1"), ("cartpole-v1", "CartPole-v1"),
    ("gymnax:Catch-bsuit", "gymnax:Catch-bsuite"), ("probe/dic", "probe/dict"),
    ("playground:CartpoleBalance", "playground/CartpoleBalance"),
    ("CartpoleBalance", "playground/CartpoleBalance"), ("Swimmer-v4", "gym:Swimmer-v5"),
    ("Blackjack-v1", "gym:Blackjack-v1"), ("minatar-breakout", "Breakout-MinAtar"),
    ("MinAtar/Breakout-v1", "Breakout-MinAtar"), ("minatar-breakot", "Breakout-MinAtar"),
    ("minatar_space_invaders", "SpaceInvaders-MinAtar"), ("bsuite-catch", "Catch-bsuite"),
    ("gymnax/CartPole-v1", "gymnax:CartPole-v1"), ("gymnax-acrobot", "gymnax:Acrobot-v1"),
    ("gymnax:minatar-asterix", "gymnax:Asterix-MinAtar"), ("minatar-frogger", "ale:Frogger"),
    ("atari:Brekout", "atari:breakout"),
]  # fmt: skip


@pytest.mark.parametrize(("name", "meant"), MEANT)
def test_the_first_suggestion_is_right(name, meant, monkeypatch):
    # there once another test has imported ale_py
    monkeypatch.delitem(gymnasium.registry, "ALE/Pong-v5", raising=False)
    with pytest.raises(ConfigError, match=f"did you mean '{meant}'"):
        jf.make(name)


def test_a_users_own_id_is_suggested_beside_ales_game(monkeypatch):
    own = gymnasium.envs.registration.EnvSpec("Hangman-v0", entry_point="mine:Hangman")
    monkeypatch.setitem(gymnasium.registry, "Hangman-v0", own)
    with pytest.raises(ConfigError, match="did you mean 'gym:Hangman-v0'"):
        jf.make("Hangman-v0")


@pytest.mark.parametrize("name", ["gym:mine/Castle-v1", "gym:mine/Casle-v0", "mine/Castle-v0"])
def test_a_users_own_id_with_a_namespace_is_suggested(name, monkeypatch):
    own = gymnasium.envs.registration.EnvSpec("mine/Castle-v0", entry_point="mine:Castle")
    monkeypatch.setitem(gymnasium.registry, "mine/Castle-v0", own)
    with pytest.raises(ConfigError, match="did you mean 'gym:mine/Castle-v0'"):
        jf.make(name)


@pytest.mark.parametrize(("name", "meant"), [
    ("gymnax:MineG-v1", "MineG-v0"), ("gymnax:mineg", "MineG-v0"), ("MineG-v1", "MineG-v0"),
    ("gymnax:Coridor", "Corridor"), ("gymnax:CartPoll-v1", "CartPole-v1"),
])  # fmt: skip
def test_gymnaxs_own_and_a_users_registered_names_are_suggested_alike(name, meant, monkeypatch):
    for own in ("MineG-v0", "Corridor"):
        monkeypatch.setitem(loading.gymnax().registration._registry, own, object)
    with pytest.raises(ConfigError, match=f"did you mean 'gymnax:{meant}'"):
        jf.make(name)


@pytest.mark.parametrize("name", ["gymnax/CartPole-v1", "gymnax/Breakout"])
def test_each_name_is_suggested_once(name):
    names, _ = suggest.best(name)
    assert len(set(names)) == len(names) > 1


def test_a_users_name_is_no_task_of_gymnax(monkeypatch):
    monkeypatch.setitem(sources.USER, "FooBar", object)
    assert "gymnax:FooBar" not in suggest.best("gymnax/FooBar")[0]


@pytest.mark.parametrize("name", ["xyz", "my_envs:World", "", "-v1", "::"])
def test_distant_names_get_no_suggestion(name):
    assert suggest.suggest(name) == ""


def test_the_ids_that_are_known_by_heart_are_gymnasiums_and_ales():
    from jaxrl_fast.envs.host import ale_adapter

    assert {name.removeprefix("gym:") for name in suggest.GYMNASIUM} <= set(gymnasium.registry)
    assert all(ale_adapter.rom_of(name) for name in suggest.ATARI)


@pytest.mark.parametrize("name", ["LunarLandr-v3", "gym:LunarLandr-v3", "CartPol-v1",
                                  "Pendulum", "ant", "gym:ALE/Pong-v5", "LunarLander-v4"])
def test_a_preset_of_a_misspelled_environment_is_no_default(name):
    with pytest.raises(ConfigError, match="did you mean"):
        jf.preset("ppo", name)


@pytest.mark.parametrize(
    "name", ["LunarLander-v3", "gym:Hopper-v5", "gym:MyLander-v0", "my_envs:World",
             "gym:my_envs:CartPole-v7", "gym:Ant-v4", "gym:phys2d/CartPole-v1",
             "gym:tabular/Blackjack-v0", "CartPole-v0", "Ant-v5", "Pong", "nothing"])
def test_a_preset_of_any_other_has_tuned_settings_or_the_defaults(name):
    assert jf.preset("dqn", name).name == "dqn"


def test_a_guess_imports_nothing():
    code = (
        "import sys, jaxrl_fast as jf\n"
        "for name in ('LunarLander-v3', 'brax:ant', 'Catch', 'Pongg'):\n"
        "    try: jf.make(name)\n"
        "    except ValueError as error: assert 'did you mean' in str(error)\n"
        "assert not {'gymnax', 'gymnasium', 'brax', 'ale_py', 'mujoco_playground'} & "
        "set(sys.modules)"
    )
    fresh.check(code)
