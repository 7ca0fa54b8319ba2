"""Compiling, warming and timing the program of a run."""

from __future__ import annotations

import dataclasses

import numpy as np
import pytest

import jaxrl_fast as jf
from jaxrl_fast.engine.config import run_config
from jaxrl_fast.engine.prepared import prepare
from jaxrl_fast.errors import ConfigError
from jaxrl_fast.profiling.timing import short_row, start_timed_run, time_run, with_short_rows

PPO = jf.PPO(num_envs=4, num_steps=8, hidden=(8,), num_minibatches=1, num_epochs=1)
DQN = jf.DQN(num_envs=2, hidden=(8,), buffer_size=64, batch_size=4, learning_starts=16)


def run_of(algo, env="CartPole-v1", steps=2_000, **settings):
    return prepare(algo, jf.make(env), run_config(steps, settings))


def test_a_run_is_timed_per_iteration_without_its_compilation():
    timing = time_run(run_of(PPO), seconds=0.05)
    assert timing.steps == 32 and timing.iterations >= 1 and len(timing.calls) >= 3
    assert 0 < timing.iteration < 1 < 1000 * timing.compile
    assert timing.iteration == np.median(timing.calls)
    assert timing.steps_per_second == pytest.approx(32 / timing.iteration)


@pytest.mark.matrix("test_a_run_is_timed_per_iteration_without_its_compilation")
def test_training_goes_on_after_the_warm_up_of_a_replay():
    with start_timed_run(run_of(DQN)) as one:
        before = one.iterations
        assert before > one.prepared.grid.warmup == 8 and one.warmup > 0
        taken, chunk = one.call()
        assert (
            taken > 0
            and chunk.iterations == one.iterations == before + one.rows * one.prepared.grid.row
        )
        assert bool(np.all(chunk.finite))


def test_long_log_rows_are_shortened_for_all_members_together():
    wide = dataclasses.replace(DQN, num_envs=64, buffer_size=1024)
    long = run_of(wide, steps=64 * 100 * 960)
    assert long.grid.row >= 900
    assert with_short_rows(long).grid.row == short_row(long.grid, members=1) == 256
    assert short_row(long.grid, members=2) == 128 and short_row(long.grid, members=1000) == 1
    assert with_short_rows(run_of(DQN)).grid == run_of(DQN).grid


def test_a_run_that_does_not_fit_is_refused_before_it_is_compiled():
    with pytest.raises(ConfigError, match="must be"):
        time_run(run_of(dataclasses.replace(DQN, buffer_size=2**31 - 2)))
