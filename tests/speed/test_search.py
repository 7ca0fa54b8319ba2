"""The search: what it tries, that numbers stay, and what it takes."""

from __future__ import annotations

import pytest

import jaxrl_fast as jf
from jaxrl_fast.doctor.quantities import gib
from jaxrl_fast.engine import tuned
from jaxrl_fast.engine.config import RunConfig
from jaxrl_fast.engine.prepared import prepare
from jaxrl_fast.engine.tuned import choices, with_settings
from jaxrl_fast.errors import ConfigError
from jaxrl_fast.speed import trials
from jaxrl_fast.speed.search import search
from jaxrl_fast.speed.trials import Measure, Trial


def prepared(num_steps=8, env="CartPole-v1", **settings):
    algo = jf.A2C(num_envs=4, num_steps=num_steps, hidden=(8,))
    config = RunConfig(**{"total_steps": 20_000, "horizon": 20_000} | settings)
    return prepare(algo, jf.make(env), config)


CHUNK = {"chunk_seconds": [4.0]}
LAST = {"parallel_loops": [False], "donate": [False]}


@pytest.mark.parametrize(
    ("num_steps", "settings", "expected"),
    [
        (8, {}, {"unroll": [2, 4, 8]}),
        (12, {}, {"unroll": [2, 4]}),
        (1, {}, {}),
        (8, {"unroll": 2}, {}),  # the user's own
        (1, {"seeds": 2, "devices": 1}, {"batching": ["vmap"]}),
        (1, {"seeds": 2, "devices": 1, "batching": "vmap"}, {}),
    ],
)
def test_choices_depend_on_the_run(num_steps, settings, expected):
    assert choices(prepared(num_steps, **settings)) == expected | CHUNK | LAST
    own = {"chunk_seconds": 2.0, "donate": False, "parallel_loops": False}
    assert choices(prepared(num_steps, **settings, **own)) == expected


@pytest.mark.parametrize(
    ("algo", "env", "expected"),
    [
        (jf.PPO(num_envs=4, num_steps=8), "CartPole-v1", {"algo.shuffle": ["swap"]}),
        (jf.PPO(num_envs=4, num_steps=8, num_minibatches=1), "CartPole-v1", {}),
        (jf.PPO(num_envs=4, num_steps=8, shuffle="swap"), "CartPole-v1", {}),  # the user's own
        (jf.IMPALA(num_envs=4, num_minibatches=2), "CartPole-v1", {"algo.shuffle": ["swap"]}),
        (jf.PQN(num_envs=4), "CartPole-v1", {"algo.shuffle": ["swap"]}),
        (jf.DQN(num_envs=4), "CartPole-v1", {}),
        (jf.DQN(num_envs=4), "gym:CartPole-v1", {"actors": [2, 4]}),
    ],
)
def test_choices_with_other_numbers(algo, env, expected):
    run = prepare(algo, jf.make(env), RunConfig(total_steps=20_000, horizon=20_000))
    same, other = choices(run), choices(run, other_numbers=True)
    assert other == same | expected and not expected.keys() & same.keys()
    for name, values in expected.items():
        for value in values:
            assert tuned.find_user_choices(with_settings(run, {name: value})) == {name: value}


def test_environments_on_the_host_step_in_processes_or_fewer_threads(cores):
    choice = {"env.vectorization": ["async"]}
    assert choices(prepared(env="gym:CartPole-v1")) == choice | LAST
    run = with_settings(prepared(env="gym:CartPole-v1"), {"env.vectorization": "async"})
    assert run.env.vectorization == "async" and choices(run) == LAST
    cores(8)
    assert choices(prepared(env="ale:Pong")) == {"env.num_threads": [1, 2, 4]} | LAST


def test_a_run_without_a_choice_is_refused():
    with pytest.raises(ConfigError, match="run must be one with a choice among unroll, batching"):
        search(prepared(1, chunk_seconds=2.0, donate=False, parallel_loops=False), print)


