"""The run directory: config.json, metrics.jsonl, TensorBoard events, checkpoints/, result.json, curve.png, rollout.gif/html."""

from __future__ import annotations

import contextlib
import dataclasses
import os
import shutil
import warnings
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import jax
import numpy as np

from jaxrl_fast import distributed, runtime
from jaxrl_fast.algorithms.base import Algorithm
from jaxrl_fast.engine.config import RunConfig
from jaxrl_fast.engine.grid import Grid
from jaxrl_fast.engine.prepared import Prepared
from jaxrl_fast.envs import registry
from jaxrl_fast.envs.base import Environment
from jaxrl_fast.errors import ConfigError, expected, writing
from jaxrl_fast.files import folders, forms
from jaxrl_fast.logs.boards import TensorBoardSink
from jaxrl_fast.logs.jsonl import JsonlSink, read_jsonl
from jaxrl_fast.logs.sinks import Row
from jaxrl_fast.runs import config_json as configs
from jaxrl_fast.runs.checkpoint import UNFINISHED, is_number, to_json

SEED = "seed-"


@dataclasses.dataclass(frozen=True)
class RunDir:
    """Paths and files of one run."""

    path: Path
    new: bool = False  # whether `create` made the directory
    lock: Any = dataclasses.field(default=None, compare=False, repr=False)  # `folders.Lock` of one that `create` made

    @property
    def metrics(self) -> Path:
        return self.path / "metrics.jsonl"

    @property
    def checkpoints(self) -> Path:
        return self.path / "checkpoints"

    @property
    def resumable(self) -> bool:
        """Whether a checkpoint has been written whole: orbax gives it its name, a number, at the end.

        Of seeds that train one after another one that has begun is enough: each is begun anew where it has none.
        """
        last = self.checkpoints / "last"
        return (last.is_dir() and any(is_number(p.name) for p in last.iterdir())) or self.in_turn

    @property
    def in_turn(self) -> bool:
        """Whether a seed has begun whose run has a folder of its own."""
        return (self.path / "config.json").is_file() and any(p.is_dir() for p in self.path.glob(f"{SEED}*"))

    @classmethod
    def create(cls, path: Path, prepared: Prepared) -> RunDir:
        """A new directory with its config.json, locked; one that exists with anything in it is refused."""
        check_free(path)
        content = described(prepared).content  # before anything is written: it refuses what it can't encode
        new, lock = not path.exists(), None
        try:
            path.mkdir(parents=True, exist_ok=True)
            lock = folders.hold("out", path)
            check_empty(path)  # another process may have been faster
            configs.write_json(path / "config.json", content)
        except BaseException as error:
            if lock:
                lock.release()
            if isinstance(error, OSError):
                raise folders.not_writable("out", path, error) from error
            raise
        return cls(path, new, lock)

    def release(self) -> None:
        """Let other processes write here."""
        if self.lock:
            self.lock.release()

    def discard(self) -> None:
        """Undo `create` where there is neither a row nor a checkpoint, so that the same command can be given again."""
        if self.metrics.exists() or self.checkpoints.exists() or self.in_turn:
            return
        shutil.rmtree(self.path / "wandb", ignore_errors=True)
        (self.path / "config.json").unlink(missing_ok=True)
        if self.new:
            with contextlib.suppress(OSError):  # somebody else has put a file there
                self.path.rmdir()

    def sinks(self, tensorboard: bool) -> list[Any]:
        found: list[Any] = [JsonlSink(self.metrics)]
        return found + ([TensorBoardSink(self.path / "tensorboard")] if tensorboard else [])

    def history(self, env_steps: int) -> list[Row]:
        """The log rows up to `env_steps`, read back; null is NaN."""
        rows = []
        for entry in read_jsonl(self.metrics) if self.metrics.exists() else []:
            if entry["env_steps"] <= env_steps:
                fixed = [entry.pop(k) for k in ("env_steps", "wall_seconds", "steps_per_second")]
                metrics = {k: np.array([np.nan if x is None else x for x in v], float) for k, v in entry.items()}
                rows.append(Row(*fixed, metrics))
        return rows

    def finish(self, session: Any) -> None:
        """result.json, the learning curve, and the trained agent playing. All processes call it, the first one writes."""
        s = session
        best = int(np.argmax(np.nan_to_num(s.eval_return, nan=-np.inf)))
        agent = s.agent_state(best) if best in s.lanes else None
        if distributed.is_first():
            self.write_result(s)
            if s.config.pictures:
                self.draw(s, best, agent)

    def write_result(self, session: Any) -> None:
        """result.json, with the log on the disk before it."""
        s = session
        for sink in s.sinks:
            sink.flush()
        seconds = s.seconds
        result = {
            "algorithm": s.algo.name,
            "environment": registry.name_of(s.env),
            "env_steps": s.env_steps,
            "seeds": s.config.member_seeds(),
            "settings": s.config.member_settings() or None,
            "lost": s.who()["lost"] or None,
            "eval_return": s.eval_return,
            "eval_episodes": s.eval_episodes,
            "best_eval_return": s.best_score,
            "reached": s.reached if s.config.target_return is not None else None,
            "steps_per_second": s.steps_per_second,
            "compile_seconds": seconds["compile"],
            "seconds": seconds,
            "wall_seconds": sum(seconds.values()),
            "device": device_name(),
            "versions": runtime.versions(),
        }
        with writing(self.path / "result.json"):
            configs.write_json(self.path / "result.json", to_json(result))

    def update(self, prepared: Prepared) -> None:
        """Note in config.json what a resumed run changes: its end, its horizon. The result of another end goes."""
        content, run = configs.read_config(self.path), configs.encode_run(prepared.config)
        if content["run"] != run:
            with writing(self.path / "result.json"):
                (self.path / "result.json").unlink(missing_ok=True)
            with writing(self.path / "config.json"):
                configs.write_json(self.path / "config.json", content | {"run": run})

    def best_member(self, members: int, scores: list[float | None] | None = None) -> int:
        """The member with the best of these scores, else the one that evaluated best at the end; 0 without a result."""
        scores = scores or (self.scores() if members > 1 else None)
        return int(np.argmax([-np.inf if x is None else x for x in scores])) if scores else 0

    def scores(self) -> list[float | None]:
        """How each member evaluated at the end; nothing without a result."""
        return self.result()["eval_return"] if (self.path / "result.json").is_file() else []

    def result(self) -> dict[str, Any]:
        """result.json, checked for being one of ours."""
        remedy = f"`train --resume {self.path}` (jf.resume) writes it anew, and checkpoints and log can be read without it"
        return forms.read_json(self.path / "result.json", "result", "a result.json of jaxrl_fast", forms.RESULT, remedy)

    def draw(self, s: Any, member: int, agent: Any) -> None:
        """The pictures. A finished run is not failed by them: what cannot be drawn is a warning."""
        from jaxrl_fast.logs import plots, time_plot
        from jaxrl_fast.runs import pictures

        for sink in s.sinks:
            if hasattr(sink, "status"):
                sink.status("drawing")
        label = f"{s.algo.name} {registry.name_of(s.env)}"
        try:
            rows = read_jsonl(self.metrics)
            plots.learning_curve({label: rows}, self.path / "curve.png")
            if time_plot.has_times(rows):
                time_plot.time_use(rows, self.path / "time.png")
            algo, env = s.setup(member)
            film = pictures.film(env, algo, agent, jax.random.key(s.config.seed), 500, s.config.host_timeout)
            if film.page is not None:
                configs.write_text(self.path / "rollout.html", film.page)
            if film.frames:
                stride, fps = pictures.pace(film.step_seconds, len(film.frames))
                pictures.rollout_gif(film.frames[::stride], self.path / "rollout.gif", fps)
        except Exception as error:
            warnings.warn(f"the pictures of {self.path} could not be drawn: {error!r}", stacklevel=2)


