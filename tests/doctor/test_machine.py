"""Reading a machine: files and tools are given as texts."""

from __future__ import annotations

import os

import pytest

from jaxrl_fast.doctor import machine
from jaxrl_fast.doctor.facts import Card


@pytest.mark.parametrize(
    ("text", "cores"), [("200000 100000", 2.0), ("50000 100000", 0.5), ("max 100000", None)]
)
def test_the_quota_of_a_container(text, cores, tmp_path):
    (tmp_path / "cpu.max").write_text(text)
    assert machine.cpu_quota(tmp_path) == cores


@pytest.mark.parametrize(("quota", "cores"), [("300000", 3.0), ("-1", None)])
def test_the_quota_of_an_older_container(quota, cores, tmp_path):
    (tmp_path / "cpu").mkdir()
    (tmp_path / "cpu/cpu.cfs_quota_us").write_text(quota + "\n")
    (tmp_path / "cpu/cpu.cfs_period_us").write_text("100000\n")
    assert machine.cpu_quota(tmp_path) == cores


def test_no_control_group_is_no_quota(tmp_path):
    assert machine.cpu_quota(tmp_path) is None


def test_available_memory_and_processor(tmp_path):
    file = tmp_path / "info"
    assert machine.available_memory(file) is None and machine.processor(file) == ""
    file.write_text("MemTotal: 9 kB\nMemAvailable:   3 kB\n")
    assert machine.available_memory(file) == 3072
    file.write_text("model name\t: Some  CPU\nflags\t\t: fpu avx avx2\n\nmodel name\t: Some CPU\n")
    assert machine.processor(file) == "Some CPU (avx2)"


def test_cards_of_the_drivers_tool():
    text = "NVIDIA H100, 570.1, 1024, 81920, 37\nNVIDIA T4, 570.1, [N/A], 15360, 0\nno devices\n"
    assert machine.read_cards(text) == (Card("NVIDIA H100", "570.1", 2**30, 80 * 2**30, 0.37),)


def test_the_share_of_a_core():
    clock, spent = iter([0.0, 0.1, 0.2, 0.4, 0.4]), iter([1.0, 1.1])
    share = machine.share_of_a_core(0.25, lambda: next(clock), lambda: next(spent))
    assert share == pytest.approx(0.25)


def test_examine_returns_plausible_facts():
    here = machine.examine()
    assert 1 <= here.cores <= here.all_cores == os.cpu_count()
    assert 0 < here.share <= 1 and 0 < here.available_bytes <= here.memory_bytes
