"""`jaxrl-fast tune-speed`: what it keeps, and the runs that take it."""

from __future__ import annotations

import json
import re
import shutil
from pathlib import Path

import pytest

from jaxrl_fast.cli import tune_speed
from jaxrl_fast.cli.train import read_plan
from jaxrl_fast.speed.trials import Measure

SMALL = (
    "--algo.hidden", "8", "--algo.num-envs", "4", "--algo.num-steps", "8", "--total-steps", "4e3",
    "--eval-episodes", "4", "--no-preset", "--no-donate", "--no-parallel-loops", "--no-pictures",
    "--no-tensorboard",
)  # fmt: skip
TUNE = SMALL[:-1]


@pytest.fixture(scope="module")
def programs(tmp_path_factory):
    """A compile cache of these tests: a trial that several make compiles once."""
    return tmp_path_factory.mktemp("programs")


@pytest.fixture
def cache(programs, tmp_path, monkeypatch, compile_cache):
    compile_cache(programs)
    monkeypatch.chdir(tmp_path)
    yield programs
    shutil.rmtree(programs / "tuned", ignore_errors=True)


@pytest.fixture
def tune(cache, capsys):
    """tune(words, ratio, **how): what the command prints if the search compares trials so."""

    def call(words, ratio, **how):
        run = read_plan([*words, *TUNE, "--busy"], "tune-speed")
        tune_speed.tune(*run, measure=Measure(ratio=ratio, **how))
        printed = capsys.readouterr()
        assert not printed.err
        return printed.out

    return call


def unroll(run):
    return json.loads((run / "config.json").read_text())["run"]["unroll"]


def test_runs_take_the_found_settings_and_keep_them(run_cli, cache, tune, tmp_path):
    unrolled = lambda trial: trial.prepared.config.unroll
    gain = lambda best, trial: 1.48 if (unrolled(best), unrolled(trial)) == (None, 2) else 1.0
    words = "a2c", "CartPole-v1", "--picture", "t.png"
    out = tune(words, gain, equal=lambda best, trial: True)
    assert (tmp_path / "t.png").exists()
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


def test_nothing_faster_is_kept(cache, tune):
    words = "a2c", "CartPole-v1", "--unroll", "1"
    out = tune(words, lambda best, trial: 1.0, equal=lambda best, trial: True)
    assert re.search(r"none of \d choices is faster", out) and not (cache / "tuned").exists()


@pytest.mark.matrix("test_runs_take_the_found_settings_and_keep_them")
def test_other_numbers_are_taken_if_asked_for(run_cli, cache, tune):
    shuffled = lambda trial: trial.prepared.bound.shuffle == "swap"
    gain = lambda best, trial: 1.2 if shuffled(trial) and not shuffled(best) else 1.0
    # nothing else is left to try
    flags = "--unroll", "1", "--chunk-seconds", "0.5", "--no-donate", "--no-parallel-loops"
    code, _, err = run_cli("tune-speed", "ppo", "CartPole-v1", *TUNE, *flags, "--busy")
    assert code == 2 and "run must be one with a choice" in err
    assert "1.20 times the speed, other numbers" in tune(
        ("ppo", "CartPole-v1", *flags, "--other-numbers"), gain)
    code, out, _ = run_cli("train", "ppo", "CartPole-v1", *SMALL, *flags, "--out", "run")
    assert code == 0 and "speed: algo.shuffle = swap: 1.20 times as fast, other numbers" in out
    config = json.loads(Path("run/config.json").read_text())
    assert config["algorithm"]["settings"]["shuffle"] == "swap"


def test_a_busy_machine(run_cli, cache, another_program):
    code, out, err = run_cli("tune-speed", "a2c", "CartPole-v1", *TUNE)
    assert (code, out) == (2, "") and "the device must be idle" in err


def test_tune_speed_is_refused_without_a_cache(run_cli, compile_cache):
    compile_cache(None)
    code, out, err = run_cli("tune-speed", "a2c", "CartPole-v1", *TUNE, "--busy")
    assert (code, out) == (2, "") and "JAXRL_FAST_CACHE must be a folder or unset" in err


def test_a_cache_that_cannot_be_written(run_cli, compile_cache, tmp_path):
    (tmp_path / "file").write_text("")
    compile_cache(tmp_path / "file")
    code, out, err = run_cli("tune-speed", "a2c", "CartPole-v1", *TUNE, "--busy")
    assert (code, out) == (2, "") and "compile cache must be a folder that can be written" in err
