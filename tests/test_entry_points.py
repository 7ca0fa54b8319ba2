"""Registries: names of ours, of a program and of installed packages; a package that fails to load
breaks no other."""

from __future__ import annotations

import sys
import warnings

import pytest

import jaxrl_fast as jf
from helpers import packages
from jaxrl_fast.algorithms import ALGORITHMS
from jaxrl_fast.cli import command as cli
from jaxrl_fast.errors import ConfigError
from jaxrl_fast.registry import Registry, same_definition

MODULE = (
    "from jaxrl_fast import DQN, settings\n@settings\nclass Slow(DQN):\n    '''DQN, slowly.'''\n   "
    " name = 'slow-dqn'\n"
)


def numbers(**ours):
    def check(name, value):
        if not isinstance(value, int):
            raise ConfigError("number", value, "an integer")

    return Registry("number", "toy.numbers", ours, check)


@pytest.fixture
def place(tmp_path, monkeypatch):
    monkeypatch.syspath_prepend(str(tmp_path))
    before = set(sys.modules)
    yield tmp_path
    for name in set(sys.modules) - before:
        if str(getattr(sys.modules[name], "__file__", "") or "").startswith(str(tmp_path)):
            del sys.modules[name]


def toys(place, **values):
    packages.install(place, "toys", {"toy.numbers": values},
                     {"toy_numbers.py": "two = 2\ntext = 'x'\n",
        "broken.py": "1 / 0\n"})


def test_names_of_all_three_kinds():
    known = numbers(one=1, path="sys:maxsize")
    known.add("five", 5)
    assert known.names() == ["one", "path", "five"] and "five" in known and "six" not in known
    assert (
        known.get("one") == 1 and known.get("path") == sys.maxsize
        and dict(known.items())["five"] == 5
    )
    with pytest.raises(
        ConfigError, match=r"number must be one of one, path, five, got 'onn'; did you mean 'one'"
    ):
        known.get("onn")
    for name, value, valid in (("six", "6", "an integer"), ("one", 7, "not taken"),
                               ("five", 6, "not taken")):
        with pytest.raises(ConfigError, match=valid):
            known.add(name, value)


def test_a_definition_may_come_twice():
    def of(module, name="Walk"):
        return type(name, (), {"__module__": module, "__qualname__": name})

    assert (
        same_definition(of("a"), of("a")) and same_definition(of("__main__"), of("a"))
        and same_definition("a:Walk", of("a"))
    )
    assert (
        not same_definition(of("a"), of("b")) and not same_definition(of("a"), of("a", "Run"))
        and same_definition(3, 3)
    )


def test_a_package_adds_names_and_is_imported_when_one_is_used(place):
    toys(place, two="toy_numbers:two")
    known = numbers(one=1)
    assert known.names() == ["one", "two"] and "two" in known and known.get("one") == 1
    assert "toy_numbers" not in sys.modules
    assert known.get("two") == 2 and dict(known.items()) == {"one": 1, "two": 2}


def test_failing_entry_points_are_named_and_skipped(place):
    toys(place, two="toy_numbers:two", bad="broken:x", gone="toy_numbers:gone",
         text="toy_numbers:text", odd="???")
    known = numbers(one=1)
    with warnings.catch_warnings(record=True) as caught:
        warnings.simplefilter("always")
        assert dict(known.items()) == {"one": 1, "two": 2}
    said = sorted(str(w.message) for w in caught)
    assert len(said) == 4 and not any("\n" in text for text in said)
    reasons = {"bad": "ZeroDivisionError", "gone": "no attribute 'gone'", "odd": "AttributeError",
               "text": "an integer"}
    for text, (name, reason) in zip(said, reasons.items(), strict=True):
        assert (
            text.startswith(f"left out: number must be one that loads, got '{name}'")
            and reason in text
        )
        assert "of the package toys" in text
    with pytest.raises(ConfigError,
        match=r"number must be one that loads, got 'bad'; broken:x of the package toys does not: "
              r"ZeroDivisionError"):
        known.get("bad")


