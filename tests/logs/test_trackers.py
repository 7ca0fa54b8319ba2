"""CSV files, MLflow and Trackio: what they are sent, and how a resumed run goes on there."""

from __future__ import annotations

import csv
import types

import numpy as np
import pytest

from jaxrl_fast.errors import ConfigError, MissingExtraError
from jaxrl_fast.logs.csv_file import CsvSink
from jaxrl_fast.logs.rows import Row
from jaxrl_fast.logs.sinks import Clip, LoggedRun, sink_of


def row(env_steps, **metrics):
    return Row(env_steps, env_steps / 1000, 5.0, {name: np.asarray(values, np.float32) for name, values in metrics.items()})


def lines(path):
    with open(path, newline="") as file:
        return list(csv.DictReader(file))


@pytest.fixture
def run(tmp_path):
    return LoggedRun(tmp_path / "run", {"algorithm": "ppo", "environment": "CartPole-v1", "run": {"seed": 3}})


# CSV


def test_csv_has_a_line_a_row_and_member(tmp_path):
    path = tmp_path / "new" / "log.csv"
    sink = CsvSink(path)
    assert not path.parent.exists()
    sink.write(row(64, loss=[1.5, np.nan]))
    head, *rest = path.read_text().splitlines()
    assert head == "env_steps,wall_seconds,steps_per_second,member,loss" and rest == ["64,0.064,5.0,0,1.5", "64,0.064,5.0,1,"]
    sink.write(row(128, loss=[2, 3], eval_return=[7, 8]))  # a column that comes later
    sink.write(row(192, loss=[4, 5]))
    sink.close()
    sink.close()
    found = lines(path)
    assert [x["env_steps"] for x in found] == ["64", "64", "128", "128", "192", "192"]
    assert [x["eval_return"] for x in found] == ["", "", "7.0", "8.0", "", ""] and found[-1]["loss"] == "5.0"


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
    assert [(x["env_steps"], x["loss"]) for x in lines(path)] == [("64", "64.0"), ("128", "128.0"), ("256", "256.0")]


def test_csv_is_a_new_file_but_for_a_resume(tmp_path, run):
    path = tmp_path / "log.csv"
    path.write_text("mine")
    with pytest.raises(ConfigError, match="csv:PATH, got .*; a new file"):
        sink_of(f"csv:{path}", run)
    assert sink_of(f"csv:{path}", run._replace(resumed=True)).path == path
    assert sink_of("csv:a.csv", run._replace(seed=4)).path.name == "a-seed-4.csv"


# MLflow


class FakeClient:
    def __init__(self, tracking_uri=None):
        FakeClient.last, self.uri, self.calls, self.runs = self, tracking_uri, [], 0

    def get_experiment_by_name(self, name):
        return None

    def create_experiment(self, name):
        return f"experiment {name}"

    def __getattr__(self, name):
        def call(*args, **named):
            self.calls.append((name, *args))
            return types.SimpleNamespace(info=types.SimpleNamespace(run_id="r1"))

        return call


@pytest.fixture
def mlflow(modules):
    metric = lambda *args: types.SimpleNamespace(key=args[0], value=args[1], step=args[3])
    modules(mlflow=types.SimpleNamespace(MlflowClient=FakeClient))
    modules(**{"mlflow.entities": types.SimpleNamespace(Metric=metric)})


def test_mlflow_gets_scalars_and_videos_and_goes_on_in_its_run(mlflow, run, tmp_path):
    for again in (run, run._replace(resumed=True)):
        sink = sink_of("mlflow:http://127.0.0.1:1", again)
        sink.open()
        sink.write(row(64, loss=[1, 3]))
        sink.video(Clip(64, b"GIF", (4, 3), tmp_path / "a.gif"))
        sink.video(Clip(64, b"GIF", (4, 3)))  # in memory: MLflow takes files
        sink.close()
        sink.close()
        (batch,) = (call for call in FakeClient.last.calls if call[0] == "log_batch")
        assert batch[1] == "r1" and {m.key: m.value for m in batch[2]}["loss"] == 2 and {m.step for m in batch[2]} == {64}
        names = [call[0] for call in FakeClient.last.calls]
        assert names == ["update_run" if again.resumed else "create_run", "log_batch", "log_artifact", "set_terminated"]
        assert FakeClient.last.uri == "http://127.0.0.1:1"
    assert run.id("mlflow").read_text() == "r1"


def test_mlflow_itself_keeps_the_rows(run, tmp_path, monkeypatch):
    pytest.importorskip("mlflow", reason="the extra [mlflow] is not installed")
    from mlflow import MlflowClient

    uri = f"file://{tmp_path}/store"  # mlflow-skinny has no database
    monkeypatch.setenv("MLFLOW_ALLOW_FILE_STORE", "true")
    for again, steps in ((run, (64, 128)), (run._replace(resumed=True), (192,))):
        sink = sink_of(f"mlflow:{uri}", again)
        sink.open()
        for step in steps:
            sink.write(row(step, loss=[step, step]))
        sink.close()
    client = MlflowClient(tracking_uri=uri)
    (found,) = client.search_runs([client.get_experiment_by_name("jaxrl_fast").experiment_id])
    assert found.info.run_name == "run" and found.info.status == "FINISHED"
    assert [(m.step, m.value) for m in client.get_metric_history(found.info.run_id, "loss")] == [(64, 64), (128, 128), (192, 192)]


# Trackio


def test_trackio_gets_scalars_and_videos(modules, run, tmp_path):
    begun, logged = [], []

    class Run:
        def log(self, values, step):
            logged.append((step, values))

        def finish(self):
            logged.append("finished")

    video = lambda path, format: (path, format)
    modules(trackio=types.SimpleNamespace(init=lambda **settings: begun.append(settings) or Run(), Video=video))
    for again in (run, run._replace(resumed=True)):
        sink = sink_of("trackio:mine", again)
        sink.open()
        sink.write(row(64, loss=[1]))
        sink.video(Clip(64, b"GIF", (4, 3), tmp_path / "a.gif"))
        sink.close()
        sink.close()
    assert [x["resume"] for x in begun] == ["never", "allow"] and begun[0]["project"] == "mine"
    assert begun[0]["name"] == "run" and begun[0]["config"] == run.content
    assert logged[0][0] == 64 and logged[0][1]["loss"] == 1 and logged[1] == (64, {"video": (str(tmp_path / "a.gif"), "gif")})
    assert logged.count("finished") == 2


@pytest.mark.parametrize("kind", ["mlflow", "trackio"])
def test_without_its_package_a_tracker_names_the_extra(kind, modules, run):
    modules(**{kind: None})
    with pytest.raises(MissingExtraError, match=rf"pip install 'jaxrl_fast\[{kind}\]'"):
        sink_of(kind, run)
    assert not run.path.exists()
