"""The run directory: config.json, metrics, events, checkpoints/, result.json and pictures."""

from __future__ import annotations

import contextlib
import dataclasses
import itertools
import math
import os
import shlex
import shutil
import warnings
from pathlib import Path
from typing import Any

import jax
import numpy as np

from jaxrl_fast import distributed, runtime
from jaxrl_fast.engine.prepared import Prepared
from jaxrl_fast.envs import registry
from jaxrl_fast.errors import ConfigError, brief, expected, writing
from jaxrl_fast.files import folders, forms
from jaxrl_fast.logs.boards import TensorBoardSink
from jaxrl_fast.logs.jsonl import JsonlSink, read_jsonl
from jaxrl_fast.logs.rows import Row, read_row
from jaxrl_fast.logs.sinks import Guarded
from jaxrl_fast.runs import config_json as configs
from jaxrl_fast.runs.checkpoints.store import UNFINISHED, numbers_in
from jaxrl_fast.runs.description import add_content, device_name
from jaxrl_fast.values import expand_home

SEED = "seed-"
AUTO = "auto"  # an `out` that is numbered


@dataclasses.dataclass(frozen=True)
class RunDir:
    """Paths and files of one run."""

    path: Path
    new: bool = False  # whether `create` made the directory
    # `folders.Lock` from `create`
    lock: Any = dataclasses.field(default=None, compare=False, repr=False)

    @property
    def metrics(self) -> Path:
        return self.path / "metrics.jsonl"

    @property
    def checkpoints(self) -> Path:
        return self.path / "checkpoints"

    @property
    def resumable(self) -> bool:
        """Return whether a complete checkpoint (orbax named it), or a started seed, exists."""
        return bool(numbers_in(self.checkpoints / "last")) or self.in_turn

    @property
    def in_turn(self) -> bool:
        seeds = any(p.is_dir() for p in self.path.glob(f"{SEED}*"))
        return seeds and (self.path / "config.json").is_file()

    @classmethod
    def create(cls, path: Path, prepared: Prepared) -> RunDir:
        """Make a new directory with its config.json, locked. Raises ConfigError for files."""
        check_free(path)
        content = add_content(prepared).content  # refuses values before any write
        new, lock, mine = not path.exists(), None, False
        try:
            lock = folders.hold("out", path, create=True)
            check_empty(path)  # another process may have been faster
            mine = True
            configs.write_json(path / "config.json", content)
        except BaseException as error:
            if mine:  # a failed sync leaves it, and the same command would be refused
                with contextlib.suppress(OSError):
                    (path / "config.json").unlink(missing_ok=True)
            if lock:
                lock.release()
            if new:
                with contextlib.suppress(OSError):  # there are files
                    path.rmdir()
            if isinstance(error, OSError):
                raise folders.not_writable("out", path, error) from error
            raise
        return cls(path, new, lock)

    def release(self) -> None:
        if self.lock:
            self.lock.release()

    def discard(self) -> None:
        """Undo `create` if there is neither row nor checkpoint, so the command can be repeated."""
        if self.metrics.exists() or self.checkpoints.exists() or self.in_turn:
            return
        shutil.rmtree(self.path / "wandb", ignore_errors=True)
        for name in ("wandb.id", "mlflow.id", "trackio.id", "config.json"):
            with contextlib.suppress(OSError):  # the failure that ended the run is told instead
                (self.path / name).unlink(missing_ok=True)
        if self.new:
            with contextlib.suppress(OSError):  # another file appeared there
                self.path.rmdir()

    def sinks(self, tensorboard: bool) -> list[Any]:
        events = [Guarded(TensorBoardSink(self.path / "tensorboard"))] if tensorboard else []
        return [JsonlSink(self.metrics), *events]

    def history(self, env_steps: float = math.inf) -> list[Row]:
        """Return the log rows up to `env_steps`, read back; null is NaN."""
        entries = read_jsonl(self.metrics) if self.metrics.exists() else []
        return [read_row(entry) for entry in entries if entry["env_steps"] <= env_steps]

    def finish(self, run: Any) -> None:
        """Write result.json and the pictures; all processes call it, the first one writes."""
        best = int(np.argmax(np.nan_to_num(run.eval_return, nan=-np.inf)))
        agent = run.lanes.agent(best) if best in run.lanes.members else None
        if distributed.is_first():
            if not (self.path / "config.json").exists():  # a run is unreadable without it
                with writing(self.path / "config.json"):
                    configs.write_json(self.path / "config.json", add_content(run.prepared).content)
            self.write_result(run)
            if run.config.pictures:
                self.draw(run, best, agent)
                self.write_result(run)  # with the seconds that the pictures took

    def write_result(self, run: Any) -> None:
        """Write result.json of a run, or of seeds in turn, after the log is on disk."""
        seconds = run.seconds
        result = {
            "algorithm": run.algo.name,
            "environment": registry.name_of(run.env),
            "env_steps": run.env_steps,
            "seeds": run.config.member_seeds(),
            "settings": run.config.member_settings() or None,
            "lost": [{"member": member, **where} for member, where in run.lost.items()] or None,
            "eval_return": run.eval_return,
            "eval_episodes": run.eval_episodes,
            "best_eval_return": run.best_score,
            "reached": run.reached if run.config.target_return is not None else None,
            "steps_per_second": run.steps_per_second,
            "compile_seconds": seconds["compile"],
            "seconds": seconds,
            "wall_seconds": sum(seconds.values()),
            "device": device_name(),
            "versions": runtime.versions(),
        }
        with writing(self.path / "result.json"):
            configs.write_json(self.path / "result.json", forms.to_json(result))

    def update(self, prepared: Prepared) -> None:
        """Update config.json with a resumed run's end and horizon; drop the old result."""
        content, run = configs.read_config(self.path), configs.encode_run(prepared.config)
        if content["run"] != run:
            with writing(self.path / "result.json"):
                (self.path / "result.json").unlink(missing_ok=True)
            with writing(self.path / "config.json"):
                configs.write_json(self.path / "config.json", content | {"run": run})

    def best_member(self, members: int, scores: list[float | None] | None = None) -> int:
        """Return the member with the best of these or the final scores; 0 without a result."""
        if not scores and members > 1 and (self.path / "result.json").is_file():
            scores = self.result()["eval_return"]
        return int(np.argmax([-np.inf if x is None else x for x in scores])) if scores else 0

    def result(self) -> dict[str, Any]:
        remedy = (f"`train --resume {self.path}` (jf.resume) rewrites it; checkpoints and log are "
                  "readable without it")
        return forms.read_json(self.path / "result.json", "result", "a result.json of jaxrl_fast",
                               forms.RESULT, remedy)

    def draw(self, run: Any, member: int, agent: Any) -> None:
        """Draw the pictures; a failure is a warning and does not fail the run."""
        from jaxrl_fast.logs import plots, time_plot
        from jaxrl_fast.runs import pictures

        label = f"{run.algo.name} {registry.name_of(run.env)}"
        try:
            rows = read_jsonl(self.metrics)
            plots.learning_curve({label: rows}, self.path / "curve.png")
            time_plot.time_use(rows, self.path / "time.png")
            algo, env = run.setup(member)
            film = pictures.film(env, algo, agent, jax.random.key(run.config.seed),
                                 500, run.config.host_timeout)
            if film.page is not None:
                configs.write_text(self.path / "rollout.html", film.page)
            if film.frames:
                pictures.Video.of(film).save(self.path / "rollout.gif")
        except Exception as error:
            # Gymnasium's word for a missing pygame or mujoco; `agent.video()` raises it
            if type(error.__cause__).__name__ != "DependencyNotInstalled":
                warnings.warn(f"the pictures of {self.path} could not be drawn: {brief(error)}",
                              stacklevel=2)


