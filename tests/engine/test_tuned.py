"""Settings that tune-speed found: kept by program and device, taken by new runs."""

from __future__ import annotations

import dataclasses

import pytest

import jaxrl_fast as jf
from jaxrl_fast.engine import tuned
from jaxrl_fast.engine.config import RunConfig
from jaxrl_fast.engine.prepared import prepare
from jaxrl_fast.engine.tuned import Tuned
from jaxrl_fast.errors import ConfigError

FOUND = Tuned({"unroll": 4}, 1.25)
OTHER = Tuned({"algo.shuffle": "swap"}, 1.1, same_numbers=False)
ASYNC = Tuned({"env.vectorization": "async"}, 1.5)


@pytest.fixture
def cache(tmp_path, compile_cache):
    """The compile cache's folder, an empty one."""
    compile_cache(tmp_path)
    return tmp_path


def prepared(algo=None, **settings):
    algo = algo or jf.A2C(num_envs=4, num_steps=8, hidden=(8,))
    config = RunConfig(**{"total_steps": 10_000, "horizon": 10_000} | settings)
    return prepare(algo, jf.make("CartPole-v1"), config)


def test_a_new_run_takes_kept_settings(cache):
    run = prepared()
    assert tuned.add_tuned(run) == (run, None)
    file = tuned.keep(run, FOUND)
    assert file.parent == cache / "tuned"
    after, found = tuned.add_tuned(run)
    assert found == FOUND and after.config.unroll == 4 and after.members.first.unroll == 4
    assert dataclasses.replace(after.config, unroll=None) == run.config
    tuned.forget(run)
    tuned.forget(run)
    assert tuned.add_tuned(run)[1] is None


@pytest.mark.parametrize(
    "settings", [{"total_steps": 50_000}, {"seed": 3}, {"log_every": 64}, {"eval_every": 0}]
)
def test_lengths_seeds_and_logs_share_kept_settings(cache, settings):
    tuned.keep(prepared(), FOUND)
    assert tuned.find(prepared(**settings)) == FOUND


def test_another_learning_rate_shares_kept_settings_and_another_width_does_not(cache):
    tuned.keep(prepared(), FOUND)
    same = jf.A2C(num_envs=4, num_steps=8, hidden=(8,), learning_rate=0.5)
    other = jf.A2C(num_envs=4, num_steps=8, hidden=(16,))
    assert tuned.find(prepared(same)) == FOUND and tuned.find(prepared(other)) is None
    assert tuned.find(prepared(seeds=2)) is None


def test_the_length_of_a_chunk_is_no_part_of_the_program(cache):
    tuned.keep(prepared(chunk_seconds=0.5), Tuned(FOUND.settings | {"chunk_seconds": 4.0}, 1.25))
    assert tuned.add_tuned(prepared())[0].config.chunk_seconds == 4
    after, found = tuned.add_tuned(prepared(chunk_seconds=0.1))
    assert found == FOUND and (after.config.unroll, after.config.chunk_seconds) == (4, 0.1)


def test_another_device_shares_no_kept_settings(cache, cores):
    tuned.keep(prepared(), FOUND)
    run = prepared()
    cores(99)
    assert tuned.find(run) is None


def test_the_users_settings_win(cache):
    tuned.keep(prepared(), FOUND)
    assert tuned.add_tuned(prepared(unroll=2))[0].config.unroll == 2
    assert tuned.add_tuned(prepared(tuned=False))[0].config.unroll is None


def test_settings_of_an_environment_are_taken_too(cache):
    algo = jf.A2C(num_envs=2, num_steps=8, hidden=(8,))
    config = RunConfig(total_steps=10_000, horizon=10_000)
    tuned.keep(run := prepare(algo, jf.make("gym:CartPole-v1"), config), ASYNC)
    after, found = tuned.add_tuned(run)
    assert found == ASYNC and after.env.vectorization == "async"
    own = prepare(algo, jf.make("gym:CartPole-v1", vectorization="sync"), config)
    assert tuned.add_tuned(own) == (own, None)


def test_settings_of_an_algorithm_are_taken_too(cache):
    tuned.keep(run := prepared(jf.PPO(num_envs=4, num_steps=8, hidden=(8,))), OTHER)
    after, found = tuned.add_tuned(run)
    assert found == OTHER and after.bound.memory().shuffle == "swap"
    own = prepared(jf.PPO(num_envs=4, num_steps=8, hidden=(8,), shuffle="sort"))
    assert tuned.add_tuned(own) == (own, None)


def test_settings_that_do_not_fit_this_process_are_left_out(cache):
    run = prepared(seeds=2)
    tuned.keep(run, Tuned({"devices": 2}, 1.5))  # of one that JAX has
    assert tuned.add_tuned(run) == (run, None)


def test_several_processes_take_nothing(cache, monkeypatch):
    run = prepared()
    tuned.keep(run, FOUND)
    monkeypatch.setattr(tuned.distributed, "several", lambda: True)
    assert tuned.add_tuned(run) == (run, None)


OTHERS = '{"settings": {"seed": 7}, "speed": 2, "date": ""}'


@pytest.mark.parametrize("text", ["", "{", "[]", OTHERS])
def test_a_damaged_file_is_passed_over(cache, text):
    tuned.keep(prepared(), FOUND).write_text(text)
    assert tuned.find(prepared()) is None


def test_without_a_cache_nothing_is_kept(compile_cache):
    compile_cache(None)
    assert tuned.find(prepared()) is None
    with pytest.raises(ConfigError, match="JAXRL_FAST_CACHE must be a folder or unset"):
        tuned.keep(prepared(), FOUND)


def test_a_function_has_no_name(cache):
    schedule = lambda step: 1e-3
    run = prepared(jf.A2C(num_envs=4, num_steps=8, hidden=(8,), learning_rate=schedule))
    with pytest.raises(ConfigError, match="settings must be given by values or named functions"):
        tuned.keep(run, FOUND)
    assert tuned.find(run) is None
