"""The search: what it tries, that numbers stay, and what it takes."""

from __future__ import annotations

import pytest

import jaxrl_fast as jf
from jaxrl_fast.engine.config import RunConfig
from jaxrl_fast.engine.prepared import prepare
from jaxrl_fast.errors import ConfigError
from jaxrl_fast.speed import search, trials
from jaxrl_fast.speed.trials import Trial, with_settings


def prepared(num_steps=8, env="CartPole-v1", **settings):
    algo = jf.A2C(num_envs=4, num_steps=num_steps, hidden=(8,))
    config = RunConfig(**{"total_steps": 20_000, "horizon": 20_000} | settings)
    return prepare(algo, jf.make(env), config)


@pytest.mark.parametrize(
    ("num_steps", "settings", "expected"),
    [
        (8, {}, {"unroll": [2, 4, 8]}),
        (12, {}, {"unroll": [2, 4]}),
        (1, {}, {}),
        (8, {"unroll": 2}, {}),  # the user's own
    ],
)
def test_choices(num_steps, settings, expected):
    assert search.choices(prepared(num_steps, **settings)) == expected


def test_environments_on_the_host_have_no_choices():
    assert search.choices(prepared(env="gym:CartPole-v1")) == {}


def test_a_run_without_a_choice_is_refused():
    with pytest.raises(ConfigError, match="run must be one with a choice among unroll"):
        search.search(prepared(1), print)


def test_numbers_are_those_of_the_program_and_its_seed():
    run = prepared()
    first = Trial(run)
    again, other = Trial(run, first.rows), Trial(with_settings(run, {"seed": 1}), first.rows)
    assert trials.ratio(first, again, turns=2) > 0 and len(first.numbers) == 4
    assert trials.equal(first, again) and not trials.equal(first, other)
    for trial in (first, again, other):
        trial.close()


class Fake:
    """A trial whose speed and numbers the settings decide."""

    SPEED = {None: 1.0, 2: 1.5, 4: 3.0, 8: 2.0}
    open, rows = 0, 5

    def __init__(self, prepared, rows=None):
        self.unroll = prepared.config.unroll
        self.numbers = ["first", "other" if self.unroll == 4 else "same"]
        Fake.open += 1

    def close(self):
        Fake.open -= 1


def test_the_fastest_with_equal_numbers_is_taken(monkeypatch):
    monkeypatch.setattr(search, "Trial", Fake)
    monkeypatch.setattr(search, "ratio", lambda a, b: Fake.SPEED[b.unroll] / Fake.SPEED[a.unroll])
    told = []
    found, tried = search.search(prepared(), told.append)
    assert found.settings == {"unroll": 8} and found.speed == pytest.approx(2.0)
    assert [x.equal for x in tried] == [True, False, True] and tried[1].speed is None
    assert "other numbers: left out" in told[1] and Fake.open == 0


def test_noise_is_not_taken(monkeypatch):
    monkeypatch.setattr(search, "Trial", Fake)
    monkeypatch.setattr(search, "ratio", lambda a, b: 1.02)
    assert search.search(prepared(), print)[0].settings == {}


def test_two_runs_need_the_memory_of_two(monkeypatch):
    run = prepared()
    plan = type(run.plan)
    monkeypatch.setattr(plan, "need", property(lambda self: 3 * 2**30))
    run.plan.__dict__["have"] = 5 * 2**30
    with pytest.raises(ConfigError, match="memory must be at most half of the 5.0 GiB"):
        search.search(run, print)