def test_numbers_depend_on_program_and_seed():
    run = prepared(chunk_seconds=1e-6)
    first = Trial(run)
    again, other = Trial(run, first), Trial(with_settings(run, {"seed": 1}), first)
    longer = Trial(with_settings(run, {"chunk_seconds": 4e-6}), first)
    assert (first.rows, longer.rows) == (1, 4)
    assert trials.ratio(first, again, turns=4) > 0 and len(first.numbers) >= 4
    assert trials.equal(first, again) and not trials.equal(first, other)
    longer.call()
    for _ in range(2):
        first.call()
    assert max(longer.numbers) in first.numbers and trials.equal(first, longer)
    for trial in (first, again, other, longer):
        trial.close()


def test_a_search_ends_when_the_gain_is_out_of_reach():
    turns = []
    trial = lambda seconds: type("", (), {"call": lambda self: turns.append(seconds) or seconds})()
    assert trials.ratio(trial(1.0), trial(1.0)) == 1.0 and len(turns) == 6
    assert trials.ratio(trial(3.0), trial(1.0)) == 3.0 and len(turns) == 6 + 2 * trials.TURNS


class Fake:
    """A trial whose speed and numbers the settings decide."""

    SPEED = {None: 1.0, 2: 1.5, 4: 3.0, 8: 2.0}
    open, rows = 0, 5

    def __init__(self, prepared, like=None):
        self.prepared, self.unroll = prepared, prepared.config.unroll
        self.numbers = {1: "first", 2: "other" if self.unroll == 4 else "same"}
        Fake.open += 1

    def close(self):
        Fake.open -= 1


FAKE = Measure(Fake, lambda a, b: Fake.SPEED[b.unroll] / Fake.SPEED[a.unroll])


def test_the_fastest_with_equal_numbers_is_taken():
    told = []
    found, tried = search(prepared(), told.append, measure=FAKE)
    assert found.settings == {"unroll": 8} and found.speed == pytest.approx(2.0)
    assert [x.speed for x in tried[:3]] == pytest.approx([1.5, None, 2.0 / 1.5])
    assert "left out: other numbers" in told[1] and Fake.open == 0
    assert found.same_numbers


def test_other_numbers_are_taken_if_allowed_and_named():
    told = []
    found, tried = search(prepared(), told.append, other_numbers=True, measure=FAKE)
    assert found.settings == {"unroll": 4} and found.speed == pytest.approx(3.0)
    assert not found.same_numbers and "3.00 times as fast, other numbers" in str(found)
    assert told[1].endswith("2.00 times the speed, other numbers") and "other" not in told[0]
    assert not any(one.same_numbers for one in tried[1:])


@pytest.mark.matrix("test_numbers_depend_on_program_and_seed")
def test_loops_donation_and_a_shuffle_train_on():
    """Programs for real: swaps give other numbers, the others the same."""
    measure = Measure(ratio=lambda a, b: (a.call(), b.call(), 2.0)[2])
    algo = jf.PPO(num_envs=4, num_steps=8, num_minibatches=2, hidden=(8,))
    settings = dict(total_steps=20_000, horizon=20_000, unroll=2, chunk_seconds=1e-6)
    run = prepare(algo, jf.make("CartPole-v1"), RunConfig(**settings))
    found, tried = search(run, print, other_numbers=True, measure=measure)
    assert found.settings == {"parallel_loops": False, "donate": False, "algo.shuffle": "swap"}
    assert [one.same_numbers for one in tried] == [True, True, False] and not found.same_numbers


def test_a_choice_that_is_refused_is_named():
    def fake(prepared, like=None):
        if prepared.config.unroll == 4:
            raise ConfigError("memory", "9 GiB", "at most 5 GiB")
        return Fake(prepared)

    found, tried = search(prepared(), print, measure=Measure(fake, lambda a, b: 1.0))
    assert tried[1].reason == "memory must be at most 5 GiB, got '9 GiB'" and Fake.open == 0
    assert found.settings == {} and len(tried) == 6


def test_noise_is_not_taken():
    assert search(prepared(), print, measure=Measure(Fake, lambda a, b: 1.02))[0].settings == {}


def test_two_runs_need_the_memory_of_two():
    run = prepared()
    have = run.plan.__dict__["have"] = run.plan.need * 5 // 3
    valid = f"memory must be at most the {gib(have)} of the device for two runs"
    with pytest.raises(ConfigError, match=valid):
        search(run, print)
