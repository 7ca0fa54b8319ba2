"""The report at a width, through a pipe, and as JSON."""

from __future__ import annotations

import io
import json

import pytest

from helpers.machines import CASES, GPU, HEALTHY, facts
from jaxrl_fast.doctor import report
from jaxrl_fast.doctor.checks import advise
from jaxrl_fast.doctor.quantities import gib, si


@pytest.mark.parametrize(
    ("value", "text"),
    [(1.42e11, "142 GB/s"), (9.996e11, "1.00 TB/s"), (3.2, "3.20 B/s"), (5.03e-6, "5.03 uB/s"),
     (0.0, "0.00 B/s"), (9.99e-4, "999 uB/s"), (2e16, "20.0 PB/s")],
)  # fmt: skip
def test_numbers_with_prefixes(value, text):
    assert si(value, "B/s") == text


def test_bytes_in_binary_units():
    sizes = ["5 B", "2.0 KiB", "3.0 MiB", "1,024.0 GiB"]
    assert [gib(x) for x in (5, 2048, 3 * 2**20, 2**40)] == sizes


def printed(given) -> str:
    stream = io.StringIO()
    report.print_report(given, advise(given), 1.25, stream)
    return stream.getvalue()


def test_lines_fit_80_columns_and_lines_to_type_stay_whole(monkeypatch):
    monkeypatch.setenv("COLUMNS", "80")
    given = facts(GPU, flags={}, machine={"cores": 4, "share": 0.3})
    lines, advice = printed(given).splitlines(), advise(given)
    typed = {f"     {one.line}" for one in advice}
    assert typed <= set(lines)
    assert all(len(line) <= 80 for line in lines if line not in typed)
    assert "\x1b" not in "".join(lines) and lines[-1] == "nothing is wrong; 1.2 s"


def test_the_report_names_the_measured_limits():
    text = printed(GPU)
    for part in (
        "products TF32     400 TFLOP/s", "10.0 us queued, 20.0 us with", "gpu: 1 x NVIDIA H100",
        "H100, driver 570.1", "3 of 4 of this command's programs",
    ):  # fmt: skip
        assert part in text
    assert "the same memory" in printed(HEALTHY) and "(low" not in printed(HEALTHY)
    assert "Measured on cpu (low: the machine is busy)" in printed(facts(machine={"share": 0.3}))


@pytest.mark.parametrize("name", CASES)
def test_each_case_can_be_printed_and_is_json(name):
    given = CASES[name][0]
    advice = advise(given)
    assert all(one.line in printed(given) for one in advice)
    read = json.loads(report.as_json(given, advice, 1.25))
    assert read["ok"] == (report.count_wrong(advice) == 0)
    assert [one["line"] for one in read["advice"]] == [one.line for one in advice]
    assert read["facts"]["machine"]["cores"] == given.machine.cores and read["seconds"] == 1.25


def test_a_closed_pipe_is_the_commands_to_handle():
    class Closed(io.StringIO):
        def write(self, text):
            raise BrokenPipeError

    with pytest.raises(BrokenPipeError):
        report.print_report(HEALTHY, (), 1.0, Closed())


def test_the_report_counts_faults():
    assert printed(CASES["cache_writable"][0]).splitlines()[-1] == "1 thing wrong; 1.2 s"
    backend = printed(CASES["backend"][0])
    assert "it does not start" in backend and "Measured" not in backend