def numbered(folder: str, *parts: str) -> Path:
    """Return FOLDER/PART-PART-N with the first N that no folder and no other process has."""
    stem = "-".join(parts).replace("/", "-").replace(":", "-").replace(" ", "-")
    paths = (Path(folder) / f"{stem}-{n}" for n in itertools.count(1))
    free = lambda: next(path for path in paths if not path.exists() and folders.claim(path))
    return Path(distributed.tell(str(free()) if distributed.is_first() else ""))


def seed_folder(path: Path, seed: int) -> Path:
    return path / f"{SEED}{seed}"


def run_path(argument: str, path: Any) -> Path:
    """Return the path of an existing directory. Raises ConfigError for anything else."""
    if not isinstance(path, (str, os.PathLike)):
        raise expected(argument, "the path of a run directory", repr(path)[:100])
    path = expand_home(path)
    if not os.fspath(path) or not Path(path).is_dir():
        raise ConfigError(argument, str(path), "an existing run directory")
    return Path(path)


def whole_run(path: Path) -> Path:
    """Return the run directory to resume: for a seed in turn, the directory of all seeds."""
    if path.name.startswith(SEED) and (path.parent / "config.json").is_file():
        return path.parent
    return path


def check_free(path: Path) -> None:
    """Raise ConfigError for a run directory in use, unwritable or with files."""
    who = folders.holder(path)
    if who:
        raise ConfigError("out", str(path), f"a new or empty directory; {who} writes there")
    check_empty(path)
    folders.check_writable("out", path)


