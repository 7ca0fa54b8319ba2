"""A log that is shorter than its checkpoint is named by every reader of the log."""

from __future__ import annotations

import itertools
import json
import time
import warnings

import pytest

import jaxrl_fast as jf
from helpers import runs as tools
from jaxrl_fast.cli.command import main
from jaxrl_fast.logs.jsonl import read_jsonl
from jaxrl_fast.runs.logged import missing_rows, read_log
from jaxrl_fast.sweeps.report import report
from jaxrl_fast.sweeps.results import read_sweep

LACKS = r"metrics.jsonl lacks {} of the \d+ log rows before the checkpoint at [\d,]+ steps: it was"


@pytest.fixture
def run(tmp_path):
    tools.train("dqn", tmp_path / "run", pictures=False)
    return tmp_path / "run"


def cut(folder, *lines):
    """Delete lines of a log."""
    rows = (folder / "metrics.jsonl").read_bytes().splitlines(keepends=True)
    kept = [row for i, row in enumerate(rows) if i not in lines and i - len(rows) not in lines]
    (folder / "metrics.jsonl").write_bytes(b"".join(kept))


@pytest.mark.parametrize("lines", [(-1,), (1,), (2, 3), (-1, -2)])
def test_missing_rows_are_counted(run, lines):
    cut(run, *lines)
    with pytest.warns(UserWarning, match=LACKS.format(len(lines))):
        read_log(run)


def test_a_whole_log_is_read_without_a_warning(run):
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        assert read_log(run) == read_jsonl(run / "metrics.jsonl")
        cut(run, 0)  # the warm-up's row, which a checkpoint does not count
        read_log(run)


def test_a_log_that_goes_on_after_its_checkpoint_is_whole(run):
    rows = (run / "metrics.jsonl").read_text()
    last = tools.logged(run)[-1]["env_steps"]
    new = rows.splitlines()[-1].replace(f'"env_steps":{last}', f'"env_steps":{last + 7}')
    (run / "metrics.jsonl").write_text(f"{rows}{new}\n")
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        read_log(run)


@pytest.mark.parametrize("command", ["plot", "report", "compare"])
def test_a_command_warns_once_in_one_line(run, command, capsys, tmp_path):
    cut(run, -1, -2)
    flags = {"plot": [], "report": [], "compare": [str(run), "--out", str(tmp_path / "c.png")]}
    assert main([command, str(run), *flags[command]]) in (0, None)
    said = [line for line in capsys.readouterr().err.splitlines() if "warning" in line]
    assert len(said) == 1 and "lacks 2 of the" in said[0], said


@pytest.mark.parametrize("command", ["plot", "compare"])
def test_a_command_that_draws_names_a_run_without_its_log(run, command, capsys, tmp_path):
    (run / "metrics.jsonl").unlink()
    assert main([command, str(run), str(run.parent / "run"), "--out", str(tmp_path / "c.png")]) == 2
    assert f"run with a metrics.jsonl, got '{run}'; this one has none" in capsys.readouterr().err


def test_a_removed_log_is_named_by_the_report(run):
    (run / "metrics.jsonl").unlink()
    with pytest.warns(UserWarning, match=r"lacks (\d+) of the \1 log rows"):
        report(run)


def test_a_sweep_names_the_part_and_refuses_members_that_it_lacks(tmp_path):
    jf.sweep(tools.algorithm("ppo"), tools.environment(), tools.HALF, eval_episodes=2,
             grid={"algo.learning_rate": [1e-3, 1e-2]}, out=tmp_path / "sweep")
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        read_sweep(tmp_path / "sweep")
    cut(tmp_path / "sweep" / "parts" / "00", -1)
    with pytest.warns(UserWarning, match=r"parts/00/" + LACKS.format(1)):
        read_sweep(tmp_path / "sweep")
    file = tmp_path / "sweep" / "sweep.json"
    content = tools.read(file)
    for seeds, says in ((400_000, "whose part 0 has the members of"), (10**6, "of at most 1,000")):
        for run in (content["base"]["run"], *content["parts"]):
            run["seeds"] = seeds
        file.write_text(json.dumps(content))
        start = time.process_time()
        with pytest.raises(jf.ConfigError, match=says):
            read_sweep(tmp_path / "sweep")
        assert time.process_time() - start < 1  # before lists of that many members


@pytest.mark.parametrize("warmup", [0, 64])
def test_each_pattern_of_missing_rows_is_counted(warmup):
    rows, spacing = 5, 32
    ends = [warmup + spacing * (i + 1) for i in range(rows)]
    for kept in itertools.product([True, False], repeat=rows):
        there = [end for end, keep in zip(ends, kept, strict=True) if keep]
        with_warmup = there + [warmup] * bool(warmup)
        for logged in (there, with_warmup):
            found = missing_rows(logged, rows, ends[-1])
            assert (found == 0) == all(kept), (logged, found)
            assert missing_rows(logged, rows, ends[-1], spacing) == rows - sum(kept)


def test_the_middle_row_of_three_is_missed(tmp_path):
    tools.train("dqn", tmp_path / "run", pictures=False, total_steps=3 * 64, log_every=64)
    assert [row["env_steps"] for row in tools.logged(tmp_path / "run")] == [64, 128, 192]
    cut(tmp_path / "run", 1)
    with pytest.warns(UserWarning, match=LACKS.format(1)):
        read_log(tmp_path / "run")


def test_rows_of_another_spacing_before_a_resume_are_no_holes():
    assert missing_rows([64, 128, 192, 292, 392], 3, 392, 100) == 0
    assert missing_rows([100, 200, 300, 350, 400], 2, 400, 200) == 0
