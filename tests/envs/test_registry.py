"""Names, settings and errors of `make`."""

from __future__ import annotations

import functools
import importlib

import jax
import pytest

from helpers import fresh
from helpers.matrix import family
from jaxrl_fast import tree
from jaxrl_fast.envs import registry
from jaxrl_fast.envs.api import Env
from jaxrl_fast.envs.base import describe
from jaxrl_fast.envs.gymnax import adapter as gymnax_adapter
from jaxrl_fast.envs.host.api import HostEnv
from jaxrl_fast.envs.native.cartpole import CartPole
from jaxrl_fast.envs.physics import brax_adapter
from jaxrl_fast.errors import ConfigError


def test_the_same_arguments_give_the_same_object():
    assert registry.make("CartPole-v1") is registry.make("CartPole-v1")
    one = registry.make("Breakout-MinAtar", max_steps_in_episode=100)
    assert one is registry.make("Breakout-MinAtar", max_steps_in_episode=100)
    assert one is not registry.make("Breakout-MinAtar")
    short = registry.make("Catch-bsuite", max_steps_in_episode=100)
    # static by identity: one program for both
    assert short.env is registry.make("Catch-bsuite").env


def test_settings_reach_the_constructor_and_the_parameters():
    env = registry.make("Breakout-MinAtar", max_steps_in_episode=100, use_minimal_action_set=False)
    assert env.spec.action.n == 6 and env.spec.max_episode_steps == 100
    assert registry.make("CartPole-v1", max_steps_in_episode=17).spec.max_episode_steps == 17
    assert registry.make("CartPole-v1", gravity=5).gravity == 5.0
    assert registry.make("Pendulum-v1", max_torque=3.0).spec.action.high == 3.0
    assert registry.make("DeepSea-bsuite", size=12).spec.max_episode_steps == 12
    assert registry.make("FrozenLake-misc", map_name="8x8").spec.observation.n == 64
    assert (
        registry.make("FourRooms-misc", use_visual_obs=True).spec.observation.shape == (13, 13, 2))
    assert registry.make("FourRooms-misc", goal_fixed=[1, 1]) is registry.make(
        "FourRooms-misc", goal_fixed=(1, 1))


def test_original_behind_a_prefix():
    assert isinstance(registry.make("CartPole-v1"), CartPole)
    assert type(registry.make("gymnax:CartPole-v1")).__name__ == "GymnaxEnv"
    assert registry.make("gymnax:Catch-bsuite").spec == registry.make("Catch-bsuite").spec


def test_settings_of_lists_defaults():
    settings = registry.settings_of("CartPole-v1")
    assert (
        settings["max_steps_in_episode"] == 500 and settings["gravity"] == 9.8
        and settings["stack"] == 1
    )
    settings = registry.settings_of("Breakout-MinAtar")
    assert settings["use_minimal_action_set"] is True and settings["max_steps_in_episode"] == 1000
    assert all(registry.settings_of(name)
               for name, row in registry.list_environments().items() if row.installed)


def test_listed_environments_name_their_source():
    # of other tests
    rows = {name: row for name, row in registry.list_environments().items() if row.source != "user"}
    assert rows["CartPole-v1"].source == "native" and rows["Catch-bsuite"].source == "gymnax"
    assert rows["probe/dict"].source == "probe" and rows["brax/ant"].source == "brax"
    assert all(r.installed for r in rows.values() if r.source != "playground")
    assert "MNISTBandit-bsuite" not in rows and len(rows) == 6 + 19 + 11 + 10 + 25


