"""Measurements are refused on busy devices and caches that cannot be written."""

from __future__ import annotations

import pytest

from jaxrl_fast import runtime
from jaxrl_fast.doctor.facts import Backend, Card, Machine
from jaxrl_fast.doctor.ready import check_cache, check_flags, check_idle
from jaxrl_fast.errors import ConfigError

IDLE = Machine(cores=2, all_cores=2, load=0.3, share=0.99)
TAKEN = Card("card", "1", 0.0, 1.0, utilization=0.6)


def test_an_idle_machine_is_measured():
    check_idle(IDLE)
    check_idle(Machine(2, 2, load=0.3, cards=(TAKEN,)), platform="cpu")  # another device


@pytest.mark.parametrize(
    ("found", "platform", "text"),
    [
        (Machine(2, 2, load=7.5, share=0.35), "cpu", "busy .35% of a core .*, load 7.5 on 2 cores"),
        (Machine(2, 2, load=None, share=0.5), "cpu", "50% of a core"),
        (Machine(2, 2, cards=(TAKEN,)), "gpu", "card 60% busy"),
    ],
)
def test_a_busy_device_is_refused_with_the_flag_that_allows_measuring(found, platform, text):
    with pytest.raises(ConfigError, match=f"the device must be idle, got .*{text}.*--busy"):
        check_idle(found, platform)


def test_a_flag_that_xla_does_not_know_is_named_with_the_line_to_type(monkeypatch):
    found = Backend("cpu", unknown_flags=("--xla_b",))
    check = lambda started=False: check_flags(lambda: started, lambda: False, lambda _: found)
    hangs = runtime.vmap_hangs_on_cpu()
    monkeypatch.setenv("XLA_FLAGS", f"{runtime.HANG_FLAG}=false" if hangs else "")
    check()  # no flag of the user's
    monkeypatch.setenv("XLA_FLAGS", "--xla_a=1 --xla_b")
    message = "flags and values that this XLA knows, got '--xla_b': export XLA_FLAGS='--xla_a=1'"
    with pytest.raises(ConfigError, match=message):
        check()
    monkeypatch.setenv("XLA_FLAGS", "--xla_b")
    with pytest.raises(ConfigError, match="unset XLA_FLAGS goes on without"):
        check()
    check(started=True)  # it knows them


def test_a_cache_that_cannot_be_written(tmp_path):
    check_cache(None)
    check_cache(str(tmp_path / "new"))
    file = tmp_path / "file"
    file.write_text("")
    with pytest.raises(ConfigError, match="compile cache must be a folder that can be written"):
        check_cache(str(file))
