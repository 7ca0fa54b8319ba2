"""Forecasts as text, table, JSON and picture; offers and their prices."""

from __future__ import annotations

import json

import pytest

from jaxrl_fast.errors import ConfigError
from jaxrl_fast.forecast import rent, report
from jaxrl_fast.forecast.amounts import Forecast, Range, about, between


def made(device="1 x card", middle=100.0, price=None, have=2**30, watts=None):
    parts = {"compile": Range(5.0, 5.0, 5.0), "train": about(middle, 2.0)}
    return Forecast(device, parts, 2**20, have, about(1000.0, 2.0), watts, price, ("a card",))


@pytest.mark.parametrize(
    ("seconds", "text"),
    [(0.04, "0.0 s"), (9.96, "10 s"), (59.6, "1 min"), (61, "1 min 1 s"), (3599.6, "1 h"),
     (7800, "2 h 10 min"), (90_000 * 3, "3 d 3 h")],
)
def test_a_duration_has_two_units_at_most(seconds, text):
    assert report.duration(seconds) == text


def test_a_forecast_as_text():
    lines = report.text("ppo on CartPole-v1", made(price=36.0, watts=360.0)).splitlines()
    found = [" ".join(line.split()) for line in lines]
    assert "time 1 min 45 s 55 s to 3 min 25 s" in found
    assert "money 1.05 0.55 to 2.05 at 36 an hour" in found
    assert "energy 10.5 Wh 360 W on average" in found and "a card" in found
    assert "money" not in report.text("x", made()) and "energy" not in report.text("x", made())


def test_devices_are_ranked_by_cost_if_all_have_prices_else_by_time():
    dear, cheap = made("dear", 10, 100.0), made("cheap", 100, 1.0)
    small = made("small", 1, 0.1, have=1)
    assert [x.device for x in rent.rank([small, dear, cheap])] == ["cheap", "dear", "small"]
    by_time = rent.rank([made("slow", 100), made("fast", 10)])
    assert [x.device for x in by_time] == ["fast", "slow"]
    table = report.table("run", rent.rank([small, dear, cheap]))
    assert table.index("cheap") < table.index("dear") and "does not fit" in table.splitlines()[-1]


def test_offers_are_read_with_count_and_price():
    here, eight, free = rent.offers("--rent", "here=0.4, v5e-8=9.6,a100")
    assert (here.sheet, here.price) == (None, 0.4) and (eight.count, eight.price) == (8, 9.6)
    assert free.price is None


BAD = ["h100=dear", "h100=-1", "h100=", "h100=nan", "h100=inf", "h100,,a100", "h1000=2"]


@pytest.mark.parametrize("text", BAD)
def test_bad_offers(text):
    with pytest.raises(ConfigError, match="--rent"):
        rent.offers("--rent", text)


def test_json_and_picture(tmp_path):
    found = [made("here", 3 * 3600, 1.0, watts=100.0), made("there", 3600)]
    content = json.loads(json.dumps(report.as_json("run", found)))["forecasts"]
    assert content[0]["cost"]["middle"] == pytest.approx((3 * 3600 + 5) / 3600)
    assert content[1]["cost"] is None
    assert content[0]["joules"]["high"] == pytest.approx(100 * (6 * 3600 + 5))
    assert content[0]["fits"]
    assert report.draw("run", found, tmp_path / "f.png").stat().st_size > 5000


def test_ranges_add_and_scale():
    assert between(4, 9) == Range(4, 6, 9) and about(6, 2) + Range(1, 1, 1) == Range(4, 7, 13)
    assert about(6, 2) * 2 == Range(6, 12, 24)
