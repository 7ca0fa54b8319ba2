"""CSV files, MLflow and Trackio: what they are sent, and how a resumed run goes on there."""

from __future__ import annotations

import csv
import types
from pathlib import Path
from typing import ClassVar

import numpy as np
import pytest

from jaxrl_fast.errors import ConfigError, MissingExtraError
from jaxrl_fast.logs.csv_file import CsvSink
from jaxrl_fast.logs.jsonl import read_jsonl
from jaxrl_fast.logs.rows import Row
from jaxrl_fast.logs.sinks import Clip, LoggedRun, sink_of
from jaxrl_fast.logs.trackers import MlflowSink, TrackioSink


def row(env_steps, **metrics):
    return Row(env_steps, env_steps / 1000, 5.0,
               {name: np.asarray(values, np.float32) for name, values in metrics.items()})


def lines(path):
    with open(path, newline="") as file:
        return list(csv.DictReader(file))


@pytest.fixture
def run(tmp_path):
    algorithm = {"name": "ppo", "settings": {"discount": 0.9, "hidden": [8, 8], "optimizer": None}}
    environment = {"name": "CartPole-v1", "settings": {"a(b": "x" * 7000}}
    content = {"algorithm": algorithm, "environment": environment,
               "run": {"seed": 3, "eval_mode": "greedy"}}
    return LoggedRun(tmp_path / "run", content)


# CSV


def test_csv_has_a_line_a_row_and_member(tmp_path):
    path = tmp_path / "new" / "log.csv"
    sink = CsvSink(path)
    assert not path.parent.exists()
    sink.write(row(64, loss=[1.5, np.nan]))
    head, *rest = path.read_text().splitlines()
    assert head == "env_steps,wall_seconds,steps_per_second,member,loss" and rest == [
        "64,0.064,5.0,0,1.5", "64,0.064,5.0,1,"]
    sink.write(row(128, loss=[2, 3], eval_return=[7, 8]))  # a column that comes later
    sink.write(row(192, loss=[4, 5]))
    sink.close()
    sink.close()
    found = lines(path)
    assert [x["env_steps"] for x in found] == ["64", "64", "128", "128", "192", "192"]
    assert (
        [x["eval_return"] for x in found] == ["", "", "7.0", "8.0", "", ""]
        and found[-1]["loss"] == "5.0"
    )


def test_csv_goes_on_after_a_cut(tmp_path):
    path = tmp_path / "log.csv"
    for steps in ((64, 128, 192), (128, 256)):
        sink = CsvSink(path)
        if path.exists():
            with open(path, "a") as file:
                file.write("256,0.2")  # torn by a kill
            sink.cut(64)
        for step in steps:
            sink.write(row(step, loss=[step]))
        sink.close()
    steps = ("64", "128", "256")
    assert [(x["env_steps"], x["loss"]) for x in lines(path)] == [(x, f"{x}.0") for x in steps]


def test_csv_is_a_new_file_but_for_a_resume(tmp_path, run):
    path = tmp_path / "log.csv"
    path.write_text("mine")
    with pytest.raises(ConfigError, match="csv:PATH, got .*; a new file"):
        sink_of(f"csv:{path}", run)
    assert path.read_text() == "mine"
    assert sink_of("csv:a.csv", run._replace(seed=4)).path.name == "a-seed-4.csv"


FOREIGN = [
    b"mine", b"one line\n", b'{"a": 1}', b"env_steps,loss\n64,1\n", b"\xff\0\n",
    b'{"env_steps": 64}\n', b"[1, 2]\n",
]  # fmt: skip


@pytest.mark.parametrize("content", FOREIGN)
@pytest.mark.parametrize("kind", ["csv", "jsonl"])
def test_a_resume_never_takes_a_file_that_is_not_its_log(kind, content, tmp_path, run):
    path = tmp_path / "notes.txt"
    path.write_bytes(content)
    with pytest.raises(ConfigError,
                       match=f"{kind}:PATH, got .*; a new file, or the log of this run"):
        sink_of(f"{kind}:{path}", run._replace(resumed=True)).cut(0)
    assert path.read_bytes() == content


@pytest.mark.parametrize("kind", ["csv", "jsonl"])
def test_a_resume_goes_on_in_its_log_or_an_empty_file(kind, tmp_path, run):
    path = tmp_path / "log"
    path.touch()
    for steps, cut in (((64, 128), 0), ((128, 192), 64)):
        sink = sink_of(f"{kind}:{path}", run._replace(resumed=True))
        sink.cut(cut)
        for step in steps:
            sink.write(row(step, loss=[step]))
        sink.close()
    found = lines(path) if kind == "csv" else read_jsonl(path)
    assert [int(x["env_steps"]) for x in found] == [64, 128, 192]


