"""Sinks for MLflow and Trackio."""

from __future__ import annotations

import json
import os
import re
import time
from collections.abc import Mapping
from typing import Any

from jaxrl_fast.errors import import_optional
from jaxrl_fast.logs.boards import scalars
from jaxrl_fast.logs.rows import Row
from jaxrl_fast.logs.sinks import Clip, LoggedRun, Sink

PROJECT = "jaxrl_fast"
_BATCH, _PARAMS = 1000, 100  # metrics and parameters of a request, MLflow's most
_LONGEST = 6000  # characters of a parameter's value, MLflow's most
_STATUS = {"finished": "FINISHED", "interrupted": "KILLED", "failed": "FAILED"}


class MlflowSink(Sink):
    """MLflow: the scalars of TensorBoard, videos as artifacts. Needs the extra [mlflow].

    A member's metric is `member_007/NAME`. The settings are parameters by their names as flags
    (`total_steps`, `algo.discount`). A resumed run goes on in its MLflow run, whose id is in
    `mlflow.id` of the run directory.

    Args:
        uri: of a tracking server or store; None: what MLflow's environment variables say.
        run: the run directory, the names and the settings.
    """

    form = "mlflow[:URI]"

    def __init__(self, uri: str | None, run: LoggedRun):
        import_optional("mlflow", "logging to MLflow", "mlflow", "MlflowClient")
        self._uri, self._of = uri, run
        self._client: Any = None
        self._id, self._seen = run.known("mlflow"), run.sent("mlflow")
        self._status = "FAILED"  # of a log that ends before its run

    @classmethod
    def of(cls, target: str, run: LoggedRun) -> MlflowSink:
        """Return a sink of the experiment "jaxrl_fast", its run named after the run directory."""
        return cls(target or None, run)

    def open(self) -> None:
        # MLflow would try for minutes, while the run waits.
        os.environ.setdefault("MLFLOW_HTTP_REQUEST_MAX_RETRIES", "1")
        os.environ.setdefault("MLFLOW_HTTP_REQUEST_TIMEOUT", "10")
        from mlflow import MlflowClient

        client = MlflowClient(tracking_uri=self._uri)
        if self._id is None:
            self._id = self._create(client)
            self._of.keep_id("mlflow", self._id)
        else:
            client.update_run(self._id, status="RUNNING")
        self._client = client

    def _create(self, client: Any) -> str:
        """Return the id of a new MLflow run with tags and parameters."""
        from mlflow.entities import Param

        experiment = client.get_experiment_by_name(PROJECT)
        number = experiment.experiment_id if experiment else client.create_experiment(PROJECT)
        path, group = self._of.path, self._of.group
        tags = {name: self._of.content[name]["name"] for name in ("algorithm", "environment")}
        tags |= {"folder": str(path)} | ({"group": group} if group else {})
        known = client.create_run(number, run_name=path.name, tags=tags).info.run_id
        params = [Param(*item) for item in parameters(self._of.content).items()]
        for i in range(0, len(params), _PARAMS):
            client.log_batch(known, params=params[i : i + _PARAMS])
        return known

    def write(self, row: Row) -> None:
        from mlflow.entities import Metric

        if row.env_steps <= self._seen:
            return
        now, step = int(1000 * time.time()), int(row.env_steps)
        # A store of files cannot hold `loss` and `loss/member_000`.
        named = {"/".join(reversed(tag.split("/"))): value for tag, value in scalars(row).items()}
        found = [Metric(name, value, now, step) for name, value in named.items()]
        for i in range(0, len(found), _BATCH):
            self._client.log_batch(self._id, found[i : i + _BATCH])
        self._of.keep_step("mlflow", step)

    def video(self, clip: Clip) -> None:
        if clip.env_steps > self._seen:
            with clip.file() as path:
                self._client.log_artifact(self._id, str(path), "videos")

    def ended(self, outcome: str) -> None:
        self._status = _STATUS[outcome]

    def close(self) -> None:
        if self._client is not None:
            client, self._client = self._client, None
            client.set_terminated(self._id, self._status)


class TrackioSink(Sink):
    """Trackio (extra [trackio]): the scalars of TensorBoard over `env_steps`, and videos.

    A resumed run goes on in its Trackio run, whose name is in `trackio.id` of the run directory.

    Args:
        project: of Trackio.
        run: the run directory, its name and the settings.
    """

    form = "trackio[:PROJECT]"

    def __init__(self, project: str, run: LoggedRun):
        import_optional("trackio", "logging to Trackio", "trackio", "init")
        self._project, self._of = project, run
        self._run: Any = None
        self._known, self._seen = run.known("trackio"), run.sent("trackio")

    @classmethod
    def of(cls, target: str, run: LoggedRun) -> TrackioSink:
        """Return the sink of a run with the run directory's name, after its group for a seed."""
        return cls(target or PROJECT, run)

    def open(self) -> None:
        import trackio

        run = self._of
        named = run.path.name if run.seed is None else f"{run.group}-{run.path.name}"
        self._run = trackio.init(
            project=self._project, name=self._known or named, group=run.group, config=run.content,
            resume="must" if self._known else "never", embed=False,
        )  # fmt: skip
        run.keep_id("trackio", self._run.name)  # Trackio makes another name of a taken one

    def write(self, row: Row) -> None:
        if row.env_steps > self._seen:
            self._run.log(scalars(row), step=int(row.env_steps))
            self._of.keep_step("trackio", int(row.env_steps))

    def video(self, clip: Clip) -> None:
        import trackio

        if clip.env_steps > self._seen:
            with clip.file() as path:  # `log` copies it
                video = trackio.Video(str(path), format=clip.format)
                self._run.log({"video": video}, step=int(clip.env_steps))

    def close(self) -> None:
        if self._run is not None:
            run, self._run = self._run, None
            run.finish()


def parameters(content: Mapping[str, Any]) -> dict[str, str]:
    """Return {name: value} of config.json's settings, by their names as flags; values are JSON."""
    env = content["environment"].get("settings", {})
    groups = {"algo.": content["algorithm"]["settings"], "env.": env, "": content["run"]}
    text = lambda value: (value if isinstance(value, str) else json.dumps(value))[:_LONGEST]
    valid = lambda name: re.sub(r"[^\w\-. :/]", "_", name)
    named = {prefix + name: x for prefix, group in groups.items() for name, x in group.items()}
    return {valid(name): text(x) for name, x in named.items()}
