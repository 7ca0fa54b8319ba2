"""Watts from Linux's counters and nvidia-smi, both as stand-ins."""

from __future__ import annotations

import pytest

from jaxrl_fast.forecast.energy import Meter, card_watts, packages


def package(root, name, microjoules, span=1_000_000_000):
    folder = root / name
    folder.mkdir(exist_ok=True)
    (folder / "energy_uj").write_text(str(microjoules))
    (folder / "max_energy_range_uj").write_text(str(span))


def test_processors_count_by_package_and_start_again(tmp_path):
    ticks = iter([0.0, 10.0])
    package(tmp_path, "intel-rapl:0", 900_000_000)
    package(tmp_path, "intel-rapl:1", 5_000_000)
    package(tmp_path, "intel-rapl:0:0", 1)  # the cores, a part of the package
    meter = Meter(tmp_path, smi=lambda: "", clock=lambda: next(ticks))
    package(tmp_path, "intel-rapl:0", 100_000_000)  # 200 J, past the end of the counter
    package(tmp_path, "intel-rapl:1", 105_000_000)
    assert meter.watts() == pytest.approx((200 + 100) / 10)


def test_cards_are_sampled(tmp_path):
    texts = iter(["300.0\n100.0\n", "500.0\n100.0\n"])
    meter = Meter(tmp_path, smi=lambda: next(texts))
    meter.sample()
    meter.sample()
    assert meter.watts() == 500.0


def test_nothing_is_readable(tmp_path):
    meter = Meter(tmp_path, smi=lambda: "[N/A]\n")
    meter.sample()
    assert meter.watts() is None and packages(tmp_path) == {}


@pytest.mark.parametrize(("text", "watts"), [("", None), ("71.3\n", 71.3), ("[N/A]", None)])
def test_text_of_nvidia_smi(text, watts):
    assert card_watts(text) == watts