# MLflow


class FakeClient:
    """The part of MLflow's client that the sink uses; keeps its calls, over several clients."""

    calls: ClassVar[list] = []

    def __init__(self, tracking_uri=None):
        FakeClient.uri = tracking_uri

    def get_experiment_by_name(self, name):
        return None

    def create_experiment(self, name):
        return f"experiment {name}"

    def __getattr__(self, name):
        def call(*args, **named):
            self.calls.append((name, args, named))
            return types.SimpleNamespace(info=types.SimpleNamespace(run_id="r1"))

        return call

    def log_artifact(self, run_id, path, folder):
        self.calls.append(
            ("log_artifact", (run_id, Path(path).name, folder), Path(path).read_bytes()))


@pytest.fixture
def mlflow(modules):
    FakeClient.calls = []
    metric = lambda *args: types.SimpleNamespace(key=args[0], value=args[1], step=args[3])
    modules(mlflow=types.SimpleNamespace(MlflowClient=FakeClient))
    modules(**{"mlflow.entities": types.SimpleNamespace(Metric=metric, Param=lambda *args: args)})
    return FakeClient


def test_mlflow_gets_scalars_and_videos_and_goes_on_in_its_run(mlflow, run, tmp_path):
    for again in (run, run._replace(resumed=True)):
        mlflow.calls.clear()
        sink = sink_of("mlflow:http://127.0.0.1:1", again)
        sink.open()
        sink.write(row(64 * (1 + again.resumed), loss=[1, 3]))
        sink.ended("finished")
        sink.close()
        sink.close()
        *_, batch, end = mlflow.calls
        assert batch[1][0] == "r1" and {m.key: m.value for m in batch[1][1]}["loss"] == 2
        assert (
            end == ("set_terminated", ("r1", "FINISHED"), {}) and mlflow.uri == "http://127.0.0.1:1"
        )
        begun = ["update_run"] if again.resumed else ["create_run", "log_batch"]
        assert [call[0] for call in mlflow.calls] == [*begun, "log_batch", "set_terminated"]
    assert run.id("mlflow").read_text() == "r1"


def test_mlflow_and_trackio_are_made_by_keyword(mlflow, modules, run):
    trackio = FakeTrackio()
    modules(trackio=trackio)
    TrackioSink(project="mine", run=run).open()
    assert trackio.begun[0][1]["project"] == "mine"
    MlflowSink(uri="http://127.0.0.1:1", run=run).open()
    assert mlflow.uri == "http://127.0.0.1:1"


def test_mlflow_gets_names_and_settings(mlflow, run):
    sink_of("mlflow", run._replace(group="g")).open()
    (_, _, created), (_, (known,), batch) = mlflow.calls
    names = {"algorithm": "ppo", "environment": "CartPole-v1", "folder": str(run.path),
             "group": "g"}
    assert created["tags"] == names and known == "r1"
    assert dict(batch["params"]) == {
        "algo.discount": "0.9", "algo.hidden": "[8, 8]", "algo.optimizer": "null",
        "env.a_b": "x" * 6000, "seed": "3", "eval_mode": "greedy",
    }  # fmt: skip


@pytest.mark.parametrize(("ended", "status"), [
    (["finished"], "FINISHED"), (["interrupted"], "KILLED"), (["failed"], "FAILED"), ([], "FAILED"),
])  # fmt: skip
def test_mlflow_shows_how_the_run_ended(mlflow, run, ended, status):
    sink = sink_of("mlflow", run)
    sink.open()
    for outcome in ended:
        sink.ended(outcome)
    sink.close()
    assert mlflow.calls[-1] == ("set_terminated", ("r1", status), {})


def test_mlflow_gets_videos_of_a_folder_and_of_memory(mlflow, run, tmp_path):
    path = tmp_path / "a.gif"
    path.write_bytes(b"GIF1")
    sink = sink_of("mlflow", run)
    sink.open()
    sink.video(Clip(64, b"GIF1", (4, 3), path))
    sink.video(Clip(64, b"GIF2", (4, 3)))
    found = [call[1:] for call in mlflow.calls if call[0] == "log_artifact"]
    assert found == [(("r1", "a.gif", "videos"), b"GIF1"),
                     (("r1", "000000000064.gif", "videos"), b"GIF2")]