def test_a_package_cannot_take_a_name_of_ours(place):
    toys(place, one="toy_numbers:two")
    with pytest.warns(UserWarning,
        match=r"left out: number 'one' of toy_numbers:two of the package toys, a name that is "
              r"taken"):
        assert dict(numbers(one=1).items()) == {"one": 1}


def test_an_algorithm_of_a_package_is_known_by_its_name(place, capsys):
    entries = {"slow-dqn": "slow_dqn:Slow", "other": "slow_dqn:Slow", "broken": "broken:x"}
    packages.install(place, "slow", {"jaxrl_fast.algorithms": entries},
                     {"slow_dqn.py": MODULE, "broken.py": "1 / 0\n"})
    assert {"slow-dqn", "other"} <= set(jf.list_algorithms()) and "slow_dqn" not in sys.modules
    assert ALGORITHMS.get("slow-dqn").__name__ == "Slow"
    with pytest.raises(ConfigError, match="'other', as its entry point"):
        ALGORITHMS.get("other")
    assert cli.main(["list", "algorithms"]) == 0
    out, err = capsys.readouterr()
    assert "  slow-dqn DQN, slowly." in out and "broken" not in out
    assert sum("broken:x of the package slow does not: ZeroDivisionError" in line
               for line in err.splitlines()) == 1
    assert cli.main(["train", "slow-dqn", "CartPole-v1", "--help"]) == 0
    capsys.readouterr()
    assert cli.main(["completion", "bash"]) == 0
    script = capsys.readouterr().out
    assert "'slow-dqn'" in script and "broken" not in script


def test_a_run_of_a_package_s_algorithm_is_read_without_import(place):
    from jaxrl_fast.runs import config_json

    packages.install(place, "slow", {"jaxrl_fast.algorithms": {"slow-dqn": "slow_dqn:Slow"}},
                     {"slow_dqn.py": MODULE})
    entry = config_json.encode_algorithm(ALGORITHMS.get("slow-dqn")())
    del sys.modules["slow_dqn"]
    ALGORITHMS.loaded.clear()
    assert type(config_json.decode_algorithm(entry)).__module__ == "slow_dqn"


CORRIDORS = """
import jax.numpy as jnp
from jaxrl_fast.envs.native.cartpole import CartPole
from jaxrl_fast.envs import table

SOURCE = table("corridor/",
               {"corridor/short": CartPole, "corridor/long": "corridor_envs:make_long"})
OTHER = table("", {"CartPole-v2": CartPole})

def make_long(length: float = 2.0):
    return CartPole(length=length)
"""


def test_a_source_of_a_package(place, capsys):
    entries = {"corridor": "corridor_envs:SOURCE", "other": "corridor_envs:OTHER",
               "broken": "broken:x", "brax": "broken:x"}
    packages.install(place, "corridors", {"jaxrl_fast.environments": entries},
                     {"corridor_envs.py": CORRIDORS, "broken.py": "1 / 0\n"})  # fmt: skip
    assert jf.make("CartPole-v1") and jf.make("probe/masked") and "corridor_envs" not in sys.modules
    with pytest.warns(UserWarning,
                      match=r"left out: environment source 'brax' of broken:x .*, a name that is "
                            r"taken"):
        env = jf.make("corridor/long", length=3.0, time_limit=7)
    assert (
        env is jf.make("corridor/long", length=3.0, time_limit=7)
        and env.spec.max_episode_steps == 7
    )
    assert jf.make("corridor/short").length == 0.5
    assert cli.main(["list", "environments"]) == 0
    out, err = capsys.readouterr()
    assert "  corridor\n    corridor/short  corridor/long\n" in out
    assert sum("left out" in line for line in err.splitlines()) == 2  # other, broken
    for name, valid in (
        ("corridor/shrt", "did you mean 'corridor/short'"),
        ("broken/x", "broken:x of the package corridors does not: Zero"),
        ("other/x", "other/, as its entry point"), ("nothing/x", "jaxrl-fast list"),
    ):  # fmt: skip
        with pytest.raises(ConfigError, match=valid):
            jf.make(name)
