"""Sinks for trackers: Weights & Biases, MLflow and Trackio."""

from __future__ import annotations

import io
import json
import math
import os
import re
import time
from collections.abc import Mapping
from typing import Any, ClassVar

import numpy as np

from jaxrl_fast.errors import ConfigError, import_optional
from jaxrl_fast.logs.boards import scalars
from jaxrl_fast.logs.rows import Row
from jaxrl_fast.logs.sinks import Clip, LoggedRun, Sink

PROJECT = "jaxrl_fast"
_BATCH, _PARAMS = 1000, 100  # metrics and parameters of a request, MLflow's most
_LONGEST = 6000  # characters of a parameter's value, MLflow's most
_STATUS = {"finished": "FINISHED", "interrupted": "KILLED", "failed": "FAILED"}


class Tracker(Sink):
    """A service that keeps runs: gets the scalars of TensorBoard over `env_steps`, and videos.

    A resumed run goes on in its run there, by the id in `KIND.id` of the run directory. Rows up to
    `KIND.step` (W&B online: up to its summary) are not sent again. Needs the extra [KIND].

    Args:
        project: name of the project at the service; `of` takes "jaxrl_fast" if none is named.
        run: the run directory, its name and the settings.
    """

    kind: ClassVar[str]  # the package, and the name after `--log`
    title: ClassVar[str]
    entry: ClassVar[str] = "init"  # a name of the package, which an empty folder lacks

    def __init__(self, project: str | None, run: LoggedRun):
        import_optional(self.kind, f"logging to {self.title}", self.kind, self.entry)
        self._target, self._of = project, run
        self._run: Any = None  # the tracker's, while it is open

    @classmethod
    def of(cls, target: str, run: LoggedRun) -> Tracker:
        """Return the sink of a run of the project, "jaxrl_fast" unless named."""
        return cls(target or PROJECT, run)

    def open(self) -> None:
        self._known, self._seen = self._of.known(self.kind), self._of.sent(self.kind)

    def write(self, row: Row) -> None:
        if row.env_steps > self._seen:
            self._send(int(row.env_steps), scalars(row))
            self._of.keep_step(self.kind, int(row.env_steps))

    def evaluated(self, env_steps: int, returns: np.ndarray) -> None:
        last = Row(env_steps, math.nan, math.nan, {"eval_return": returns})
        self._send(int(env_steps), scalars(last))

    def video(self, clip: Clip) -> None:
        if clip.env_steps > self._seen:
            self._send_video(int(clip.env_steps), clip)

    def close(self) -> None:
        if self._run is not None:
            run, self._run = self._run, None
            self._finish(run)

    def _send(self, env_steps: int, values: dict[str, float]) -> None:
        raise NotImplementedError

    def _send_video(self, env_steps: int, clip: Clip) -> None:
        raise NotImplementedError

    def _finish(self, run: Any) -> None:
        run.finish()


class WandbSink(Tracker):
    """Weights & Biases; its run has the run directory's name, and its files are there.

    Without `wandb.id` (a run of an older version) a resume is a new W&B run in the same `group`. A
    video drawn after later rows is logged at the last row's steps, with its own in the caption:
    W&B's steps must not go back.
    """

    kind, title, form = "wandb", "Weights & Biases", "wandb[:PROJECT]"

    def open(self) -> None:
        super().open()
        import wandb

        run = self._of
        run.path.mkdir(parents=True, exist_ok=True)  # else wandb uses a temporary folder
        goes_on = {"id": self._known, "resume": "allow"} if self._known else {}
        try:
            self._run = wandb.init(
                project=self._target, config=run.content, dir=str(run.path.absolute()),
                name=run.path.name, group=run.group, **goes_on,
            )  # fmt: skip
        except (wandb.errors.AuthenticationError, wandb.errors.UsageError) as error:
            raise ConfigError("wandb project", self._target,
                              f"a project that wandb can open ({error}); WANDB_MODE=offline needs "
                              "no account") from error
        # an offline run has no summary of what came before
        if self._known and not self._run.offline:
            self._seen = int(self._run.summary.get("env_steps") or -1)
        self._last = self._seen  # environment steps of W&B's last row
        run.keep_id("wandb", self._run.id)
        self._run.define_metric("env_steps")
        self._run.define_metric("*", step_metric="env_steps")

    def _send(self, env_steps, values):
        self._last = env_steps
        self._run.log({"env_steps": env_steps, **values})

    def _send_video(self, env_steps, clip):
        import wandb

        source = io.BytesIO(clip.content) if clip.path is None else str(clip.path)
        video = wandb.Video(source, caption=f"{env_steps:,} steps", format=clip.format)
        self._run.log({"env_steps": max(env_steps, self._last), "video": video})