# Trackio


class FakeTrackio:
    """The part of Trackio that the sink uses: a taken name makes another one, "must" needs a known
    one."""

    def __init__(self, names=()):
        self.names, self.begun, self.logged, self.finished = list(names), [], [], 0
        self.Video = lambda path, format: (Path(path).read_bytes(), format)

    def init(self, *, name, resume, **settings):
        if resume == "never":
            name = name if name not in self.names else f"dainty-{name}"
            self.names.append(name)
        assert name in self.names and resume in ("must", "never")
        self.name = name
        self.begun.append((name, settings))
        return self

    def log(self, values, step):
        self.logged.append((step, values))

    def finish(self):
        self.finished += 1


def test_trackio_gets_scalars_and_videos(modules, run, tmp_path):
    fake = FakeTrackio()
    modules(trackio=fake)
    path = tmp_path / "a.gif"
    path.write_bytes(b"GIF1")
    sink = sink_of("trackio:mine", run)
    sink.open()
    sink.write(row(64, loss=[1]))
    sink.video(Clip(64, b"GIF1", (4, 3), path))
    sink.video(Clip(64, b"GIF2", (4, 3)))  # of a run in memory
    sink.close()
    sink.close()
    assert fake.begun == [
        ("run", {"project": "mine", "group": None, "config": run.content, "embed": False})]
    assert fake.logged[0][0] == 64 and fake.logged[0][1]["loss"] == 1
    assert fake.logged[1:] == [(64, {"video": (b"GIF1", "gif")}), (64, {"video": (b"GIF2", "gif")})]
    assert fake.finished == 1


@pytest.mark.parametrize("names", [(), ("run",), ("run", "seed-0", "run-seed-0")])
def test_trackio_continues_its_own_run_beside_runs_of_any_name(names, modules, run):
    fake = FakeTrackio(names)
    modules(trackio=fake)
    seeds = [LoggedRun(run.path / f"seed-{i}", run.content, "run", i) for i in (0, 1)]
    for logged in (run, *seeds):
        for again in (logged, logged._replace(resumed=True)):
            sink = sink_of("trackio", again)
            sink.open()
            sink.close()
    new, resumed = fake.begun[::2], fake.begun[1::2]
    assert [x[0] for x in new] == [x[0] for x in resumed] == fake.names[len(names) :]
    assert len(set(fake.names)) == len(names) + 3
    if not names:
        assert fake.names == ["run", "run-seed-0", "run-seed-1"]


@pytest.mark.parametrize("kind", ["mlflow", "trackio"])
def test_a_tracker_is_not_sent_rows_again(kind, mlflow, modules, run):
    """A run that is killed at 192 goes on from its checkpoint at 64."""
    fake = FakeTrackio()
    modules(trackio=fake)
    for again, steps in ((run, (64, 128, 192)), (run._replace(resumed=True), (128, 192, 256))):
        sink = sink_of(kind, again)
        sink.open()
        for step in steps:
            sink.write(row(step))
            sink.video(Clip(step, b"GIF", (4, 3)))
    rows, videos = [64, 128, 192, 256], [64, 128, 192, 256]
    if kind == "trackio":
        assert [step for step, values in fake.logged if "video" not in values] == rows
        assert [step for step, values in fake.logged if "video" in values] == videos
    else:
        batches = [args[1]
                   for name, args, _ in mlflow.calls if name == "log_batch" and len(args) > 1]
        assert [batch[0].step for batch in batches] == rows
        assert [int(args[1][:-4])
                for name, args, _ in mlflow.calls if name == "log_artifact"] == videos


@pytest.mark.parametrize("kind", ["mlflow", "trackio"])
def test_a_tracker_that_a_resume_adds_gets_all_its_rows(kind, mlflow, modules, run):
    fake = FakeTrackio()
    modules(trackio=fake)
    sink = sink_of(kind, run._replace(resumed=True))
    sink.open()
    sink.write(row(64))
    assert run.id(kind).is_file() and run._replace(resumed=True).sent(kind) == 64


@pytest.mark.parametrize("kind", ["mlflow", "trackio"])
def test_without_its_package_a_tracker_names_the_extra(kind, modules, run):
    modules(**{kind: None})
    with pytest.raises(MissingExtraError, match=rf"pip install 'jaxrl_fast\[{kind}\]'"):
        sink_of(kind, run)
    assert not run.path.exists()
