"""Sinks for MLflow and Trackio."""

from __future__ import annotations

import os
import time
from pathlib import Path
from typing import Any

from jaxrl_fast.errors import MissingExtraError
from jaxrl_fast.logs.boards import scalars
from jaxrl_fast.logs.rows import Row
from jaxrl_fast.logs.sinks import Clip, LoggedRun, Sink

PROJECT = "jaxrl_fast"
_BATCH = 1000  # metrics of a request, MLflow's most


class MlflowSink(Sink):
    """MLflow: the scalars of TensorBoard, videos as artifacts. Needs the extra [mlflow].

    A member's metric is `member_007/NAME`. A resumed run goes on in its MLflow run, whose id is in
    `mlflow.id` of the run directory.

    Args:
        uri: of a tracking server or store; None: what MLflow's environment variables say.
        run: the run directory, and what becomes the tag `config`.
    """

    form = "mlflow[:URI]"

    def __init__(self, uri: str | None, run: LoggedRun):
        try:
            import mlflow  # noqa: F401
        except ImportError as error:
            raise MissingExtraError("logging to MLflow", "mlflow") from error
        self._uri, self._of = uri, run
        self._client: Any = None
        self._id = run.known("mlflow")

    @classmethod
    def of(cls, target: str, run: LoggedRun) -> MlflowSink:
        """Return the sink of a run of the experiment "jaxrl_fast", with the run directory's name."""
        return cls(target or None, run)

    def open(self) -> None:
        # MLflow would try for minutes, while the run waits.
        os.environ.setdefault("MLFLOW_HTTP_REQUEST_MAX_RETRIES", "1")
        os.environ.setdefault("MLFLOW_HTTP_REQUEST_TIMEOUT", "10")
        from mlflow import MlflowClient

        client = MlflowClient(tracking_uri=self._uri)
        if self._id is None:
            experiment = client.get_experiment_by_name(PROJECT)
            number = client.create_experiment(PROJECT) if experiment is None else experiment.experiment_id
            content = self._of.content
            names = {"algorithm": content.get("algorithm"), "environment": content.get("environment")}
            tags = {name: str(value) for name, value in names.items()} | {"folder": str(self._of.path)}
            tags |= {"group": self._of.group} if self._of.group else {}
            self._id = client.create_run(number, run_name=self._of.path.name, tags=tags).info.run_id
            self._of.path.mkdir(parents=True, exist_ok=True)
            self._of.id("mlflow").write_text(self._id)
        else:
            client.update_run(self._id, status="RUNNING")
        self._client = client

    def write(self, row: Row) -> None:
        from mlflow.entities import Metric

        now, step = int(1000 * time.time()), int(row.env_steps)
        # A store of files cannot hold `loss` and `loss/member_000`.
        named = {"/".join(reversed(tag.split("/"))): value for tag, value in scalars(row).items()}
        found = [Metric(name, value, now, step) for name, value in named.items()]
        for i in range(0, len(found), _BATCH):
            self._client.log_batch(self._id, found[i : i + _BATCH])

    def video(self, clip: Clip) -> None:
        if clip.path is not None:
            self._client.log_artifact(self._id, str(clip.path), "videos")

    def close(self) -> None:
        if self._client is not None:
            client, self._client = self._client, None
            client.set_terminated(self._id)


class TrackioSink(Sink):
    """Trackio: the scalars of TensorBoard over `env_steps`, and videos. Needs the extra [trackio].

    A resumed run goes on in the Trackio run of its name.
    """

    form = "trackio[:PROJECT]"

    def __init__(
        self, project: str, config: dict[str, Any], name: str | None = None, group: str | None = None, resumed: bool = False
    ):
        try:
            import trackio  # noqa: F401
        except ImportError as error:
            raise MissingExtraError("logging to Trackio", "trackio") from error
        self._run: Any = None
        resume = "allow" if resumed else "never"
        self._settings = dict(project=project, name=name, group=group, config=config, resume=resume, embed=False)

    @classmethod
    def of(cls, target: str, run: LoggedRun) -> TrackioSink:
        """Return the sink of a Trackio run with the run directory's name."""
        return cls(target or PROJECT, run.content, run.path.name, run.group, run.resumed)

    def open(self) -> None:
        import trackio

        self._run = trackio.init(**self._settings)

    def write(self, row: Row) -> None:
        self._run.log(scalars(row), step=int(row.env_steps))

    def video(self, clip: Clip) -> None:
        import trackio

        if clip.path is not None:
            self._run.log({"video": trackio.Video(str(Path(clip.path)), format="gif")}, step=int(clip.env_steps))

    def close(self) -> None:
        if self._run is not None:
            run, self._run = self._run, None
            run.finish()
