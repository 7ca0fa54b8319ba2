"""`jaxrl-fast tune-speed`: what it keeps, and the runs that take it."""

from __future__ import annotations

import json

import pytest

from jaxrl_fast.speed import search, trials

SMALL = (
    "--algo.hidden", "8", "--algo.num-envs", "4", "--algo.num-steps", "8", "--total-steps", "4e3",
    "--eval-episodes", "4", "--no-preset", "--no-pictures", "--no-tensorboard",
)  # fmt: skip
TUNE = SMALL[:-1]


@pytest.fixture
def cache(tmp_path, monkeypatch, compile_cache):
    compile_cache(tmp_path / "cache")
    monkeypatch.chdir(tmp_path)
    return tmp_path / "cache"


@pytest.fixture
def measured(monkeypatch):
    """measured(ratio, **how): the search compares trials so."""
    return lambda ratio, **how: monkeypatch.setattr(search, "MEASURE",
                                                    trials.Measure(ratio=ratio, **how))


def unroll(run):
    return json.loads((run / "config.json").read_text())["run"]["unroll"]


def test_runs_take_what_was_found_and_keep_it(run_cli, cache, measured, tmp_path):
    unrolled = lambda trial: trial.prepared.config.unroll
    gain = lambda best, trial: 1.48 if (unrolled(best), unrolled(trial)) == (None, 2) else 1.0
    measured(gain, equal=lambda best, trial: True)
    flags = ("--busy", "--picture", "t.png")
    code, out, err = run_cli("tune-speed", "a2c", "CartPole-v1", *TUNE, *flags)
    assert (code, err) == (0, "") and (tmp_path / "t.png").exists()
    assert "unroll = 2: 1.48 times as fast" in out and "kept in" in out
    (file,) = (cache / "tuned").iterdir()
    code, out, _ = run_cli("train", "a2c", "CartPole-v1", *SMALL, "--out", "tuned")
    assert code == 0 and "speed: unroll = 2: 1.48 times as fast" in out
    code, out, _ = run_cli("train", "a2c", "CartPole-v1", *SMALL, "--out", "plain", "--no-tuned")
    assert code == 0 and "speed:" not in out and unroll(tmp_path / "plain") is None
    code, out, _ = run_cli("train", "--config", "plain", "--tuned", "--out", "again")
    assert code == 0 and "speed:" not in out and unroll(tmp_path / "again") is None
    file.unlink()
    code, out, _ = run_cli("train", "--resume", "tuned", "--total-steps", "8e3")
    assert code == 0 and unroll(tmp_path / "tuned") == 2


def test_nothing_faster_is_kept(run_cli, cache, measured):
    measured(lambda best, trial: 1.0, equal=lambda best, trial: True)
    code, out, _ = run_cli("tune-speed", "a2c", "CartPole-v1", *TUNE, "--busy")
    assert code == 0 and "none of 6 choices is faster" in out and not (cache / "tuned").exists()


def test_other_numbers_are_taken_if_asked_for(run_cli, cache, measured):
    shuffled = lambda trial: trial.prepared.bound.shuffle == "swap"
    gain = lambda best, trial: 1.2 if shuffled(trial) and not shuffled(best) else 1.0
    measured(gain)
    # nothing else is left to try
    flags = "--unroll", "1", "--chunk-seconds", "0.5", "--no-donate", "--no-parallel-loops"
    code, _, err = run_cli("tune-speed", "ppo", "CartPole-v1", *TUNE, *flags, "--busy")
    assert code == 2 and "run must be one with a choice" in err
    found = *flags, "--busy", "--other-numbers"
    code, out, _ = run_cli("tune-speed", "ppo", "CartPole-v1", *TUNE, *found)
    assert code == 0 and "1.20 times the speed, other numbers" in out
    code, out, _ = run_cli("train", "ppo", "CartPole-v1", *SMALL, *flags, "--out", "run")
    assert code == 0 and "speed: algo.shuffle = swap: 1.20 times as fast, other numbers" in out
    config = json.loads((cache.parent / "run" / "config.json").read_text())
    assert config["algorithm"]["settings"]["shuffle"] == "swap"


def test_a_busy_machine(run_cli, cache, another_program):
    code, out, err = run_cli("tune-speed", "a2c", "CartPole-v1", *TUNE)
    assert (code, out) == (2, "") and "the device must be idle" in err


def test_without_a_cache_it_is_refused(run_cli, compile_cache):
    compile_cache(None)
    code, out, err = run_cli("tune-speed", "a2c", "CartPole-v1", *TUNE, "--busy")
    assert (code, out) == (2, "") and "JAXRL_FAST_CACHE must be a folder or unset" in err


def test_a_cache_that_cannot_be_written(run_cli, compile_cache, tmp_path):
    (tmp_path / "file").write_text("")
    compile_cache(tmp_path / "file")
    code, out, err = run_cli("tune-speed", "a2c", "CartPole-v1", *TUNE, "--busy")
    assert (code, out) == (2, "") and "compile cache must be a folder that can be written" in err
