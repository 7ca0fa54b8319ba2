"""The protocol of log sinks, and their kinds; a new kind is a class and a line in `SINKS`."""

from __future__ import annotations

import contextlib
import functools
import os
import tempfile
import warnings
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any, ClassVar, NamedTuple

import numpy as np

from jaxrl_fast.errors import ConfigError, UserError, brief, expected, nearest
from jaxrl_fast.files import folders
from jaxrl_fast.logs.rows import Row
from jaxrl_fast.registry import Registry
from jaxrl_fast.values import new_file

OF_THE_RUN = (
    "config.json", "metrics.jsonl", "result.json", folders.LOCK,
    "checkpoints", "tensorboard", "videos", "curve.png", "time.png",
    "rollout.gif", "rollout.html", "wandb.id", "mlflow.id", "trackio.id",
)  # fmt: skip


class LoggedRun(NamedTuple):
    """Facts about the run for `Sink.of`."""

    path: Path  # the run directory; may not exist yet
    content: dict[str, Any]  # config.json: algorithm, environment and settings
    group: str | None = None  # name of the sweep or of the resumed run
    seed: int | None = None  # of a seed that trains in turn
    resumed: bool = False

    def own(self, path: str | Path) -> Path:
        """Return `path`, with the seed in its name for seeds that train in turn."""
        path = Path(path)
        if self.seed is None:
            return path
        return path.with_name(f"{path.stem}-seed-{self.seed}{path.suffix}")

    def log_file(self, target: str, begins: Callable[[bytes], bool]) -> Path:
        """Return the path of a log: a new file, or for a resumed run one whose first line fits.

        begins: whether such a log can begin with this line. Raises ConfigError for other files.
        """
        path = self.own(new_file("path", target))
        run, real = (Path(os.path.realpath(x)) for x in (self.path, path))
        inside = real.relative_to(run).parts[:1] if real.is_relative_to(run) else ()
        known = inside and (inside[0] in OF_THE_RUN or inside[0].startswith("seed-"))
        if run.is_relative_to(real) or known:
            raise ConfigError("path", target,
                              "a file that the run itself does not write, such as "
                              f"{self.path / 'rows'}{path.suffix}")
        if not path.exists():
            return path
        if not self.resumed or not path.is_file():
            raise ConfigError("path", target, f"a new file, and {path} is there")
        try:
            with open(path, "rb") as file:
                first = file.readline()
        except OSError as error:
            raise ConfigError("path", target,
                              f"a file that can be read: {error.strerror}") from error
        if first and not begins(first):
            raise ConfigError("path", target,
                              f"a new file, or the log of this run; {path} is another")
        return path

    def id(self, kind: str) -> Path:
        """Return the file with the run's id in a tracker, by which a resume goes on there."""
        return self.path / f"{kind}.id"

    def known(self, kind: str) -> str | None:
        """Return a resumed run's id in a tracker, or None."""
        file = self.id(kind)
        return (file.read_text().strip() or None) if self.resumed and file.is_file() else None

    def keep_id(self, kind: str, known: str) -> None:
        """Write the run's id in a tracker for `known`; makes the run directory."""
        self.path.mkdir(parents=True, exist_ok=True)
        self.id(kind).write_text(known)

    def keep_step(self, kind: str, env_steps: int) -> None:
        """Write down that a tracker has the rows up to `env_steps`, for `sent`."""
        with folders.replacing(self.path / f"{kind}.step") as temporary:
            temporary.write_text(str(env_steps))

    def sent(self, kind: str) -> int:
        """Return the environment steps of the last row that a resumed run's tracker has, or -1."""
        file = self.path / f"{kind}.step"
        return int(file.read_text()) if self.known(kind) and file.is_file() else -1


class Clip(NamedTuple):
    """A video of the agent in training."""

    env_steps: int  # of the member so far
    gif: bytes
    size: tuple[int, int]  # width, height
    path: Path | None = None  # of the file in the run directory
    mp4: bytes | None = None  # with `video_format` "mp4"

    @property
    def format(self) -> str:
        """Return the kind of the run's video files: "gif" or "mp4"."""
        return "gif" if self.mp4 is None else "mp4"

    @property
    def content(self) -> bytes:
        """Return the video in its format."""
        return self.gif if self.mp4 is None else self.mp4

    @contextlib.contextmanager
    def file(self) -> Iterator[Path]:
        """Yield the path of the video's file: the run's, or else a temporary one."""
        with contextlib.ExitStack() as stack:
            path = self.path
            if path is None:
                folder = stack.enter_context(tempfile.TemporaryDirectory())
                path = Path(folder) / f"{self.env_steps:012d}.{self.format}"
                path.write_bytes(self.content)
            yield path