def seed_folder(path: Path, seed: int) -> Path:
    """The run directory of one seed, where seeds train one after another."""
    return path / f"{SEED}{seed}"


def run_path(argument: str, path: Any) -> Path:
    """Return the path of an existing directory; ConfigError for anything else."""
    if not isinstance(path, (str, os.PathLike)):
        raise expected(argument, "the path of a run directory", repr(path)[:100])
    if not Path(path).is_dir():
        raise ConfigError(argument, str(path), "an existing run directory")
    return Path(path)


def whole_run(path: Path) -> Path:
    """Return the run directory that a resume takes: of a seed among several in turn, that of all seeds."""
    return path.parent if path.name.startswith(SEED) and (path.parent / "config.json").is_file() else path


def check_free(path: Path) -> None:
    """Refuse a run directory that exists with anything in it, that another process writes, or that cannot be written."""
    who = folders.holder(path)
    if who:
        raise ConfigError("out", str(path), f"a new or empty directory; {who} writes there")
    check_empty(path)
    folders.check_writable("out", path)


def check_empty(path: Path) -> None:
    """Refuse a directory with anything in it but what a process left that was killed before its run began, or whose run went.

    The saver's threads make the folders of a checkpoint again that they are in the middle of.
    """
    try:
        found = {p.name for p in path.iterdir()} if path.is_dir() else {path.name} if path.exists() else set()
    except OSError as error:
        raise folders.not_writable("out", path, error) from error
    if not found or (folders.LOCK in found and found <= {folders.LOCK, "config.json"}):
        return
    if found - {folders.LOCK} == {"checkpoints"} and _unfinished(path / "checkpoints"):
        return
    begun, resumable = (path / "config.json").is_file(), RunDir(path).resumable
    resume = "; it has no checkpoint to go on from: choose another, or remove this one" if begun else ""
    resume = f"; to go on with it: train --resume {path} (from Python: jf.resume)" if resumable else resume
    raise ConfigError("out", str(path), f"a new or empty directory; this one holds another run or files{resume}")