def check_empty(path: Path) -> None:
    """Raise ConfigError for a directory with files, except remains of a run that never began."""
    try:
        found = {path.name} if path.exists() and not path.is_dir() else set()
        if path.is_dir():
            found = {p.name for p in path.iterdir() if not p.name.startswith(folders.PROBE)}
    except OSError as error:
        raise folders.not_writable("out", path, error) from error
    if not found or (folders.LOCK in found and found <= {folders.LOCK, "config.json"}):
        return
    if found - {folders.LOCK} == {"checkpoints"} and _unfinished(path / "checkpoints"):
        return
    begun = (path / "config.json").is_file()
    resume = "; it has no checkpoint to go on from: choose another, or remove this one" * begun
    if RunDir(path).resumable:
        resume = (f"; to go on with it: train --resume {shlex.quote(str(path))} (from Python: "
                  f"jf.resume({str(path)!r})); "
                  "for a new, numbered one: no --out (from Python: out='auto')")
    raise ConfigError("out", str(path),
                      f"a new or empty directory; this one holds another run or files{resume}")


def _unfinished(path: Path) -> bool:
    files = [p.relative_to(path) for p in path.rglob("*") if not p.is_dir()]
    return path.is_dir() and all(any(UNFINISHED in part for part in file.parts) for file in files)


def check_outside(path: Path, argument: str = "out") -> None:
    """Raise ConfigError for a new folder inside a run's or sweep's, which would adopt it."""
    for folder in dict.fromkeys((*path.absolute().parents, *Path(os.path.realpath(path)).parents)):
        what = _held_by(folder)
        if what:
            raise ConfigError(argument, str(path),
                              "a folder outside of other runs, such as "
                              f"{folder.parent / path.name}: {folder} is that of {what}")


def _held_by(folder: Path) -> str | None:
    """Return "a run" or "a sweep" for such a folder, or None. A lone config.json may be a copy."""
    there = lambda *names: any(os.path.exists(folder / name) for name in names)
    if there("sweep.json") and there("parts"):
        return "a sweep"
    begun = there("metrics.jsonl", "checkpoints", "result.json") or RunDir(folder).in_turn
    with contextlib.suppress(ConfigError):
        if there("config.json") and configs.read_config(folder) and (
            begun or folders.holder(folder)
        ):
            return "a run"
    return None