class MlflowSink(Tracker):
    """MLflow: its experiment "jaxrl_fast", a run named after the run directory.

    A member's metric is `member_007/NAME`; videos are artifacts. The settings are parameters by
    their names as flags (`total_steps`, `algo.discount`).

    Args:
        uri: server or store; None: as MLflow's environment variables say.
        run: the run directory, its name and the settings.
    """

    kind, title, form, entry = "mlflow", "MLflow", "mlflow[:URI]", "MlflowClient"
    _status = "FAILED"  # of a log that ends before its run

    def __init__(self, uri: str | None, run: LoggedRun):
        super().__init__(uri, run)

    @classmethod
    def of(cls, target: str, run: LoggedRun) -> MlflowSink:
        """Return a sink of the server or store `target`; "": the default."""
        return cls(target or None, run)

    def open(self) -> None:
        super().open()
        # MLflow would try for minutes, while the run waits.
        os.environ.setdefault("MLFLOW_HTTP_REQUEST_MAX_RETRIES", "1")
        os.environ.setdefault("MLFLOW_HTTP_REQUEST_TIMEOUT", "10")
        from mlflow import MlflowClient

        self._client = MlflowClient(tracking_uri=self._target)
        if self._known is None:
            run = self._create(self._client)
            self._of.keep_id("mlflow", run)
        else:
            run = self._known
            self._client.update_run(run, status="RUNNING")
        self._run = run

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

    def _send(self, env_steps, values):
        from mlflow.entities import Metric

        now = int(1000 * time.time())
        # A store of files cannot hold `loss` and `loss/member_000`.
        named = {"/".join(reversed(tag.split("/"))): value for tag, value in values.items()}
        found = [Metric(name, value, now, env_steps) for name, value in named.items()]
        for i in range(0, len(found), _BATCH):
            self._client.log_batch(self._run, found[i : i + _BATCH])

    def _send_video(self, env_steps, clip):
        with clip.file() as path:
            self._client.log_artifact(self._run, str(path), "videos")

    def ended(self, outcome: str) -> None:
        self._status = _STATUS[outcome]

    def _finish(self, run):
        self._client.set_terminated(run, self._status)


class TrackioSink(Tracker):
    """Trackio; its run has the run directory's name, after its group for a seed."""

    kind, title, form = "trackio", "Trackio", "trackio[:PROJECT]"

    def open(self) -> None:
        super().open()
        import trackio

        run = self._of
        named = run.path.name if run.seed is None else f"{run.group}-{run.path.name}"
        self._run = trackio.init(
            project=self._target, name=self._known or named, group=run.group, config=run.content,
            resume="must" if self._known else "never", embed=False,
        )  # fmt: skip
        run.keep_id("trackio", self._run.name)  # Trackio makes another name of a taken one

    def _send(self, env_steps, values):
        self._run.log(values, step=env_steps)

    def _send_video(self, env_steps, clip):
        import trackio

        with clip.file() as path:  # `log` copies it
            video = trackio.Video(str(path), format=clip.format)
            self._run.log({"video": video}, step=env_steps)


def parameters(content: Mapping[str, Any]) -> dict[str, str]:
    """Return {name: value} of config.json's settings, by their names as flags; values are JSON."""
    env = content["environment"].get("settings", {})
    groups = {"algo.": content["algorithm"]["settings"], "env.": env, "": content["run"]}
    text = lambda value: (value if isinstance(value, str) else json.dumps(value))[:_LONGEST]
    valid = lambda name: re.sub(r"[^\w\-. :/]", "_", name)
    named = {prefix + name: x for prefix, group in groups.items() for name, x in group.items()}
    return {valid(name): text(x) for name, x in named.items()}
