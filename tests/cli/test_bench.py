"""`jaxrl-fast bench`: rows, files and bad input."""

from __future__ import annotations

import json

import pytest

from jaxrl_fast.bench import rows
from jaxrl_fast.bench.race import Loop


@pytest.fixture
def small(monkeypatch):
    """One more row, of two loops, and no cache setting of the process is changed."""
    loop = lambda name: Loop(name, 10, lambda: lambda: None)
    make = lambda options, notes: [loop("jaxrl_fast"), loop("other")]
    monkeypatch.setitem(rows.ROWS, "tiny", rows.Row("nothing", make))


def test_a_comparison_and_its_files(run_cli, small, tmp_path):
    files = ("--json", str(tmp_path / "b.jsonl"), "--picture", str(tmp_path / "b.png"))
    code, out, err = run_cli("bench", "tiny", "--turns", "2", "--busy", *files)
    (line,) = map(json.loads, (tmp_path / "b.jsonl").read_text().splitlines())
    assert (code, err) == (0, "") and line["peer"] == "other" and len(line["turns"]) == 2
    assert "nothing" in out and (tmp_path / "b.png").exists()


@pytest.mark.parametrize(
    ("flags", "error"),
    [
        (("tini",), ", 'tiny', got 'tini'; did you mean 'tiny'?"),
        (("--turns", "0"), "--turns must be an integer from 1 to 100"),
        (("--scale", "nan"), "--scale must be a finite number in [0.001, 100]"),
        (("--rejax", "/nowhere"), "--rejax must be the folder of a checkout"),
        (("--json", "/"), "--json must be the name of a file"),
    ],
)
def test_bad_flags(flags, error, run_cli, small):
    code, out, err = run_cli("bench", *flags)
    assert (code, out, err.count("\n")) == (2, "", 1) and error in err


def test_a_busy_machine(run_cli, small, another_program):
    code, out, err = run_cli("bench", "tiny")
    assert (code, out) == (2, "") and "the device must be idle" in err
