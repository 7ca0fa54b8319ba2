"""Lines of JSON, table and picture of `jaxrl-fast bench`."""

from __future__ import annotations

import json

import _benchmark_tables as tabled

from jaxrl_fast.bench import report
from jaxrl_fast.bench.race import ratios_of
from jaxrl_fast.bench.rows import ROWS

MACHINE = {
    "device": "2 x cpu (cpu)", "cpu": "A chip", "cores": 2, "date": "2026-11-26 12:00:00",
    "versions": {"python": "3.11", "jax": "0.10"},
}  # fmt: skip


def raced(*seconds):
    one = lambda times: {
        "steps": 100, "seconds": times, "load": [[0.5], [1.5]], "trace": 1.0, "lower": 0.5,
        "compile": 2.0, "steps_per_second": 100 / times[0],
    }  # fmt: skip
    found = dict(zip(["jaxrl_fast", "rejax", "SBX"], map(one, seconds), strict=False))
    return {"contestants": found, "ratios": ratios_of(found)}


def test_a_line_for_each_peer_in_the_form_of_the_results(tmp_path):
    row = ROWS["sac_pendulum"]
    found = report.lines("sac_pendulum", row, raced([1.0, 1.0], [2.0, 2.0], [0.5, 0.5]), MACHINE)
    compared = [(x["peer"], x["ratio"], x["peer_value"]) for x in found]
    assert compared == [("rejax", 2.0, 50), ("SBX", 0.5, 200)]
    assert found[0]["load"] == [0.5, 1.5] and found[0]["compile"] == 3.5
    report.write(found, tmp_path / "new" / "bench.jsonl")
    read = tabled.read_results(tmp_path / "new")["bench/rows"]  # as the benchmark pages read it
    assert [tabled.speedup(x) for x in read] == [2.0, 0.5]
    assert read[0]["machine"] == "A chip, 2 cores"
    assert read[0]["versions"] == "Python 3.11, jax 0.10"


def test_a_row_without_peers():
    (one,) = report.lines("ppo_cartpole", ROWS["ppo_cartpole"], raced([1.0]), MACHINE)
    assert one["peer"] is None and one["value"] == 100 and json.dumps(one)
    assert "100 steps/s" in report.table([one])


def test_an_accelerator_is_named():
    card = MACHINE | {"device": "1 x NVIDIA H100 (gpu)"}
    assert report.describe_machine(card)["machine"] == "NVIDIA H100, 2 CPU cores"


def test_table_and_picture(tmp_path):
    row = ROWS["sac_pendulum"]
    found = report.lines("sac_pendulum", row, raced([1.0, 1.2], [2.0, 2.0]), MACHINE)
    text = report.table(found)
    assert "rejax" in text and "1.83" in text and "3.5 s" in text
    assert report.draw(found, tmp_path / "bench.png").stat().st_size > 5000


def test_a_peer_that_is_hundreds_of_times_as_fast_is_drawn(tmp_path):
    found = report.lines("sac_pendulum", ROWS["sac_pendulum"], raced([9.0], [0.01]), MACHINE)
    assert found[0]["ratio"] == 0.0011 and found[0]["turns"] == [0.00111]
    assert "0.0011" in report.table(found)
    assert report.draw(found, tmp_path / "bench.png").stat().st_size > 5000
