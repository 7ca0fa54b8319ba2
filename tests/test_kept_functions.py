"""What the tests keep of a run's functions, and when they forget them."""

from __future__ import annotations

import gc

import pytest

import jaxrl_fast as jf
from helpers import kept
from jaxrl_fast.engine import programs
from jaxrl_fast.engine.config import RunConfig
from jaxrl_fast.engine.prepared import prepare


def number_of_functions(width: int) -> int:
    """Begin a run and end it: the functions have a number of their own from now on."""
    algo = jf.PPO(num_envs=2, num_steps=4, hidden=(width,))
    run = programs.Programs(prepare(algo, jf.make("CartPole-v1"), RunConfig()))
    return run._functions.setdefault("number", len(programs._latest))


def test_a_later_run_of_a_kind_has_the_functions_of_the_first():
    first = number_of_functions(4)
    assert number_of_functions(5) == first + 1
    gc.collect()
    assert number_of_functions(4) == first and isinstance(programs._latest, kept.Kept)


def test_the_kind_that_was_used_least_lately_is_forgotten():
    store = kept.Kept()
    made = [programs.Functions() for _ in range(kept.MOST + 1)]
    for one in [*made[:-1], made[0], made[-1]]:
        store[:] = [one]
    assert len(store) == kept.MOST
    assert not any(x is made[1] for x in store) and any(x is made[0] for x in store)


@pytest.mark.parametrize("replaces", [True, False])
def test_functions_that_may_hold_a_replaced_name_are_forgotten(replaces, request, monkeypatch):
    """The fixture's own teardown, called before the test ends."""
    number_of_functions(4)
    if replaces:
        monkeypatch.setattr(programs, "CORES_TO_SPARE", 3)
    fixture = request.getfixturevalue("forget_patched_programs")
    fixture()
    assert bool(programs._latest) != replaces