def _unfinished(path: Path) -> bool:
    """Whether there is nothing in a folder but checkpoints without a name yet."""
    files = [p.relative_to(path) for p in path.rglob("*") if not p.is_dir()]
    return path.is_dir() and all(any(UNFINISHED in part for part in file.parts) for file in files)


def check_outside(path: Path) -> None:
    """Raises ConfigError for a new folder inside that of a run or a sweep, which would take it for a part of its own."""
    for folder in dict.fromkeys((*path.absolute().parents, *Path(os.path.realpath(path)).parents)):
        what = _held_by(folder)
        if what:
            valid = f"a folder outside of other runs, such as {folder.parent / path.name}: {folder} is that of {what}"
            raise ConfigError("out", str(path), valid)


def _held_by(folder: Path) -> str | None:
    """Say whether a folder is that of a run or a sweep; None for neither. A config.json alone may be a copy."""
    there = lambda *names: any(os.path.exists(folder / name) for name in names)
    if there("sweep.json") and there("parts"):
        return "a sweep"
    if there("config.json"):
        with contextlib.suppress(ConfigError):
            configs.read_config(folder)
            begun = there("metrics.jsonl", "checkpoints", "result.json") or RunDir(folder).in_turn
            return "a run" if begun or folders.holder(folder) else None
    return None


def described(prepared: Prepared) -> Prepared:
    """Return the run with the content of its config.json; ConfigError where that cannot hold a setting."""
    if prepared.content is not None:
        return prepared
    p = prepared
    return dataclasses.replace(p, content=describe(p.algo, p.env, p.config, p.grid, p.about))


def describe(algo: Algorithm, env: Environment, config: RunConfig, grid: Grid, about: Mapping[str, Any]) -> dict[str, Any]:
    """The content of config.json. about: more keys of it."""
    return {
        "format": configs.FORMAT,
        "algorithm": configs.encode_algorithm(algo),
        "environment": configs.encode_environment(env),
        "run": configs.encode_run(config),
        "resolved": resolved(env, grid),
        **about,
        "device": device_name(),
        "versions": runtime.versions(),
    }


def resolved(env: Environment, grid: Grid) -> dict[str, Any]:
    """What the settings that were left to their defaults came to. For the reader: nothing reads it back."""
    origin = registry.describe(env)
    return {
        "environment": to_json(registry.settings_of(origin[0]) | origin[1]) if origin else None,
        "max_episode_steps": env.spec.max_episode_steps,
        "log_every": grid.row * grid.steps,
        "eval_every": grid.eval_rows * grid.row * grid.steps,
        "random_steps": grid.warmup * grid.steps,
    }


def device_name() -> str:
    devices = jax.devices()
    return f"{len(devices)} x {devices[0].device_kind} ({devices[0].platform})"
