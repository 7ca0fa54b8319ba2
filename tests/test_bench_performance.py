"""Rows of the walk in docs/performance.md, and the page that they make."""

from __future__ import annotations

import json
import sys

import _benchmark_tables as tabled
import bench_performance as walk
import benchmark_pages as made
import pytest

RATES = {"preset": [100.0, 120.0, 90.0], "half": [150.0, 120.0, 135.0]}
PROFILE = {
    "steps_per_second": 8000.4,
    "parts": [{"title": "policy", "share": 0.004, "seconds": 1e-6},
              {"title": "optimizer", "share": 0.6, "seconds": 2.5e-4}],
    "trials": [{"flags": ["--unroll", "4"], "gain": None, "before": 0.0, "after": 0.0},
               {"flags": ["--algo.batch-size", "64"], "gain": 1.2, "before": 10.0, "after": 12.0}],
}  # fmt: skip


@pytest.fixture
def commands(monkeypatch):
    """Every command answers at once, as `jaxrl-fast` would."""
    seen = []

    def call(words, folder):
        seen.append(words)
        if words.startswith("tune-speed"):
            return "dqn: preset\n  chunk_seconds = 4.0           1.01 times the speed\nnone\n"
        out = folder / words.split("--out ")[1]
        out.mkdir()
        name, turn = out.name.rpartition("-")[::2]
        rates = next((RATES[key] for key in RATES if key in name), [50.0] * 3)
        rate = rates[int(turn)] if "run" in name else None
        (out / "result.json").write_text(json.dumps({"steps_per_second": rate}))
        (out / "profile.json").write_text(json.dumps(PROFILE))
        return ""

    found = {"forecast": 10.0, "took": 8.0, "forecasts": [9.0, 11.0],
             "command": "jaxrl-fast train dqn X"}  # fmt: skip
    monkeypatch.setattr(walk, "call", call)
    monkeypatch.setattr(walk, "compare", lambda line: found)
    return seen


def test_gains_are_medians_over_the_turns(commands, tmp_path):
    first, second, *_ = walk.trainings(tmp_path, "2e4", 3)
    assert (first["value"], "ratio" in first, first["seeds"]) == (100, False, 1)
    assert second["turns"] == [1.5, 1.0, 1.5] and second["ratio"] == 1.5
    assert [x.split(" --out ")[1] for x in commands[3:5]] == [
        "run-fewer-updates,-two-seeds-0", "run-fewer-updates,-two-seeds-1"]  # in turns


def test_the_rows_make_the_page(commands, tmp_path, monkeypatch):
    file = tmp_path / "performance.jsonl"
    monkeypatch.setattr(sys, "argv", ["walk", "--json", str(file), "--turns", "2"])
    walk.main()
    tables = tabled.read_results(tmp_path)
    text = made.page((made.TEXT / "performance.md.in").read_text(), tables, "the text")
    assert "| optimizer | 250.0 | 250.0 |" in text and "| policy" not in text
    assert "| `--algo.batch-size 64` | 10 | 12 | 1.20 |" in text
    assert "- chunk_seconds = 4.0 1.01 times the speed: 1.0 times the defaults' speed" in text
    assert "| fewer updates, two seeds | 10.0 | 8.0 | 1.25 |" in text
