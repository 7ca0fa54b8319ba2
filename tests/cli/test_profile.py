"""`jaxrl-fast profile`: its files, and one line for bad input."""

from __future__ import annotations

import json

import pytest

from jaxrl_fast.cli.args import drop_replaced
from jaxrl_fast.cli.profile import as_config
from jaxrl_fast.profiling.report import LEAST

SMALL = ("--algo.num-envs", "4", "--algo.num-steps", "8", "--algo.hidden", "8",
         "--algo.num-epochs", "1", "--total-steps", "1000", "--seconds", "0.02")


@pytest.mark.matrix(
    "tests/profiling/test_measure.py::test_a_traced_program_has_instructions_that_a_profiler_sees")
def test_the_whole_command(run_cli, tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    code, out, err = run_cli("profile", "ppo", "CartPole-v1", *SMALL, "--trace", "traced", "--try",
                             "--busy")
    assert code == 0, err
    folder = tmp_path / "profiles" / "ppo-CartPole-v1-1"
    read = json.loads((folder / "profile.json").read_text())
    assert sum(part["share"] for part in read["parts"]) == pytest.approx(1)
    assert (
        read["steps_per_second"] > 0 and read["source"] == "trace"
        and read["limits"]["bandwidth"] > 0
    )
    flags = lambda part: {tuple(one["flags"]) for one in read[part]}
    assert flags("trials") == flags("advice")
    # no trial can time that; on idle cores it may be the only advice
    timed = [trial for trial in read["trials"] if trial["flags"][0] != "--chunk-seconds"]
    assert read["trials"] and all(trial["refused"] or trial["gain"] > 0 for trial in timed)
    assert (folder / "profile.png").stat().st_size > 5_000
    assert list((tmp_path / "traced").rglob("perfetto_trace.json.gz"))
    assert "loss backward" in [part["title"] for part in read["parts"]], read["parts"]
    assert all(part["title"] in out for part in read["parts"] if part["share"] >= LEAST), out
    assert "ui.perfetto.dev" in out


@pytest.mark.parametrize(
    ("flags", "message"),
    [
        (("--seconds", "0"), "--seconds must be a finite number in [0.01, 600], got 0"),
        (("--seconds", "inf"), "--seconds must be a finite number in [0.01, 600], got inf"),
        (("--out", "afile"), "--out must be a folder that can be written, got 'afile'"),
        (("--trace", "full"), "--trace must be a new or empty folder, got 'full'"),
        (("--ablation", "--seeds", "2", "--devices", "1"),
         "--ablation must be left out with several members"),
        (("--algo.num-env", "8"), "--algo.num-envs"),
    ],
)
def test_bad_input_is_one_line_and_nothing_is_written(flags, message, run_cli, tmp_path,
                                                      monkeypatch):
    monkeypatch.chdir(tmp_path)
    (tmp_path / "afile").write_text("")
    (tmp_path / "full").mkdir()
    (tmp_path / "full" / "x").write_text("")
    code, out, err = run_cli("profile", "ppo", "CartPole-v1", *SMALL[:-2], "--busy", *flags)
    assert (code, out) == (2, "") and message in err and len(err.splitlines()) == 1, err
    assert not (tmp_path / "profiles").exists()


def test_a_busy_device_is_refused_unless_asked_for(run_cli, another_program):
    code, out, err = run_cli("profile", "ppo", "CartPole-v1", *SMALL)
    assert (code, out) == (2, "") and "got busy (30% of a core" in err and "--busy" in err


def test_a_cache_that_cannot_be_written_is_named(run_cli, monkeypatch, compile_cache, tmp_path):
    compile_cache(tmp_path / "afile")
    (tmp_path / "afile").write_text("")
    monkeypatch.chdir(tmp_path)
    code, out, err = run_cli("profile", "ppo", "CartPole-v1", *SMALL, "--busy")
    assert (code, out) == (2, "") and "compile cache must be a folder that can be written" in err


def test_a_run_that_does_not_exist_is_named(run_cli, tmp_path):
    for name, hint in ((str(tmp_path / "none"), ""), ("ppoo", "; did you mean 'ppo'?")):
        code, out, err = run_cli("profile", name)
        told = f"RUN must be an existing run directory, or ALGO ENV, got '{name}'{hint}\n"
        assert (code, out) == (2, "") and err.endswith(told)


def test_a_folder_without_a_run_is_named(run_cli, tmp_path):
    code, out, err = run_cli("profile", str(tmp_path))
    assert (code, out) == (2, "") and "an existing config.json of a run" in err


def test_a_run_is_profiled_with_its_settings_beside_its_files(tmp_path):
    run = str(tmp_path)
    assert as_config([run, "--try"]) == ["--config", run, "--try", "--out", run]
    assert as_config([run, "--out=there"]) == ["--config", run, "--out=there"]
    assert as_config(["ppo", "CartPole-v1"]) == ["ppo", "CartPole-v1"]


def test_flags_of_a_suggestion_replace_the_users():
    given = ["ppo", "X", "--algo.hidden", "64", "64", "--no-algo.dueling", "--seed=3", "--unroll",
             "2"]
    assert drop_replaced(given, ["--algo.hidden", "8"]) == ["ppo", "X", *given[5:]]
    assert drop_replaced(given, ["--algo.dueling", "--seed", "--unroll"]) == given[:5]