class Sink:
    """Base class and protocol of sinks, which take the rows of a run; does nothing with them.

    The host loop hands every row to every sink, in order; a display gets more between rows. The
    flag `--log KIND:TARGET` makes a sink by `of`; `form` is its text in errors: "jsonl:PATH".
    """

    form: ClassVar[str] = ""

    @classmethod
    def of(cls, target: str, run: LoggedRun) -> Sink:
        """Return the flag's sink; writes nothing. Raises ConfigError for a bad target."""
        return cls(target)

    def open(self) -> None:
        """Begin the run; a refused run never opens, so nothing is made before."""

    def write(self, row: Row) -> None:
        """Log one interval."""

    def video(self, clip: Clip) -> None:
        """Log a video of an episode, some time after the row of its steps."""

    def flush(self) -> None:
        """Put everything on disk; called before a checkpoint commits."""

    def ended(self, outcome: str) -> None:
        """Note that the run is "finished", "interrupted" or "failed"; `close` comes next."""

    def close(self) -> None:
        """Flush, and release files and terminal; may be called twice."""

    def cut(self, env_steps: int) -> None:
        """Drop later rows: a resumed run writes them again.

        Comes before `open`, and once more after it for a late final evaluation (`evaluated`).
        """

    def status(self, text: str) -> None:
        """Show the run's activity ("compiling", "drawing")."""

    def message(self, text: str) -> None:
        """Show one line to the user."""

    def evaluating(self, played: int, episodes: int) -> None:
        """Show the progress of an evaluation."""

    def evaluated(self, env_steps: int, returns: np.ndarray) -> None:
        """Note the final evaluation, which the rows so far lack. returns: [members].

        After an interruption; `cut` to the row before and `write` of the whole last row follow,
        between `open` and `close`, unless the log lacks that row.
        """

    def exclude_time(self, seconds: float) -> None:
        """Leave time, such as a compilation's, out of the forecast."""


class Guarded(Sink):
    """Another sink, which a failure ends with a warning; the run goes on without it.

    Bad settings that its `open` finds are still the user's error.
    """

    def __init__(self, sink: Sink):
        self.sink: Sink | None = sink

    def _tell(self, method: str, *args: Any, **named: Any) -> None:
        if self.sink is None:
            return
        try:
            getattr(self.sink, method)(*args, **named)
        except Exception as error:
            if method == "open" and isinstance(error, UserError):
                raise
            sink, self.sink = self.sink, None
            with contextlib.suppress(Exception):
                sink.close()
            warnings.warn(f"{type(sink).__name__} failed, and the run goes on without it: "
                          f"{brief(error)}", stacklevel=2)

    open = functools.partialmethod(_tell, "open")
    write = functools.partialmethod(_tell, "write")
    video = functools.partialmethod(_tell, "video")
    flush = functools.partialmethod(_tell, "flush")
    ended = functools.partialmethod(_tell, "ended")
    close = functools.partialmethod(_tell, "close")
    cut = functools.partialmethod(_tell, "cut")
    status = functools.partialmethod(_tell, "status")
    message = functools.partialmethod(_tell, "message")
    evaluating = functools.partialmethod(_tell, "evaluating")
    evaluated = functools.partialmethod(_tell, "evaluated")
    exclude_time = functools.partialmethod(_tell, "exclude_time")


def _check(name: str, cls: Any) -> None:
    if not (isinstance(cls, type) and issubclass(cls, Sink)):
        raise ConfigError("sink", cls, "a subclass of jf.Sink")


SINKS: Registry[type[Sink]] = Registry("sink", "jaxrl_fast.sinks", {
    "jsonl": "jaxrl_fast.logs.jsonl:JsonlSink",
    "csv": "jaxrl_fast.logs.csv_file:CsvSink",
    "tensorboard": "jaxrl_fast.logs.boards:TensorBoardSink",
    "wandb": "jaxrl_fast.logs.trackers:WandbSink",
    "mlflow": "jaxrl_fast.logs.trackers:MlflowSink",
    "trackio": "jaxrl_fast.logs.trackers:TrackioSink",
}, _check)  # fmt: skip


def sink_of(text: str, run: LoggedRun) -> Sink:
    """Return the sink of "KIND:TARGET"; writes nothing. Raises ConfigError for a bad text."""
    kind, _, target = text.partition(":")
    if kind not in SINKS:
        *forms, last = (cls.form or name for name, cls in SINKS.items())
        raise ConfigError("--log", text,
                          f"{', '.join(forms)} or {last}{nearest(kind, SINKS.names())}")
    cls = SINKS.get(kind)
    try:
        return cls.of(target, run)
    except ConfigError as error:
        raise ConfigError("--log", text, f"{cls.form}; {error.valid}") from error


def check_sinks(sinks: Any) -> list[Sink]:
    """Return sinks as a list; raises ConfigError for anything else."""
    if not isinstance(sinks, (list, tuple)):
        raise expected("sinks", "a list of jf.Sink, or a function of a RunConfig that returns one",
                       repr(sinks)[:100])
    for sink in sinks:
        if not isinstance(sink, Sink):
            raise expected("sinks", "objects of a subclass of jf.Sink", repr(sink)[:100])
    return list(sinks)


def check_hooks(hooks: Any) -> None:
    """Raise ConfigError for hooks that are no functions."""
    if not isinstance(hooks, (list, tuple)) or not all(map(callable, hooks)):
        raise expected("hooks", "a list of functions hook(run, rows)", repr(hooks)[:100])