def test_register_a_class_a_function_and_a_string():
    @tree.settings
    class Mine(CartPole):
        wind: float = 0.5

    registry.register("mine", Mine)
    assert (
        registry.make("mine", wind=0.1).wind == 0.1 and registry.settings_of("mine")["wind"] == 0.5)
    registry.register("made", lambda length=0.3: CartPole(length=length))
    assert registry.make("made", length=0.7).length == 0.7
    registry.register("text", "jaxrl_fast.envs.native.cartpole:CartPole")
    assert registry.make("text", time_limit=5).spec.max_episode_steps == 5
    assert registry.list_environments()["mine"] == registry.Listed("user", True)
    registry.register("mine", Mine)  # again: the same is fine
    with pytest.raises(ConfigError, match="not taken"):
        registry.register("mine", CartPole)
    with pytest.raises(ConfigError, match="not taken"):
        registry.register("CartPole-v1", Mine)
    with pytest.raises(ConfigError, match="nonsense"):
        registry.register("nonsense", lambda: 3) or registry.make("nonsense")


def test_a_definition_may_come_twice():
    def cell(module: str):
        @tree.settings
        class Walk(CartPole):
            level: int = 0

        Walk.__module__ = module
        registry.register("walk", Walk)
        return Walk

    # a cell that runs again, a script, its import
    for module in ("walks", "walks", "__main__", "walks"):
        assert type(cell(module)()) is type(registry.make("walk", level=0))
    with pytest.raises(ConfigError, match="not taken"):
        cell("others")
    registry.register("partial", functools.partial(CartPole, length=0.3))
    assert registry.make("partial", tau=0.1).length == 0.3


def test_a_setting_of_the_wrappers_is_refused():
    @tree.settings
    class Mine(CartPole):
        time_limit: int = 7

    for factory in (Mine, lambda time_limit: CartPole(), lambda time_limit=3: CartPole()):
        with pytest.raises(ConfigError,
                           match=r"environment must be .*'time_limit'.*got 'mine': rename"):
            registry.register("mine", factory)
    @tree.settings
    class Host(HostEnv):
        time_limit: int = 5

    with pytest.raises(ConfigError, match=r"environment must be .*'time_limit'.*got 'host'"):
        registry.register("host", Host)
    registry.register("text", f"{__name__}:Stacked")
    with pytest.raises(ConfigError, match=r"environment must be .*'stack'.*got 'text'"):
        registry.make("text")


@tree.settings
class Stacked(CartPole):
    stack: int = 2


@pytest.mark.parametrize(
    ("name", "settings", "message"),
    [
        ("CartPol-v1", {}, r"environment must be .*got 'CartPol-v1'; did you mean 'CartPole-v1'"),
        ("breakout-minatar", {}, "did you mean 'Breakout-MinAtar'"),
        ("", {}, "environment"),
        (None, {}, "environment"),
        ("gymnax:CartPoll-v1", {}, "did you mean 'gymnax:CartPole-v1'"),
        ("MNISTBandit-bsuite", {}, "downloads"),
        ("gymnax:MNISTBandit-bsuite", {}, "downloads"),
        ("brax/antt", {}, "did you mean 'brax/ant'"),
        ("CartPole-v1", {"gravty": 1.0}, r"env.gravty must be .*got 1.0; did you mean 'gravity'"),
        ("CartPole-v1", {"max_steps_in_episode": 0}, "env.max_steps_in_episode must be .*got 0"),
        ("CartPole-v1", {"max_steps_in_episode": 2.5}, "env.max_steps_in_episode"),
        ("CartPole-v1", {"max_steps_in_episode": 10**12}, "env.max_steps_in_episode"),
        ("CartPole-v1", {"gravity": float("nan")}, "env.gravity"),
        ("CartPole-v1", {"gravity": "heavy"}, "env.gravity"),
        ("CartPole-v1", {"length": 0.0}, "env.length"),
        ("CartPole-v1", {"masspole": -1.0}, "env.masspole"),
        ("Breakout-MinAtar", {"max_step_in_episode": 5}, "did you mean 'max_steps_in_episode'"),
        ("Breakout-MinAtar", {"max_steps_in_episode": -1},
         "env.max_steps_in_episode must be .*got -1"),
        ("Breakout-MinAtar", {"use_minimal_action_set": 3}, "env.use_minimal_action_set"),
        ("Asterix-MinAtar", {"ramping": "yes"}, "env.ramping"),
        ("Asterix-MinAtar", {"ramp_interval": 1.5}, "env.ramp_interval"),
        ("PointRobot-misc", {"max_force": float("inf")}, "env.max_force"),
        ("DiscountingChain-bsuite", {"reward_timestep": (1, 2)}, "env.reward_timestep"),
        ("DeepSea-bsuite", {"size": 0}, "env.size"),
        ("FrozenLake-misc", {"map_name": "5x5"}, "FrozenLake-misc"),
        ("FrozenLake-misc", {"success_rate": 2.0}, "FrozenLake-misc"),
        ("MetaMaze-misc", {"maze_size": 4}, "MetaMaze-misc"),
    ],
)
def test_bad_input(name, settings, message):
    with pytest.raises(ConfigError, match=message):
        registry.make(name, **settings)


