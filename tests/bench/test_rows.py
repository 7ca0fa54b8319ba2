"""The comparisons of `jaxrl-fast bench`: our sides run, absent peers are named with a remedy."""

from __future__ import annotations

import importlib.util

import jax
import pytest

from jaxrl_fast.bench import rows, stepping
from jaxrl_fast.bench.race import Loop
from jaxrl_fast.bench.rows import ROWS, Options

NOBODY = Options(dict.fromkeys(("purejaxrl", "rejax", "purejaxql")), scale=0.01)


@pytest.fixture
def no_packages(monkeypatch):
    """Peers' packages are not installed."""
    monkeypatch.setattr(importlib.util, "find_spec", lambda name: None)


OF_PACKAGES = ("step_brax", "host_cartpole")  # without a package there is nothing to compare


@pytest.mark.parametrize("name", [name for name in ROWS if name not in OF_PACKAGES])
def test_without_peers_ours_is_alone_and_each_peer_is_named(name, no_packages):
    notes = []
    found = ROWS[name].make(NOBODY, notes)
    assert found[0].name == "jaxrl_fast"
    assert [x.name for x in found[1:]] == (["gymnax"] if name == "step_cartpole" else [])
    assert all("--" in note or "pip install" in note for note in notes)
    assert notes or name == "step_cartpole"


def test_rows_of_missing_packages_are_empty(no_packages):
    for name in OF_PACKAGES:
        notes = []
        assert ROWS[name].make(NOBODY, notes) == [] and notes


def test_a_peer_that_fails_is_left_out():
    def broken():
        raise RuntimeError("no card")

    notes = []
    assert rows.try_make("jax", notes, broken) == []
    assert notes == ["jax does not run here: RuntimeError: no card"]


def test_our_program_takes_the_steps_that_it_counts():
    one = stepping.ours("CartPole-v1", 8, 100)
    rewards, obs = jax.jit(one.build())(*one.args(0))
    assert rewards.size == one.steps == 800 and obs.shape[-1] == 4


def test_gymnax_takes_the_same_number():
    one = stepping.gymnax("CartPole-v1", 8, 100)
    rewards, _ = jax.jit(one.build())(*one.args(0))
    assert rewards.size == one.steps == 800


def test_vectors_step_from_the_host():
    for loop in (stepping.exported(4, 10), stepping.gymnasium(4, 10)):
        assert isinstance(loop, Loop) and loop.steps == 40
        loop.build()()
