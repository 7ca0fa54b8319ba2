"""`jaxrl-fast forecast`: its output, and bad input."""

from __future__ import annotations

import json

import pytest

SMALL = (
    "--algo.hidden", "8", "--algo.num-envs", "4", "--total-steps", "1e6", "--eval-episodes", "4",
    "--no-pictures",
)  # fmt: skip


def test_a_forecast_here(run_cli, tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    flags = ("--seconds", "0.5", "--busy", "--json", "--price-per-hour", "2", "--picture", "f.png")
    code, out, err = run_cli("forecast", "a2c", "CartPole-v1", *SMALL, *flags)
    (found,) = json.loads(out)["forecasts"]
    assert code == 0 and found["parts"].keys() == {"start", "compile", "train", "evaluate", "write"}
    assert found["seconds"]["low"] <= found["seconds"]["middle"] <= found["seconds"]["high"]
    assert found["cost"]["middle"] == pytest.approx(found["seconds"]["middle"] / 1800)
    assert [p.name for p in tmp_path.iterdir()] == ["f.png"]  # no run is left
    assert "picture: f.png" in err


def test_a_table_of_devices(run_cli):
    code, out, _ = run_cli("forecast", "a2c", "CartPole-v1", *SMALL, "--rent", "h100=2.5,v5e-8=9")
    assert code == 0 and "prices are yours" in out
    assert "1 x NVIDIA H100 SXM" in out and "8 x TPU v5e" in out


def test_a_forecast_for_another_device_prints_assumptions(run_cli):
    code, out, _ = run_cli("forecast", "a2c", "CartPole-v1", *SMALL, "--on", "a100")
    assert code == 0 and "assumed:" in out and "launches" in out and "data sheet" in out


@pytest.mark.parametrize(
    ("flags", "error"),
    [
        (("--price-per-hour", "cheap"), "--price-per-hour must be a number"),
        (("--price-per-hour", "-1"), "the price of an hour, a number of at least 0, got '-1'"),
        (("--on", "h101"), "did you mean 'h100'?"),
        (("--rent", "h100", "--on", "a100"), "--on must be left out with --rent"),
        (("--seconds", "0"), "--seconds must be a finite number in [0.5, 600]"),
        (("--picture", "/"), "--picture must be the name of a file"),
        (("--on", "h100", "--picture", "x.xyz"), "must be a file that ends in .png, .svg, .pdf"),
    ],
)
def test_bad_flags(flags, error, run_cli):
    code, out, err = run_cli("forecast", "ppo", "CartPole-v1", *flags)
    assert (code, out, err.count("\n")) == (2, "", 1) and error in err


def test_a_busy_machine(run_cli, another_program):
    code, out, err = run_cli("forecast", "ppo", "CartPole-v1")
    assert (code, out) == (2, "") and "--busy" in err
    assert "the device must be idle, got busy (30% of a core" in err
