"""The package of docs/extending.md, installed as pip would: its four kinds work by their names
alone."""

from __future__ import annotations

import json
import re
import sqlite3
import sys
import tomllib
from pathlib import Path

import numpy as np
import pytest

import jaxrl_fast as jf
from helpers import packages
from jaxrl_fast.algorithms import ALGORITHMS
from jaxrl_fast.cli import command as cli
from jaxrl_fast.envs.sources import SOURCES
from jaxrl_fast.logs.rows import Row
from jaxrl_fast.logs.sinks import SINKS, LoggedRun, sink_of
from jaxrl_fast.sweeps.samplers import SAMPLERS, sampler_of
from jaxrl_fast.testing import check_env

TEXT = (Path(__file__).resolve().parents[1] / "docs/extending.md").read_text()
BLOCKS = re.findall(r"^```(\w+)\n(.*?)^```", TEXT, re.M | re.S)
SMALL = ["--algo.num-envs", "4", "--algo.hidden", "8", "--algo.batch-size", "8",
         "--algo.buffer-size", "256",
         "--algo.learning-starts", "64", "--total-steps", "256", "--eval-episodes",
         "2"]  # fmt: skip


@pytest.fixture
def place(tmp_path, monkeypatch):
    """The working directory, with the package on `sys.path`."""
    monkeypatch.chdir(tmp_path)
    site = tmp_path / "site"
    site.mkdir()
    monkeypatch.syspath_prepend(str(site))
    modules = {title.group(1): code
               for kind, code in BLOCKS if kind == "python" and (
                   title := re.match(r"# (\S+\.py)\n", code))}
    assert len(modules) == 4
    groups = (
        tomllib.loads(
            next(code for kind, code in BLOCKS if kind == "toml"))["project"]["entry-points"]
    )
    packages.install(site, "jaxrl-more", groups, modules)
    before = set(sys.modules)
    yield tmp_path
    for name in set(sys.modules) - before:
        if name.partition(".")[0] == "jaxrl_more":
            del sys.modules[name]


def line_of(command):
    """The page's line of a command, without `jaxrl-fast`."""
    shell = next(code for kind, code in BLOCKS if kind == "bash")
    (line,) = (line for line in shell.splitlines() if line.startswith(f"jaxrl-fast {command}"))
    return line.split()[1:]


def test_the_list_names_the_packages_additions(place, capsys):
    assert cli.main(line_of("list")) == 0
    out, err = capsys.readouterr()
    assert "  boltzmann-dqn" in out and "    corridor/short  corridor/long\n" in out and not err


@pytest.mark.matrix("tests/test_docs.py::test_python_blocks_run")
def test_an_algorithm_an_environment_and_a_sink_by_their_names(place):
    assert cli.main(
        [*line_of("train"), *SMALL, "--algo.temperature", "0.5", "--out", "run", "--no-tensorboard"]
    ) == 0
    with sqlite3.connect(place / "runs.db") as database:
        sent = database.execute(
            "SELECT env_steps, value FROM metrics WHERE run = 'run' AND name = 'loss'").fetchall()
    rows = [json.loads(text) for text in (place / "run/metrics.jsonl").read_text().splitlines()]
    losses = {row["env_steps"]: pytest.approx(row["loss"])
              for row in rows if row.get("loss") is not None}
    assert losses and dict(sent) == losses
    config = json.loads((place / "run/config.json").read_text())
    assert (
        config["algorithm"]["settings"]["temperature"] == 0.5
        and config["environment"]["settings"] == {"slip": 0.2}
    )
    agent = jf.load(place / "run")  # without --import
    assert agent.algo.name == "boltzmann-dqn"
    check_env(jf.make("corridor/short", length=3), num_envs=4)


def test_the_sink_takes_a_late_final_evaluation(place):
    """`cut` and `write` come after `open` then."""
    sink = sink_of("sqlite:late.db", LoggedRun(place / "run", {}, resumed=True))
    sink.open()
    for steps in (64, 128):
        sink.write(Row(steps, 1.0, 1.0, {"loss": np.float32([0.5])}))
    last = {"loss": np.float32([0.5]), "eval_return": np.float32([9.0])}
    sink.evaluated(128, last["eval_return"])
    sink.cut(127)
    sink.write(Row(128, 1.0, 1.0, last))
    sink.close()
    with sqlite3.connect(place / "late.db") as database:
        sent = database.execute("SELECT env_steps, name, value FROM metrics").fetchall()
    assert sent == [(64, "loss", 0.5), (128, "loss", 0.5), (128, "eval_return", 9.0)]


@pytest.mark.matrix("tests/test_docs.py::test_python_blocks_run")
def test_a_sampler_by_its_name(place, capsys):
    sweep = ["2" if word == "8" else word for word in line_of("sweep")]
    assert cli.main([*sweep, *SMALL, "--eval-every", "0", "--out", "sweep"]) == 0
    drawn = [c["algo.discount"]
             for c in json.loads((place / "sweep/sweep.json").read_text())["configurations"]]
    assert len(drawn) == 2 and all(0.8 <= discount <= 0.998 for discount in drawn)
    pbt = jf.PBT({"algo.discount": "horizon:5,500"}, resample=0.0, fraction=0.5, factor=100.0)
    settings = {"algo.discount": np.float32([0.9, 0.99])}
    copied = (
        [pbt.plan(np.float32([0, 1]), settings, np.random.default_rng(i))[1]["algo.discount"][0]
         for i in range(9)]
    )
    # multiplied or divided, kept in the range
    assert set(copied) == {np.float32(0.8), np.float32(0.998)}
    exec([code for kind, code in BLOCKS if kind == "python"][-1])
    assert capsys.readouterr().out.endswith("0.98\n")
    with pytest.raises(jf.ConfigError, match=r"horizon:FEWEST,MOST.*two numbers of steps above 1"):
        sampler_of("algo.discount", "horizon:5,1")


def test_the_page_names_every_registry():
    rows = re.findall(r"^\| [^|]+ \| `([\w.]+)` \|", TEXT, re.M)
    assert rows == [known.group for known in (ALGORITHMS, SOURCES, SINKS, SAMPLERS)]
