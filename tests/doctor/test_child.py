"""The answers of a child, its words before XLA ends it, and the compile cache."""

from __future__ import annotations

import json
import os

import pytest

from jaxrl_fast.doctor import child
from jaxrl_fast.doctor.facts import Backend

BACKEND = json.dumps({"part": "backend", "value": {"platform": "cpu", "kinds": ["cpu", "cpu"]}})
RATES = {"bandwidth": 2.0, "call": 3.0, "round_trip": 4.0, "turn": 5.0}
LIMITS = {"device": "cpu", "products": {"float32": 1.0}, **RATES}
WHOLE = f"a line of others\n{BACKEND}\n{json.dumps({'part': 'limits', 'value': LIMITS})}\n"


def test_parts_of_a_child():
    found = child.examine({}, lambda environment: (WHOLE, "some warning"))
    assert found["backend"] == Backend("cpu", ("cpu", "cpu"))
    assert found["limits"].turn == 5.0 and found["limits"].to_device is None


def test_flags_that_xla_refuses_are_left_out_one_start_after_the_other():
    seen = []

    def start(environment):
        seen.append(environment["XLA_FLAGS"])
        if "--xla_b" in seen[-1]:
            return "", "E1 x.cc:93] Couldn't interpret value maybe for flag xla_b.\nusage: --xla_b"
        if "--xla_a" in seen[-1]:
            return "", "F1 x.cc:234] Unknown flags in XLA_FLAGS: --xla_a=1 --xla_c"
        return WHOLE, ""

    found = child.examine({"XLA_FLAGS": "--xla_a=1 --xla_b=maybe --xla_c --xla_d=2"}, start)
    assert found["backend"].unknown_flags == ("--xla_b", "--xla_a", "--xla_c")
    left = ["--xla_a=1 --xla_b=maybe --xla_c --xla_d=2", "--xla_a=1 --xla_c --xla_d=2"]
    assert seen == [*left, "--xla_d=2"]


def test_a_refusal_that_does_not_end_is_an_error():
    starts = []

    def start(environment):
        starts.append(1)
        return "", "F1126 x.cc:1] Unknown flag in XLA_FLAGS: --q"

    found = child.examine({}, start)
    assert len(starts) == 2 and "Unknown flag" in found["backend"].error


@pytest.mark.parametrize(
    ("complaint", "error"),
    [
        ("Traceback:\n  File x\nRuntimeError: no backend 'cuda'\n", "RuntimeError: no backend"),
        ("F1126 10:03:22.2 6849 x.cc:171] Could not open file\nmore", "Could not open file"),
        ("", "it ended without a word"),
    ],
)
def test_why_a_backend_does_not_start(complaint, error):
    found = child.examine({}, lambda environment: ("", complaint))["backend"]
    assert found.platform == "" and found.error.startswith(error)


def test_a_device_that_cannot_be_measured_is_known_nevertheless():
    found = child.examine({}, lambda environment: (BACKEND, "XlaRuntimeError: RESOURCE_EXHAUSTED"))
    assert found["backend"].platform == "cpu" and "EXHAUSTED" in found["backend"].error


def test_a_folder_that_cannot_be_written(tmp_path):
    assert child.why_not_writable(str(tmp_path / "new" / "folder")) == ""
    (tmp_path / "file").write_text("")
    assert child.why_not_writable(str(tmp_path / "file")) == "a file of this name is there"
    assert child.why_not_writable(str(tmp_path / "file" / "below")) == "Not a directory"


def test_programs_of_a_folder_and_the_share_read_again(tmp_path):
    for name, read in (("a-cache", 200), ("b-cache", 50), ("other", 200)):
        (tmp_path / name).write_text("xyz")
        os.utime(tmp_path / name, (read, 100))
    found = child.contents(str(tmp_path))
    assert (found["programs"], found["size_bytes"]) == (2, 6) and found["free_bytes"] > 0
    assert found["reused"] == (1 if child.keeps_access_times(str(tmp_path)) else None)
    assert child.contents("") == child.contents(str(tmp_path / "none")) == {}


def test_the_installed_xla_names_an_unknown_flag():
    flags = f"{os.environ.get('XLA_FLAGS', '')} --xla_no_such_flag=1"
    given = {**os.environ, "XLA_FLAGS": flags, "JAX_PLATFORMS": "cpu"}
    found = child.start_without_unknown_flags(given)
    assert found.unknown_flags == ("--xla_no_such_flag",) and found.platform == "cpu"
