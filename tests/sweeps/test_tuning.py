"""Searches by Optuna: every trial is trained and told, groups and lost members included; a search
that was stopped goes on."""

from __future__ import annotations

import importlib
import json

import numpy as np
import pytest

import jaxrl_fast as jf
from helpers import runs as tools
from jaxrl_fast.cli import command as cli
from jaxrl_fast.sweeps import sweep as sweeps

tuning = importlib.import_module("jaxrl_fast.sweeps.tuning")
SAMPLE = {"algo.learning_rate": "loguniform:1e-4,1e-1", "algo.num_epochs": "choice:1,2"}


def tune(out, **settings):
    few = dict(total_steps=256, sample=SAMPLE, trials=5, members=3, log_every=64, eval_every=0,
               eval_episodes=4, pictures=False)
    return jf.tune(tools.algorithm("ppo"), tools.environment(), out=out, **few | settings)


def study(out):
    return tuning._study(tuning.import_optuna(), out, 0)


@pytest.mark.optuna
def test_every_trial_is_told_its_score(tmp_path):
    found = tune(tmp_path / "x", seeds=2)
    trials = study(tmp_path / "x").trials
    assert [t.number for t in trials] == list(range(5))
    assert all(t.state.name == "COMPLETE" for t in trials)
    for trial, settings, scores in zip(trials, found.configurations, found.final, strict=True):
        assert trial.params == settings and trial.value == pytest.approx(scores.mean())
    content = json.loads((tmp_path / "x" / "sweep.json").read_text())
    assert sorted(c for p in content["parts"] for c in p["configurations"]) == list(range(5))
    assert (tmp_path / "x" / "table.csv").exists() and (tmp_path / "x" / "best.json").exists()
    more = tune(tmp_path / "x", seeds=2, trials=6)  # the same search, longer
    assert len(more.final) == 6 and np.array_equal(more.final[:5], found.final)


@pytest.mark.optuna
def test_a_stopped_search_resumes(tmp_path):
    """Killed while the second round trains, and with a trial that was asked for and never
    written."""
    out = tmp_path / "x"

    def stop_in_the_second(session, rows):
        if len(json.loads((out / "sweep.json").read_text())["configurations"]) == 5:
            raise KeyboardInterrupt

    with pytest.raises(KeyboardInterrupt):
        tune(out, hooks=[stop_in_the_second])
    orphan = study(out).ask()
    orphan.suggest_float("algo.learning_rate", 1e-4, 1e-1, log=True)
    orphan.suggest_categorical("algo.num_epochs", [1, 2])
    content = json.loads((out / "sweep.json").read_text())
    assert len(content["configurations"]) == 5
    assert cli.main(["sweep", "--resume", str(out)]) == 0
    states = [t.state.name for t in study(out).trials]
    assert states[:5] == ["COMPLETE"] * 5 and states[5] == "FAIL" and states[6] == "WAITING"
    assert study(out).trials[6].system_attrs["fixed_params"] == orphan.params


@pytest.mark.optuna
def test_a_part_is_checked_once(tmp_path, monkeypatch):
    """Rounds do not read the parts of earlier rounds; a reopened search reads each part once."""
    read, load = [], sweeps.configs.load
    monkeypatch.setattr(sweeps.configs, "load",
                        lambda folder, *more: read.append(folder.name) or load(folder, *more))
    few = dict(trials=4, members=2, sample={"algo.learning_rate": "loguniform:1e-4,1e-1"})
    tune(tmp_path / "x", **few)
    assert read == []
    tune(tmp_path / "x", **few | {"trials": 6})
    assert read == ["00", "01"]


@pytest.mark.optuna
def test_a_lost_trial_has_failed(tmp_path):
    tune(tmp_path / "x", sample={"algo.learning_rate": "choice:1e-3,1e38"}, trials=6, members=6)
    states = {t.params["algo.learning_rate"]: t.state.name for t in study(tmp_path / "x").trials}
    assert states.get(1e-3, "COMPLETE") == "COMPLETE" and states.get(1e38, "FAIL") == "FAIL"


@pytest.mark.optuna
@pytest.mark.parametrize(
    "settings, message",
    [
        (dict(sample={}), "settings to search"), (dict(trials=0), "trials must be .*got 0"),
        (dict(members=0),
            "members must be .*got 0"),
        (dict(sample={"algo.learning_rat": "uniform:0,1"}), "did you mean"),
        (dict(sample={"algo.discount": "uniform:0.5,1.5"}), "discount must be .*got 1.5"),
        (dict(sample={"algo.num_envs": "uniform:1,8"}), "integer:LOW,HIGH or choice"),
        (dict(start_from="nothere"), "start_from must be .*nothere"),
    ],
)  # fmt: skip
def test_bad_searches(settings, message, tmp_path):
    with pytest.raises(jf.ConfigError, match=message):
        tune(tmp_path / "x", **settings)
    assert not (tmp_path / "x").exists()


@pytest.mark.optuna
def test_a_refused_search_prints_its_error_alone(tmp_path, monkeypatch, capsys):
    monkeypatch.chdir(tmp_path)
    sample = "algo.learning-rate=choice:nan,1"
    assert cli.main(["sweep", "ppo", "CartPole-v1", "--optuna", "2", "--sample", sample]) == 2
    printed = capsys.readouterr()
    assert printed.out == "" and printed.err.count("\n") == 1
    assert "learning_rate must be " in printed.err and not list(tmp_path.iterdir())


def test_without_optuna_the_pip_line_is_named(tmp_path, modules):
    modules(optuna=None)
    with pytest.raises(ImportError, match=r"pip install 'jaxrl_fast\[optuna\]'"):
        tune(tmp_path / "x")
    assert not (tmp_path / "x").exists()
