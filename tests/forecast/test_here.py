"""A calibration, and its scaling to the whole run."""

from __future__ import annotations

import dataclasses

import pytest

import jaxrl_fast as jf
from jaxrl_fast.engine.config import RunConfig
from jaxrl_fast.engine.prepared import prepare
from jaxrl_fast.forecast import here
from jaxrl_fast.forecast.amounts import Range
from jaxrl_fast.forecast.calibrate import Calibration, calibrate, short_rows
from jaxrl_fast.runs.train import at_start

FOUND = Calibration(
    compile=8.0, cached=2.0, warmup=1.0, iterations=(0.01, 0.02, 0.03), evaluate=1.28, episodes=128,
    length=50.0, checkpoint=0.5, end=3.0, rows=0.001, watts=60.0, temporaries=(),
)  # fmt: skip


def prepared(**settings):
    algo = jf.A2C(num_envs=4, num_steps=5, hidden=(8,))
    config = at_start(RunConfig(**{"total_steps": 200_000} | settings))
    return prepare(algo, jf.make("CartPole-v1"), config, outline=True)


def test_parts_of_a_run():
    found = here.forecast(prepared(), FOUND, price=3.6, start=2.0)
    parts = {name: x.middle for name, x in found.parts.items()}
    assert parts["start"] == 2.0 and parts["compile"] == 8.0 and found.parts["compile"].high == 10.0
    assert parts["train"] == pytest.approx(10_000 * 0.02 + 1.0)
    assert found.parts["train"].low == pytest.approx(10_000 * 0.01 + 1.0)
    played = found.parts["evaluate"]  # ten, of such episodes up to the time limit
    assert (played.low, played.high) == pytest.approx((10 * 1.28, 10 * 1.28 * 500 / 100))
    assert found.seconds.middle == pytest.approx(sum(parts.values()))
    assert found.cost.middle == pytest.approx(found.seconds.middle * 0.001)
    assert found.joules.middle == pytest.approx(60 * found.seconds.middle)
    assert found.steps_per_second.middle == pytest.approx(20 / 0.02)


@pytest.mark.parametrize(("same", "expected"), [(True, 8.0), (False, 10.0)])
def test_other_programs_are_compiled_anew(same, expected):
    assert here.compile_seconds(FOUND, 1, same) == Range(8.0, expected, 10.0)
    assert here.same_programs(prepared()) and not here.same_programs(prepared(total_steps=10**8))


def test_checkpoints_are_counted_by_their_minutes():
    writing = lambda m: here.forecast(prepared(checkpoint_minutes=m), FOUND).parts["write"].middle
    often, seldom = writing(0.1), writing(60.0)
    assert often > seldom + 0.5 * 20


def test_evaluations_of_a_run():
    assert here.count_evaluations(prepared().grid) == 10
    assert here.count_evaluations(prepared(eval_every=0).grid) == 1
    assert here.count_evaluations(prepared(eval_every=150_000).grid) == 2  # and one at the end


def test_a_calibration_has_the_programs_of_the_run_and_short_rows():
    algo, env = jf.A2C(num_envs=4, num_steps=5, hidden=(8,)), jf.make("CartPole-v1")
    config = RunConfig(total_steps=10**9)
    assert short_rows(algo, env, config) == 256 * 20
    short = dataclasses.replace(config, total_steps=10_000)
    assert short_rows(algo, env, short) == 100  # the run's own


@pytest.mark.matrix("tests/cli/test_forecast.py::test_a_forecast_here")
def test_a_calibration_of_a_real_run(monkeypatch, tmp_path):
    algo = jf.DQN(num_envs=2, hidden=(8,), buffer_size=1000, learning_starts=200)
    env = jf.make("CartPole-v1")
    config = RunConfig(total_steps=10_000_000, eval_episodes=4, pictures=False)
    found = calibrate(algo, env, config, seconds=0.5)
    assert found.compile > 0 and found.warmup > 0 and found.evaluate > 0 and found.end > 0
    assert len(found.iterations) >= 2 and all(0 < x < 0.1 for x in found.iterations)
    assert found.episodes == 4 and found.temporaries
    whole = here.forecast(prepare(algo, env, at_start(config), outline=True), found)
    each = sum(found.iterations) / len(found.iterations)
    assert whole.parts["train"].middle == pytest.approx(5_000_000 * each, rel=0.01)
    assert whole.fits and whole.need > 0


def test_seeds_that_take_turns_are_added():
    algo, env = jf.DQN(num_envs=2, hidden=(8,), learning_starts=200), jf.make("gym:CartPole-v1")
    configs = [at_start(RunConfig(total_steps=20_000, seeds=n)) for n in (1, 3)]
    found = [here.forecast(prepare(algo, env, x, outline=True), FOUND) for x in configs]
    one, three = ({name: x.middle for name, x in each.parts.items()} for each in found)
    assert three["train"] == pytest.approx(3 * one["train"])
    assert one["compile"] < three["compile"] < 3 * one["compile"]
    assert one["evaluate"] < FOUND.evaluate * 10  # an eighth of the steps, not 128 episodes each


def test_a_range_covers_the_slow_chunks():
    assert here.iteration_seconds((1.0,) * 20) == Range(1 / 1.1, 1.0, 1.1)
    wide = here.iteration_seconds((1.0, *(2.0,) * 18, 9.0))
    assert wide.low == 2.0 / 1.1 or wide.low == 2.0
    assert wide.low <= wide.middle <= wide.high < 9.0


def test_the_start_of_this_process_is_known_on_linux():
    assert 0 <= here.process_age() < 24 * 3600
