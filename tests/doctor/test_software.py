"""Versions and requirements from given texts, and the flags and variables in force."""

from __future__ import annotations

import pytest

from jaxrl_fast.doctor import software
from jaxrl_fast.doctor.facts import Unmet


@pytest.mark.parametrize(
    ("requirement", "broken"),
    [
        ("jax<0.12,>=0.6", []),
        ("jax>=0.12", [Unmet("gymnax", "jax", ">=0.12", "0.11.2")]),
        ("absent", [Unmet("gymnax", "absent", "", "")]),
        ("absent; extra == 'test'", []),
        ("jax>=0.12; python_version < '3'", []),
        ("no requirement at all !", []),
    ],
)
def test_requirements_that_the_installation_breaks(requirement, broken):
    have = {"jax": "0.11.2"}
    version = lambda name: have.get(name, "")
    found = software.find_unmet(["gymnax"], lambda name: [requirement], version)
    assert list(found) == broken


def test_a_version_of_a_package_that_is_not_there():
    assert software.version("jax") and software.version("no-such-package") == ""
    assert software.requirements("no-such-package") == []


def test_flags_of_xla_are_read_and_left_out():
    assert software.flags("--a=1 --b '--c=x y'") == {"--a": "1", "--b": "true", "--c": "x y"}
    assert software.flags("") == software.flags("/no/such/file") == {}
    assert software.flags("--a='1") == {"--a": "'1"}
    assert software.remove_flags("--a=1 --b --c=2", ["--a", "--b"]) == "--c=2"


def test_variables_that_matter():
    assert software.variables({"NPROC": "2", "HOME": "/x"}) == {"NPROC": "2"}