def test_a_factory_may_return_an_environment_of_make(tmp_path, monkeypatch):
    (tmp_path / "borrowed_envs.py").write_text(
        "import jaxrl_fast as jf\ndef heavy():\n    return jf.make('CartPole-v1')\n")
    monkeypatch.syspath_prepend(tmp_path)
    importlib.import_module("borrowed_envs")
    borrowed, own = registry.make("borrowed_envs:heavy"), registry.make("CartPole-v1")
    assert (describe(borrowed), describe(own)) == (("borrowed_envs:heavy", {}), ("CartPole-v1", {}))


def test_the_error_without_gymnax_names_the_package_to_install(modules):
    modules(gymnax=None)
    with pytest.raises(ConfigError, match="pip install 'gymnax"):
        registry.make("Catch-bsuite", max_steps_in_episode=77)
    rows = registry.list_environments()
    assert not rows["Catch-bsuite"].installed
    assert rows["CartPole-v1"].installed


@pytest.mark.parametrize(
    "name, settings",
    family([("gymnax:Acrobot-v1", {}), ("Reacher-misc", {}),
     ("brax/inverted_pendulum", {"randomize": "actuator.gear=0.8:1.2", "reset_pool": 3})], 2),
)  # fmt: skip
def test_make_within_a_trace(name, settings, monkeypatch):
    """Cached objects outlive the trace: no part of them may belong to it. The caches are empty
    here."""
    for module in (registry, brax_adapter, gymnax_adapter):
        for attribute, function in list(vars(module).items()):
            if hasattr(function, "cache_clear") and function.__module__ == module.__name__:
                monkeypatch.setattr(module, attribute, functools.cache(function.__wrapped__))
    made = []

    def start(key):
        made.append(registry.make(name, **settings))
        return made[-1].init(key, 2)

    traced = jax.eval_shape(start, jax.random.key(0))
    env = registry.make(name, **settings)
    assert env is made[0]
    assert jax.eval_shape(lambda key: env.init(key, 2), jax.random.key(0)) == traced


def test_native_environments_import_nothing_heavy():
    code = (
        "import sys; from jaxrl_fast.envs import registry; registry.list_environments();"
        "[registry.make(n) for key in ('native', 'probe') for n in "
        "registry.SOURCES.get(key).names];"
        "bad = {'gymnax', 'flax', 'matplotlib', 'PIL', 'seaborn', 'gymnasium', 'optax'} & "
        "set(sys.modules);"
        "assert not bad, bad"
    )
    fresh.check(code)


def test_importing_gymnax_leaves_plotting_alone():
    code = (
        "import sys; from jaxrl_fast.envs import registry; registry.make('Pong-misc');"
        "bad = {'seaborn', 'matplotlib', 'pandas', 'six'} & set(sys.modules); assert not bad, bad;"
        "import matplotlib.pyplot as plt; assert plt.plot; import gymnax, matplotlib.colors;"
        "from gymnax.environments.misc import pong; assert pong.plt.subplots and "
        "pong.colors.ListedColormap;"
        "assert type(sys.modules['matplotlib']).__name__ == 'module'"
    )
    fresh.check(code)


def test_user_environment_is_an_env():
    assert issubclass(CartPole, Env)
