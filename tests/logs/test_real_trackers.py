"""W&B (offline), Trackio (local) and MLflow (a database): what their own stores hold of a run and
its resume."""

from __future__ import annotations

import contextlib
import json
import sqlite3
import struct
import sys
import time
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from jaxrl_fast.logs.jsonl import read_jsonl
from jaxrl_fast.logs.rows import Row
from jaxrl_fast.logs.sinks import Clip, LoggedRun, sink_of
from jaxrl_fast.runs import pictures

# metric -> its (step, value), kinds of video files
Store = Callable[[str], tuple[list[tuple[int, float]], list[str]]]


def wandb_records(file: Path) -> Iterator[Any]:
    """Yield the records of W&B's file, which is a log of LevelDB: blocks of 32 KiB."""
    from wandb.proto import wandb_internal_pb2

    data, at, record = file.read_bytes(), 7, b""
    while at + 7 <= len(data):
        if (left := -at % 32768) and left < 7:
            at += left
            continue
        _, size, kind = struct.unpack("<IHB", data[at : at + 7])
        record, at = record + data[at + 7 : at + 7 + size], at + 7 + size
        if kind in (1, 4):  # a whole one, or the last part
            yield wandb_internal_pb2.Record.FromString(record)
            record = b""


def whole_records(file: Path) -> list[Any]:
    """Return the records of W&B's file, which it writes to the end after `finish` has returned."""
    from google.protobuf.message import DecodeError

    for _ in range(100):
        with contextlib.suppress(struct.error, DecodeError, IndexError):
            records = list(wandb_records(file))
            if records[-1].WhichOneof("record_type") == "exit":
                return records
        time.sleep(0.1)
    raise AssertionError(f"{file} has no end")


@pytest.fixture
def wandb(tmp_path, monkeypatch) -> Store:
    monkeypatch.setenv("WANDB_MODE", "offline")
    monkeypatch.setenv("WANDB_SILENT", "true")

    def read(metric: str):
        parts, found, videos = sorted((tmp_path / "run/wandb").glob("offline-run-*")), [], []
        assert len({folder.name.rpartition("-")[2] for folder in parts}) == 1  # one run of W&B
        for folder in parts:
            (file,) = folder.glob("*.wandb")
            for record in whole_records(file):
                items = {item.key or "/".join(item.nested_key): json.loads(item.value_json)
                         for item in record.history.item}
                found += [(items["env_steps"], items[metric])] if metric in items else []
            videos += [path.suffix for path in folder.glob("files/media/videos/*")]
        return found, videos

    return read


@pytest.fixture
def trackio(tmp_path, monkeypatch) -> Store:
    monkeypatch.setenv("TRACKIO_DIR", str(tmp_path / "trackio"))  # read at its import
    for name in [name for name in sys.modules if name.partition(".")[0] == "trackio"]:
        monkeypatch.delitem(sys.modules, name)

    def read(metric: str):
        with sqlite3.connect(tmp_path / "trackio/p.db") as store:
            rows = store.execute("select run_id, step, metrics from metrics order by id").fetchall()
        assert len({run for run, _, _ in rows}) == 1
        logged = [(step, json.loads(text)) for _, step, text in rows]
        videos = [path.suffix for path in (tmp_path / "trackio/media").rglob("*.*")]
        return [(step, values[metric]) for step, values in logged if metric in values], videos

    return read


@pytest.fixture
def mlflow(tmp_path, monkeypatch) -> Store:
    """MLflow's own place, mlflow.db and mlruns/ where the command runs."""
    monkeypatch.chdir(tmp_path)

    def read(metric: str):
        from mlflow import MlflowClient

        client = MlflowClient()
        (run,) = client.search_runs([client.get_experiment_by_name("jaxrl_fast").experiment_id])
        assert (
            run.info.run_name == "run" and run.info.status == "FINISHED"
            and run.data.tags["algorithm"] == "ppo" and run.data.params["seed"] in "03"
        )
        videos = [Path(item.path).suffix
                  for item in client.list_artifacts(run.info.run_id, "videos")]
        return [(m.step, m.value)
                for m in client.get_metric_history(run.info.run_id, metric)], videos

    return read


@pytest.fixture(params=[
    pytest.param(name, marks=getattr(pytest.mark, name)) for name in ("wandb", "trackio", "mlflow")
])
def tracker(request) -> tuple[str, Store]:
    kind = request.param
    return kind if kind == "mlflow" else f"{kind}:p", request.getfixturevalue(kind)


def test_a_killed_run_has_each_row_once(tracker, tmp_path):
    """A run is killed at 192, and continues from its checkpoint at 64."""
    text, read = tracker
    content = {"algorithm": {"name": "ppo", "settings": {}}, "environment": {"name": "CartPole-v1"},
               "run": {"seed": 3}}
    run, clip = LoggedRun(tmp_path / "run", content), pictures.gif(
        [np.full((6, 8, 3), i, np.uint8) for i in range(4)])
    for again, steps in ((run, (64, 128, 192)),
                         (run._replace(resumed=True, group="run"), (128, 192, 256))):
        sink = sink_of(text, again)
        sink.open()
        for step in steps:
            sink.write(Row(step, 1.0, 5.0, {"loss": np.float32([step, step + 2])}))
        sink.video(Clip(steps[-1], clip, (8, 6)))
        sink.ended("finished")
        sink.close()
        time.sleep(1.1)  # W&B names a part's folder by the second
    assert read("loss") == ([(64, 65), (128, 129), (192, 193), (256, 257)], [".gif", ".gif"])


@pytest.mark.timeout(200)
def test_a_run_and_its_resume_from_the_command_line(tracker, tmp_path, monkeypatch, run_cli):
    text, read = tracker
    monkeypatch.chdir(tmp_path)
    tiny = ["--algo.num-envs", "4", "--algo.num-steps", "16", "--algo.hidden", "8", "--no-preset",
            "--log-every", "64"]
    ends = ["--total-steps", "128", "--video-every", "0", "--eval-episodes", "2", "--out", "run"]
    code, _, err = run_cli("train", "ppo", "CartPole-v1", *tiny, *ends, "--log", text)
    assert code == 0 and "failed" not in err, err
    code, _, err = run_cli("train", "--resume", "run", "--total-steps", "256", "--horizon", "256",
                           "--log", text)
    assert code == 0 and "failed" not in err, err
    rows, videos = read("value_loss")
    logged = read_jsonl("run/metrics.jsonl")
    assert len(rows) == 4 and [step for step, _ in rows] == [row["env_steps"] for row in logged]
    assert [value for _, value in rows] == pytest.approx([row["value_loss"][0] for row in logged])
    assert set(videos) == {".gif"}
