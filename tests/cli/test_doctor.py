"""`jaxrl-fast doctor`: its exit code and its JSON."""

from __future__ import annotations

import contextlib
import json

import numpy as np
import pytest

from jaxrl_fast.cli.doctor import examine
from jaxrl_fast.doctor import picture
from jaxrl_fast.doctor.facts import Backend, Cache, Limits

LIMITS = Limits("cpu", {"float32": 1e11}, 1e10, 1e-5, 2e-5, 1e-6)
CACHE = Cache("/c", requests=1, returned=True)
GOOD = {"backend": Backend("cpu", ("cpu",)), "cache": CACHE, "limits": LIMITS}


@pytest.mark.parametrize(
    ("cache", "code"), [(CACHE, 0), (Cache("/c", error="Permission denied"), 1)]
)
def test_something_wrong_is_exit_code_1(cache, code, capsys):
    with pytest.raises(SystemExit, match="1") if code else contextlib.nullcontext():
        examine(["--json"], lambda environment: GOOD | {"cache": cache})
    out, err = capsys.readouterr()
    read = json.loads(out)
    assert (read["ok"], err) == (code == 0, "")
    assert read["facts"]["limits"]["products"] == {"float32": 1e11}
    assert ("cache_writable" in [one["name"] for one in read["advice"]]) == bool(code)


def test_the_picture_shows_the_lowest_limit(run_cli, capsys, tmp_path):
    file = tmp_path / "limits.png"
    examine(["--picture", str(file)], lambda environment: GOOD)
    assert f"picture: {file}" in capsys.readouterr().err and file.stat().st_size > 5_000
    starts, memory, arithmetic = picture.reachable(LIMITS, np.array([6.0, 60.0])).values()
    assert starts == pytest.approx([432 / (1e-6 / 3), 432_000 / (1e-6 / 3)])
    assert memory == pytest.approx([1e10, 1e11]) and list(arithmetic) == [1e11, 1e11]
    code, out, err = run_cli("doctor", "--picture", str(tmp_path))
    assert (code, out) == (2, "") and "--picture must be the name of a file" in err


def test_a_flag_of_another_command(run_cli):
    code, out, err = run_cli("doctor", "--jsn")
    assert code == 2 and out == "" and "--json" in err
    code, out, err = run_cli("doctor", "x")
    assert code == 2 and out == "" and "got 'x'" in err and "--picture" not in err


def test_the_whole_command(run_cli, monkeypatch, tmp_path):
    monkeypatch.delenv("JAX_COMPILATION_CACHE_DIR", raising=False)
    monkeypatch.setenv("JAXRL_FAST_CACHE", str(tmp_path / "cache"))
    code, out, _ = run_cli("doctor", "--json")
    facts = json.loads(out)["facts"]
    assert code == int(not json.loads(out)["ok"])
    assert facts["cache"]["returned"] and facts["cache"]["compile_seconds"] > 0
    assert facts["cache"]["programs"] == len(list((tmp_path / "cache").glob("*-cache"))) > 0
    assert facts["limits"]["bandwidth"] > 0 and facts["backend"]["platform"] == "cpu"
