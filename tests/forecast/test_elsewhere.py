"""Forecasts for devices that are not here: the model against counts and speeds on record."""

from __future__ import annotations

import json
from pathlib import Path

import pytest

import jaxrl_fast as jf
from jaxrl_fast.engine.config import RunConfig
from jaxrl_fast.engine.evaluate import BLOCK
from jaxrl_fast.engine.prepared import prepare
from jaxrl_fast.errors import ConfigError
from jaxrl_fast.forecast import elsewhere, sheets
from jaxrl_fast.forecast.elsewhere import Traced
from jaxrl_fast.runs.train import at_start

RESULTS = Path(__file__).parents[2] / "docs/benchmarks/results"


def recorded(file: str, key: str) -> dict:
    rows = map(json.loads, (RESULTS / file).read_text().splitlines())
    return {row.get("program", row["what"]): row[key] for row in rows}


def prepared(algo, env, **settings):
    config = RunConfig(**{"total_steps": 500_000} | settings)
    return prepare(algo, jf.make(env), at_start(config), outline=True)


@pytest.mark.parametrize(
    ("program", "algo", "env"),
    [("a2c", "a2c", "CartPole-v1"), ("tqc", "tqc", "Pendulum-v1"), ("c51", "c51", "CartPole-v1")],
)
def test_launches_are_within_a_quarter_of_the_compiled_programs(program, algo, env):
    run = prepared(jf.preset(algo, env), env)
    found = elsewhere.launches(Traced(run.members.first, 1, "cuda").iteration(run.grid))
    assert found == pytest.approx(recorded("gpu_launches.jsonl", "value")[program], rel=0.25)


def test_a_speed_on_record_is_in_the_range():
    run = prepared(jf.preset("rainbow", "Breakout-MinAtar"), "Breakout-MinAtar")
    speed = recorded("gpu.jsonl", "value")["Rainbow Breakout-MinAtar, preset"]
    found = elsewhere.forecast(run, sheets.SHEETS["h200"], 1).steps_per_second
    assert found.low <= speed <= found.high


@pytest.mark.parametrize(("platform", "layers"), [("tpu", 2), ("cuda", 1)])
def test_an_evaluation_counts_a_block_of_steps(platform, layers):
    """The first layer's 4 terms join another kernel, on a GPU the last one's 2 outputs too."""
    run = prepared(jf.A2C(hidden=(16, 16)), "CartPole-v1")
    found = Traced(run.members.first, 1, platform).evaluation(run.config)
    assert found["products"] == BLOCK * layers


def test_members_are_divided_among_devices_and_a_member_is_not():
    run = prepared(jf.A2C(hidden=(8,)), "CartPole-v1", seeds=8, devices=1)
    one, eight, many = (elsewhere.forecast(run, sheets.SHEETS["v5e"], n) for n in (1, 8, 16))
    assert eight.need < one.need and eight.seconds.middle < one.seconds.middle
    assert many.parts == eight.parts and "8 of 16 devices stay idle" in many.assumptions[-1]


def test_a_slower_memory_takes_longer_and_a_small_one_does_not_fit():
    run = prepared(jf.DQN(buffer_size=40_000_000, hidden=(8,)), "CartPole-v1")
    fast, slow = (elsewhere.forecast(run, sheets.SHEETS[name], 1) for name in ("h200", "t4"))
    assert slow.parts["train"].middle > fast.parts["train"].middle
    assert fast.fits == (fast.need <= 0.75 * 141e9) and slow.have == int(0.75 * 16e9)


def test_environments_on_the_host_are_refused():
    run = prepare(jf.DQN(), jf.make("gym:CartPole-v1"), at_start(RunConfig()), outline=True)
    with pytest.raises(ConfigError, match="--on must be left out"):
        elsewhere.forecast(run, sheets.SHEETS["h100"], 1)


@pytest.mark.parametrize(
    ("text", "name", "count"),
    [("h100", "NVIDIA H100 SXM", 1), ("v5e-8", "TPU v5e", 8), ("A100:4", "NVIDIA A100 80 GB", 4)],
)
def test_names_of_devices(text, name, count):
    sheet, found = sheets.device("--on", text)
    assert (sheet.name, found) == (name, count)


@pytest.mark.parametrize("text", ["h101", "h100-0", "v5e-", "", "h100=2"])
def test_an_unknown_device_is_one_line(text):
    with pytest.raises(ConfigError, match="--on must be one of t4"):
        sheets.device("--on", text)
